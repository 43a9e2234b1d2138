"""The section Commits and commit statuses of the interface document."""

from rest_v3.requests.params import boolean, choice, integer, text
from rest_v3.route import Route

PROJECT = text("id", required=True)
COMMIT = (PROJECT, text("sha", required=True, description="The id of a commit, or the name of a branch or tag, with %2F for a slash."))
SECTION = "Commits and commit statuses"

COMMITS = (
    Route(
        call="GET /projects/:id/repository/commits",
        params=(PROJECT, text("ref_name", description="A branch or tag; the default branch without one.")),
        operation="ProjectCommits",
        result_path="project.commits",
        guard="MayReadCode",
        has_total=False,
        shape="Commit",
        section=SECTION,
        summary="The history of a branch or tag, newest first",
    ),
    Route(
        call="GET /projects/:id/repository/commits/:sha",
        params=COMMIT,
        operation="ProjectCommit",
        result_path="project.commit",
        guard="CommitSeen",
        shape="CommitSingle",
        section=SECTION,
        summary="One commit",
    ),
    Route(
        call="GET /projects/:id/repository/commits/:sha/diff",
        params=COMMIT,
        operation="CommitDiff",
        result_path="project.commit.diff",
        guard="CommitSeen",
        shape="DiffEntry",
        section=SECTION,
        summary="What a commit changed",
    ),
    Route(
        call="GET /projects/:id/repository/commits/:sha/comments",
        params=COMMIT,
        operation="CommitComments",
        result_path="project.commit.comments",
        guard="CommitSeen",
        shape="CommitComment",
        section=SECTION,
        summary="The comments on a commit, oldest first",
    ),
    Route(
        call="POST /projects/:id/repository/commits/:sha/comments",
        params=(
            *COMMIT,
            text("note", required=True),
            text("path", description="A file, by its path after the change."),
            # A line that is no number does not exist, and the comment then stands under the whole commit.
            integer("line", lenient=True, description="The number of a line in the new file."),
            choice("line_type", "new", "old", description="Whether the line was added or removed; added without it."),
        ),
        operation="CreateCommitComment",
        result_path="createCommitComment.commitComment",
        guard="MayCommentCommit",
        shape="CommitCommentPosted",
        section=SECTION,
        summary="Comment on a commit, or on a line that it changed",
    ),
    Route(
        call="GET /projects/:id/repository/commits/:sha/statuses",
        params=(
            *COMMIT,
            text("ref_name", aliases=("ref",), description="Those about this branch or tag."),
            text("stage", description="Those of this stage."),
            text("name", description="Those of this job."),
            boolean("all", description="Every one, instead of the newest of each name and ref."),
        ),
        operation="CommitStatuses",
        result_path="project.commit.statuses",
        guard="CommitSeen",
        shape="CommitStatus",
        section=SECTION,
        summary="What was said of a commit, oldest first",
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
                description="How far the check has come; whatever it was before.",
            ),
            text("ref", aliases=("ref_name",), description="The branch or tag that it is about."),
            text("name", aliases=("context",), description="What was checked; default without it."),
            text("target_url", description="The address of a page with more; http, https or relative."),
            text("description", description="What to say beside that."),
        ),
        operation="CreateCommitStatus",
        result_path="createCommitStatus.commitStatus",
        guard="MayPostStatus",
        shape="CommitStatus",
        section=SECTION,
        summary="Say of a commit how far a check of it has come",
    ),
)
