"""The section Commits and commit statuses of the interface document."""

from rest_v3.requests.params import boolean, choice, integer, text
from rest_v3.route import Route

PROJECT = text("id", required=True)
COMMIT = (PROJECT, text("sha", required=True, description="The id of a commit, or the name of a branch or tag, with %2F for a slash."))
SECTION = "Commits and commit statuses"

COMMITS = (
    Route(
        call="GET /projects/:id/repository/commits",
        params=(PROJECT, text("ref_name", description="A branch or tag; by default the default branch.")),
        operation="ProjectCommits",
        result_path="project.commits",
        guard="MayReadCode",
        has_total=False,
        shape="Commit",
        section=SECTION,
        summary="List the commits of a branch or tag, newest first",
    ),
    Route(
        call="GET /projects/:id/repository/commits/:sha",
        params=COMMIT,
        operation="ProjectCommit",
        result_path="project.commit",
        guard="CommitSeen",
        shape="CommitSingle",
        section=SECTION,
        summary="Get a commit",
    ),
    Route(
        call="GET /projects/:id/repository/commits/:sha/diff",
        params=COMMIT,
        operation="CommitDiff",
        result_path="project.commit.diff",
        guard="CommitSeen",
        shape="DiffEntry",
        section=SECTION,
        summary="Get the diff of a commit",
    ),
    Route(
        call="GET /projects/:id/repository/commits/:sha/comments",
        params=COMMIT,
        operation="CommitComments",
        result_path="project.commit.comments",
        guard="CommitSeen",
        shape="CommitComment",
        section=SECTION,
        summary="List the comments on a commit, oldest first",
    ),
    Route(
        call="POST /projects/:id/repository/commits/:sha/comments",
        params=(
            *COMMIT,
            text("note", required=True),
            text("path", description="The path of a file after the change."),
            # An invalid line does not exist, and the comment is then on the whole commit.
            integer("line", lenient=True, description="Line number in the new file."),
            choice("line_type", "new", "old", description="Whether the line was added or removed; by default added."),
        ),
        operation="CreateCommitComment",
        result_path="createCommitComment.commitComment",
        guard="MayCommentCommit",
        shape="CommitCommentPosted",
        section=SECTION,
        summary="Comment on a commit, or on a line of its diff",
    ),
    Route(
        call="GET /projects/:id/repository/commits/:sha/statuses",
        params=(
            *COMMIT,
            text("ref_name", aliases=("ref",), description="Only statuses for this branch or tag."),
            text("stage", description="Only statuses of this stage."),
            text("name", description="Only statuses of this job."),
            boolean("all", description="All statuses, instead of the newest of each name and ref."),
        ),
        operation="CommitStatuses",
        result_path="project.commit.statuses",
        guard="CommitSeen",
        shape="CommitStatus",
        section=SECTION,
        summary="List the statuses of a commit, oldest first",
    ),
    Route(
        call="POST /projects/:id/statuses/:sha",
        params=(
            *COMMIT,
            choice(
                "state",
                *("pending", "running", "success", "failed", "canceled"),
                required=True,
                invalid_message={"status": ["is not included in the list"]},
                description="The state of the check.",
            ),
            text("ref", aliases=("ref_name",), description="The branch or tag of the status."),
            text("name", aliases=("context",), description="The name of the check; by default `default`."),
            text("target_url", description="The address of a page with details; http, https or relative."),
            text("description", description="A short description."),
        ),
        operation="CreateCommitStatus",
        result_path="createCommitStatus.commitStatus",
        guard="MayPostStatus",
        shape="CommitStatus",
        section=SECTION,
        summary="Create or update a status of a commit",
    ),
)
