"""The section Commits of the interface document: all but commit statuses."""

from rest_v3.params import choice, integer, text
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
)
