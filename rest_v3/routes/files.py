"""Files of a repository, which are not in the interface document (docs/wire-facts.md 14)."""

from rest_v3.requests.params import RouteParameter, choice, text
from rest_v3.reshape import add_keys, take_first
from rest_v3.route import Route, StatusOverride

PROJECT = text("id", required=True)
FILE_PATH = text("file_path", required=True, description="The path of the file from the root of the repository.")
BRANCH = text("branch_name", required=True, description="The branch to which the commit is added.")
MESSAGE = text("commit_message", required=True, description="The message of the commit.")
CONTENT: tuple[RouteParameter, ...] = (
    text("content", required=True, description="The new contents."),
    choice("encoding", "text", "base64", description="How the contents are sent; by default as text."),
)
REASON = (400, "{message}")
REASONS: dict[str, StatusOverride] = {
    **dict.fromkeys(("INVALID path", "INVALID branch", "INVALID content", "TAKEN", "CONFLICT"), REASON),
    "FORBIDDEN Branch": (400, "You are not allowed to push into this branch"),
}
"""All failures of a commit are 400 with the reason as text."""
SECTION = "Files"

FILES = (
    Route(
        call="GET /projects/:id/repository/files",
        params=(PROJECT, FILE_PATH, text("ref", required=True, description="A branch, a tag or a commit id.")),
        operation="RepositoryFile",
        result_path="project.blob",
        guard="MayReadCode",
        not_found_noun={"Blob": "File"},
        errors={"LIMIT_EXCEEDED": 413},
        reshape=add_keys(encoding="base64"),
        shape="File",
        section=SECTION,
        summary="Get a file at a branch, tag or commit",
    ),
    Route(
        call="POST /projects/:id/repository/files",
        params=(PROJECT, FILE_PATH, BRANCH, *CONTENT, MESSAGE),
        operation="CreateFile",
        result_path="createCommit.fileCommit",
        guard="MayCommitFiles",
        body_limit_path="project.fileLimit",
        errors=REASONS,
        error_codes=("TOO_LARGE",),
        reshape=take_first("file_path"),
        shape="ChangedFile",
        section=SECTION,
        summary="Commit a new file to a branch",
    ),
    Route(
        call="PUT /projects/:id/repository/files",
        params=(PROJECT, FILE_PATH, BRANCH, *CONTENT, MESSAGE),
        operation="UpdateFile",
        result_path="createCommit.fileCommit",
        guard="MayCommitFiles",
        body_limit_path="project.fileLimit",
        errors=REASONS,
        error_codes=("TOO_LARGE",),
        reshape=take_first("file_path"),
        shape="ChangedFile",
        section=SECTION,
        summary="Commit a change of a file to a branch",
    ),
    Route(
        call="DELETE /projects/:id/repository/files",
        params=(PROJECT, FILE_PATH, BRANCH, MESSAGE),
        operation="DeleteFile",
        result_path="createCommit.fileCommit",
        guard="MayCommitFiles",
        errors=REASONS,
        reshape=take_first("file_path"),
        shape="ChangedFile",
        section=SECTION,
        summary="Commit the removal of a file to a branch",
    ),
)
