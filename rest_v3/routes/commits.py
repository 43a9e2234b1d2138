"""The section Commits and commit statuses of the interface document."""

from rest_v3.params import boolean, choice, integer, text
from rest_v3.route import Route

PROJECT = text("id", required=True)
COMMIT = (PROJECT, text("sha", required=True, about="The id of a commit, or the name of a branch or tag, with %2F for a slash."))
SECTION = "Commits and commit statuses"

COMMITS = (
    Route(
        call="GET /projects/:id/repository/commits",
        params=(PROJECT, text("ref_name", about="A branch or tag; the default branch without one.")),
        operation="ProjectCommits",
        gives="project.commits",
        guard="MayReadCode",
        total=False,
        shape="Commit",
        section=SECTION,
        summary="The history of a branch or tag, newest first",
    ),
    Route(
        call="GET /projects/:id/repository/commits/:sha",
        params=COMMIT,
        operation="ProjectCommit",
        gives="project.commit",
        guard="CommitSeen",
        shape="CommitSingle",
        section=SECTION,
        summary="One commit",
    ),
    Route(
        call="GET /projects/:id/repository/commits/:sha/diff",
        params=COMMIT,
        operation="CommitDiff",
        gives="project.commit.diff",
        guard="CommitSeen",
        shape="DiffEntry",
        section=SECTION,
        summary="What a commit changed",
    ),
    Route(
        call="GET /projects/:id/repository/commits/:sha/comments",
        params=COMMIT,
        operation="CommitComments",
        gives="project.commit.comments",
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
            text("path", about="A file, by its path after the change."),
            # A line that is no number does not exist, and the comment then stands under the whole commit.
            integer("line", lenient=True, about="The number of a line in the new file."),
            choice("line_type", "new", "old", about="Whether the line was added or removed; added without it."),
        ),
        operation="CreateCommitComment",
        gives="createCommitComment.commitComment",
        guard="MayCommentCommit",
        shape="CommitCommentPosted",
        section=SECTION,
        summary="Comment on a commit, or on a line that it changed",
    ),
    Route(
        call="GET /projects/:id/repository/commits/:sha/statuses",
        params=(
            *COMMIT,
            text("ref_name", also=("ref",), about="Those about this branch or tag."),
            text("stage", about="Those of this stage."),
            text("name", about="Those of this job."),
            boolean("all", about="Every one, instead of the newest of each name and ref."),
        ),
        operation="CommitStatuses",
        gives="project.commit.statuses",
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
                wrong={"status": ["is not included in the list"]},
                about="How far the check has come; whatever it was before.",
            ),
            text("ref", also=("ref_name",), about="The branch or tag that it is about."),
            text("name", also=("context",), about="What was checked; default without it."),
            text("target_url", about="The address of a page with more; http, https or relative."),
            text("description", about="What to say beside that."),
        ),
        operation="CreateCommitStatus",
        gives="createCommitStatus.commitStatus",
        guard="MayPostStatus",
        shape="CommitStatus",
        section=SECTION,
        summary="Say of a commit how far a check of it has come",
    ),
)
