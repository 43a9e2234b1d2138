"""Commits of files that callers send."""

from typing import Any

import strawberry

from graph.context import Context, Info
from graph.fields.declarations import column
from graph.fields.mutations import mutation
from graph.fields.scalars import BigInt
from graph.rules.git import file_commits
from graph.rules.git.file_commits import ContentEncoding, FileActionKind
from graph.rules.permissions.policy import Action
from graph.types.git.commit_loader import load_commit
from graph.types.git.commits import Commit
from graph.types.inputs import ProjectInput, find_project, get_or, optional

FileActionType = strawberry.enum(FileActionKind, name="FileActionKind", description="What a commit does to a file.")
FileEncoding = strawberry.enum(ContentEncoding, name="FileEncoding", description="How the content of a file is sent.")


@strawberry.type(description="A commit of files, and the branch to which it was added.")
class FileCommit:
    branch_name: str = column(description="Name of the branch.")
    paths: list[str] = column(description="Paths of the files that it changed, in the order of the actions.")

    @strawberry.field(description="The commit; null if it cannot be read.")
    async def commit(self, info: Info) -> Commit | None:
        commit: Any = self
        return await load_commit(info, commit.project_id, commit.oid)


@strawberry.type
class ProjectFileLimitFields:
    """Fields of a project about the files that can be committed."""

    @strawberry.field(description="Maximum size in bytes of a file in `createCommit`, and of one shown as base64.")
    def file_limit(self, info: Info) -> BigInt:
        return BigInt(info.context.services.max_file_bytes)


@strawberry.input(description="A change of one file.")
class FileActionInput:
    action: FileActionType = strawberry.field(description="What to do.")  # type: ignore[valid-type]
    path: str = strawberry.field(description="Path from the root of the repository. Missing directories are created.")
    content: str | None = optional("New contents; required unless the file is deleted.")
    encoding: FileEncoding | None = optional("How `content` is sent; default `TEXT`, which is stored as UTF-8.")  # type: ignore[valid-type]
    expected_oid: str | None = optional(
        "Blob ID of the version that the change is based on. If the file has another, the commit is refused with CONFLICT."
    )


@strawberry.input(description="Input of `createCommit`.")
class CreateCommitInput(ProjectInput):
    branch: str = strawberry.field(description="Branch to which the commit is added. In an empty repository it is created.")
    message: str = strawberry.field(description="Commit message.")
    actions: list[FileActionInput] = strawberry.field(description="Changes of files, each of another file; all or none are made.")


async def _read_action(context: Context, input: FileActionInput) -> file_commits.FileAction:
    content = None
    if input.action is not FileActionKind.DELETE:
        encoding = get_or(input.encoding, ContentEncoding.TEXT)
        content = await file_commits.decode_content(context, get_or(input.content, ""), encoding)
    return file_commits.FileAction(input.action, input.path, content, get_or(input.expected_oid, None))


@mutation(
    entity="file_commit",
    returns=FileCommit,
    entity_description="The created commit.",
    description="Commits changes of files to a branch, with all effects of a push. Requires permission to push to the branch. A file that"
    " another commit has changed at the same time is not overwritten: the result is CONFLICT.",
)
async def create_commit(info: Info, input: CreateCommitInput) -> file_commits.AddedCommit:
    project = await find_project(info.context, input.project_path, Action.PUSH_CODE)
    actions = [await _read_action(info.context, action) for action in input.actions]
    return await file_commits.create_commit(info.context, project, input.branch, input.message, actions)


@strawberry.type
class FileCommitMutations:
    create_commit = create_commit
