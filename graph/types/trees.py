"""Directories and files of a project."""

from typing import Annotated, Any

import strawberry

from graph.connections import Connection
from graph.context import Info
from graph.declare import column, connection_field, window_of
from graph.rules import trees
from graph.rules.policy import Action, require
from graph.scalars import BigInt, GitOid
from storage.git.trees import Kind

TreeEntryKind = strawberry.enum(
    Kind,
    name="TreeEntryKind",
    description="What an entry of a directory is: a directory, a file or symbolic link, or a submodule's commit.",
)

REF = strawberry.argument(description="A branch, a tag or the id of a commit, exactly; by default the default branch.")


@strawberry.type(description="What stands in a directory.")
class TreeEntry:
    name: str = column(description="Its name; what is no UTF-8 in it is shown as U+FFFD, and is opened by what is shown.")
    path: str = column(description="The path from the root of the repository.")
    kind: TreeEntryKind = column(description="What it is.")  # type: ignore[valid-type]
    mode: str = column(description="The mode in octal: `040000`, `100644`, `100755`, `120000` of a symbolic link, `160000` of a submodule.")
    oid: GitOid = column(description="The id of its object.")
    size: BigInt | None = column(description="The bytes of a file; null for everything else, and when the repository does not have it.")


@strawberry.type(description="A file at a commit, or what a symbolic link names.")
class Blob:
    name: str = column(description="Its name.")
    path: str = column(description="The path from the root of the repository.")
    oid: GitOid = column(description="The id of its contents.")
    mode: str = column(description="The mode in octal: `100644`, `100755`, or `120000` of a symbolic link.")
    size: BigInt = column(description="Its bytes.")
    is_binary: bool = column(description="Whether it is no text: it has a NUL near its start, or is larger than 8 MiB.")
    text: str | None = column(
        description="The contents as UTF-8, or as Windows-1252 where likelier; the first MiB of a larger file, null for a binary one."
    )
    truncated: bool = column(description="Whether there is more than `text` shows, because the file is larger than 1 MiB.")


async def _tree(root: Any, info: Info, *, ref: str | None, path: str, recursive: bool, **arguments: Any) -> Any:
    await require(info.context, Action.READ_CODE, root)
    return await trees.page(info.context, root, ref, path, recursive, window_of(arguments))


@strawberry.type
class ProjectTrees:
    """The part of a project that is about its files."""

    tree: Connection[TreeEntry] | None = connection_field(
        _tree,
        more={
            "ref": (Annotated[str | None, REF], None),
            "path": (Annotated[str, strawberry.argument(description="The path of the directory, without slashes around it.")], ""),
            "recursive": (
                Annotated[
                    bool, strawberry.argument(description="True: also what lies in its directories, each after the directory itself.")
                ],
                False,
            ),
        },
        description="What stands in a directory, in git's order: by the bytes of the names, a directory as if a slash ended its name."
        " Null, with an error, where there is no such directory.",
    )

    @strawberry.field(
        description="A file. Null, with an error, where there is none, and when the operation has read 5 MiB of files before."
    )
    async def blob(
        self,
        info: Info,
        path: Annotated[str, strawberry.argument(description="The path from the root, without a slash before it.")],
        ref: Annotated[str | None, REF] = None,
    ) -> Blob | None:
        project: Any = self
        await require(info.context, Action.READ_CODE, project)
        return await trees.blob(info.context, project, ref, path)  # type: ignore[return-value]
