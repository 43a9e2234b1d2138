"""Directories and files of a project."""

from typing import Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.connections import Connection
from graph.fields.declarations import column, connection_field, make_window
from graph.fields.metadata import facts
from graph.fields.scalars import BigInt, GitOid
from graph.rules.git import file_rendering, file_search, git_files, last_changes, trees
from graph.rules.permissions.policy import Action, require
from graph.types.git.blame import BlameRange
from graph.types.git.commit_loader import load_commit
from graph.types.git.commits import Commit
from storage.git.tree_objects import ObjectKind

TreeEntryKind = strawberry.enum(
    ObjectKind,
    name="TreeEntryKind",
    description="Kind of a directory entry: a directory, a file or symbolic link, or a submodule commit.",
)

MAX_ENTRIES = 1_000
"""Maximum size of a page of a directory."""

REF_ARGUMENT = strawberry.argument(description="Exact name of a branch or tag, or full commit ID; default: the default branch.")


@strawberry.type(description="An entry of a directory.")
class TreeEntry:
    name: str = column(description="Name; bytes that are not UTF-8 are replaced by U+FFFD, and the replaced name is accepted as a path.")
    path: str = column(description="Path from the root of the repository.")
    kind: TreeEntryKind = column(description="Kind of the entry.")  # type: ignore[valid-type]
    mode: str = column(
        description="File mode in octal: `040000`, `100644`, `100755`, `120000` for a symbolic link, `160000` for a submodule."
    )
    oid: GitOid = column(description="ID of the git object.")
    size: BigInt | None = column(
        description="Size of a file in bytes; null for other entries, or if the repository does not have the object."
    )

    @strawberry.field(
        description="Newest commit, up to the commit of the directory, that changed the entry. Null if it is not among the 2,000 newest"
        " commits, or not found within the time that an operation may take for it."
    )
    async def last_commit(self, info: Info) -> Commit | None:
        entry: Any = self
        return await load_commit(info, entry.project_id, await last_changes.find_last_change(info.context, entry))


@strawberry.type(description="A file in a commit, or the target of a symbolic link.")
class Blob:
    name: str = column(description="Name.")
    path: str = column(description="Path from the root of the repository.")
    oid: GitOid = column(description="ID of the git object.")
    mode: str = column(description="File mode in octal: `100644`, `100755`, or `120000` for a symbolic link.")
    size: BigInt = column(description="Size in bytes.")
    is_binary: bool = column(description="Whether it is binary: it has a NUL byte near the start, or is larger than 8 MiB.")
    text: str | None = column(
        description="Contents as UTF-8, or as Windows-1252 if that is more likely; the first MiB of a larger file, null if binary."
    )
    truncated: bool = column(description="Whether `text` is truncated, because the file is larger than 1 MiB.")
    commit_oid: GitOid = column(description="ID of the commit in which it was found.")
    ref: str = column(description="Name of the branch or tag, or commit ID, by which it was requested.")

    @strawberry.field(
        description="Contents of a Markdown file (`.md`, `.markdown`) of at most 100,000 characters as sanitized HTML, in which relative"
        " links are pages of files at the same `ref`; null for other files. References are as in `Issue.descriptionHtml`."
    )
    async def html(self, info: Info) -> str | None:
        return await file_rendering.load_html(info.context, _as_blob(self))

    @strawberry.field(
        description="Complete contents as base64. An error if the file is larger than `Project.fileLimit` or cannot be read.",
        metadata=facts(is_pure=True),
    )
    async def base64(self, info: Info) -> str:
        return await trees.read_base64(info.context, _as_blob(self))

    @strawberry.field(
        description="ID of the newest commit, up to the commit in which it was found, that changed the file. Null, with an error, if it"
        " takes too long to find.",
        metadata=facts(is_pure=True),
    )
    async def last_commit_oid(self, info: Info) -> GitOid | None:
        return await trees.find_last_change(info.context, _as_blob(self))  # type: ignore[return-value]

    @strawberry.field(
        description="Newest commit, up to the commit in which it was found, that changed the file. Null, with an error, if it takes too"
        " long to find."
    )
    async def last_commit(self, info: Info) -> Commit | None:
        blob = _as_blob(self)
        return await load_commit(info, blob.project_id, await trees.find_last_change(info.context, blob))

    @strawberry.field(
        description="Commit that changed each line last, as ranges in the order of the lines; empty for a binary file. Null, with an error,"
        " if the file is larger than 1 MiB or its history takes too long to read.",
    )
    async def blame(self, info: Info) -> list[BlameRange] | None:
        return await file_search.load_blame(info.context, _as_blob(self))  # type: ignore[return-value]

    @strawberry.field(description="Internal reference to the contents, valid within one operation; grants no access.")
    def stream(self, info: Info) -> str:
        blob = _as_blob(self)
        return git_files.offer_blob(info.context, blob.project_id, blob.oid, blob.size, blob.name)


@strawberry.type(description="A blob of a repository, without the name and the mode that a directory gives it.")
class RawBlob:
    oid: GitOid = column(description="ID of the git object.")
    size: BigInt = column(description="Size in bytes.")

    @strawberry.field(description="Internal reference to the contents, valid within one operation; grants no access.")
    def stream(self, info: Info) -> str:
        raw: Any = self
        return git_files.offer_blob(info.context, raw.project_id, raw.oid, raw.size, raw.oid)


def _as_blob(blob: Any) -> trees.ProjectBlob:
    return blob  # type: ignore[no-any-return]


async def _resolve_tree(root: Any, info: Info, *, ref: str | None, path: str, recursive: bool, **arguments: Any) -> Any:
    await require(info.context, Action.READ_CODE, root)
    return await trees.tree_page(info.context, root, ref, path, recursive, make_window(arguments, MAX_ENTRIES))


@strawberry.type
class ProjectTreeFields:
    """Fields of a project about its files."""

    tree: Connection[TreeEntry] | None = connection_field(
        _resolve_tree,
        extra_arguments={
            "ref": (Annotated[str | None, REF_ARGUMENT], None),
            "path": (Annotated[str, strawberry.argument(description="Path of the directory, without leading or trailing slash.")], ""),
            "recursive": (
                Annotated[
                    bool, strawberry.argument(description="If true, include the entries of subdirectories, each after its directory.")
                ],
                False,
            ),
        },
        description="Entries of a directory in git order: by name as bytes, directories as if their name ended with a slash. Null, with an"
        " error, if the directory does not exist.",
        max_page_size=MAX_ENTRIES,
        revision_argument="ref",
    )

    @strawberry.field(
        description="Contents of a file. Null, with an error, if it does not exist or the operation has already read 5 MiB of files.",
        metadata=facts(revision_argument="ref"),
    )
    async def blob(
        self,
        info: Info,
        path: Annotated[str, strawberry.argument(description="Path from the root of the repository, without leading slash.")],
        ref: Annotated[str | None, REF_ARGUMENT] = None,
    ) -> Blob | None:
        project: Any = self
        await require(info.context, Action.READ_CODE, project)
        return await trees.get_blob(info.context, project, ref, path)  # type: ignore[return-value]

    @strawberry.field(description="Blob with this ID, whatever its path. Null, with an error, if the repository does not have it.")
    async def raw_blob(
        self, info: Info, oid: Annotated[str, strawberry.argument(description="Full ID of the git object.")]
    ) -> RawBlob | None:
        project: Any = self
        await require(info.context, Action.READ_CODE, project)
        return await trees.get_raw_blob(info.context, project, oid)  # type: ignore[return-value]
