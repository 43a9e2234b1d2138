"""Searches in the files of a project."""

from typing import Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.declarations import column
from graph.fields.metadata import facts
from graph.fields.scalars import GitOid
from graph.rules.git import file_search
from graph.rules.permissions.policy import Action, require
from graph.types.git.trees import REF_ARGUMENT


@strawberry.type(description="A line of a file that contains a searched string.")
class LineMatch:
    path: str = column(description="Path from the root of the repository.")
    line: int = column(description="Number of the line; the first is 1.")
    text: str = column(description="The line; at most 400 characters of it, with the first occurrence.")


@strawberry.type(description="Lines that a search has found in the files of a commit.")
class TextSearch:
    commit_oid: GitOid = column(description="ID of the commit that was searched.")
    matches: list[LineMatch] = column(description="Lines by path; at most 100, and at most 20 of a file.")
    truncated: bool = column(description="Whether there may be more.")


@strawberry.type(description="A file whose path contains the searched words.")
class PathMatch:
    path: str = column(description="Path from the root of the repository.")


@strawberry.type(description="Files that a search by path has found in a commit.")
class PathSearch:
    commit_oid: GitOid = column(description="ID of the commit that was searched.")
    matches: list[PathMatch] = column(description="Files; those whose name has the first word come first; at most 100.")
    truncated: bool = column(description="Whether there may be more.")


@strawberry.type
class ProjectFileSearchFields:
    """Fields of a project that search its files."""

    # Both start a process that reads all files or all directories.
    @strawberry.field(
        description="Lines of text files that contain a string, ignoring case; a search ends after 5 seconds with what it has found. Null,"
        " with an error, if the commit does not exist.",
        metadata=facts(extra_rows=500),
    )
    async def search_text(
        self,
        info: Info,
        search: Annotated[str, strawberry.argument(description="String to search for, 1 to 200 characters; not a pattern.")],
        ref: Annotated[str | None, REF_ARGUMENT] = None,
    ) -> TextSearch | None:
        project: Any = self
        await require(info.context, Action.READ_CODE, project)
        return await file_search.search_text(info.context, project, ref, search)  # type: ignore[return-value]

    @strawberry.field(
        description="Files whose path contains each of some words, ignoring case. Null, with an error, if the commit does not exist.",
        metadata=facts(extra_rows=200),
    )
    async def search_paths(
        self,
        info: Info,
        search: Annotated[str, strawberry.argument(description="Words to search for, 1 to 200 characters.")],
        ref: Annotated[str | None, REF_ARGUMENT] = None,
    ) -> PathSearch | None:
        project: Any = self
        await require(info.context, Action.READ_CODE, project)
        return await file_search.search_paths(info.context, project, ref, search)  # type: ignore[return-value]
