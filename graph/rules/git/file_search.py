"""Searches in the files of a commit, and the blame of a file."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from graph.context import Context
from graph.errors import BadRequest, LimitExceeded
from graph.rules.git.commit_comparison import run_git
from graph.rules.git.commits import get_commit
from graph.rules.git.trees import ProjectBlob
from storage import tables
from storage.git import file_search
from storage.git.file_search import FoundLine, FoundPath
from storage.git.history import blame
from storage.git.history.blame import BlameTooLarge, LineRange
from storage.git.repository import Repository

T = TypeVar("T")

MAX_FOUND = 100
"""Rows of one search."""
MAX_TEXT_LENGTH = 200
"""Characters of a searched string."""


@dataclass(frozen=True, slots=True)
class FoundInFiles(Generic[T]):
    """What a search has found in a commit; `truncated` if there may be more."""

    commit_oid: str
    matches: list[T]
    truncated: bool


@dataclass(frozen=True, slots=True)
class ProjectLineRange:
    """A range of the blame of a file of a project."""

    project_id: int
    range: LineRange


async def search_text(context: Context, project: tables.Project, ref: str | None, text: str) -> FoundInFiles[FoundLine]:
    """Lines of files that contain a string. Raises NotFound, BadRequest, Unavailable."""
    found = await _search(context, project, ref, text, file_search.search_text)
    context.count_text(*(match.text for match in found.matches))
    return found


async def search_paths(context: Context, project: tables.Project, ref: str | None, text: str) -> FoundInFiles[FoundPath]:
    """Files whose path contains the words of a string. Raises NotFound, BadRequest, Unavailable."""
    return await _search(context, project, ref, text, file_search.search_paths)


async def _search(
    context: Context,
    project: tables.Project,
    ref: str | None,
    text: str,
    search: Callable[[Repository, str, str, int], tuple[list[T], bool]],
) -> FoundInFiles[T]:
    if not text.strip() or len(text) > MAX_TEXT_LENGTH or not text.isprintable():
        raise BadRequest(f"Search for 1 to {MAX_TEXT_LENGTH} printable characters that are not only spaces.")
    name = project.default_branch if ref is None else ref
    oid = (await get_commit(context, project, name or "HEAD")).oid
    matches, is_complete = await run_git(context, project.id, partial(_call, search, oid, text))
    return FoundInFiles(oid, matches, not is_complete)


def _call(
    search: Callable[[Repository, str, str, int], tuple[list[T], bool]], oid: str, text: str, repository: Repository
) -> tuple[list[T], bool]:
    return search(repository, oid, text, MAX_FOUND)


async def load_blame(context: Context, blob: ProjectBlob) -> list[ProjectLineRange]:
    """The blame of a file, in the order of its lines; empty for a binary file. Raises LimitExceeded, Unavailable."""
    if blob.is_binary:
        return []
    if blob.truncated:
        raise LimitExceeded("The file is larger than 1 MiB. Run git blame in a clone.")
    try:
        ranges = await run_git(context, blob.project_id, lambda repository: blame.blame(repository, blob.commit_oid, blob.path))
    except BlameTooLarge as error:
        raise LimitExceeded("The history of the file takes too long to read. Run git blame in a clone.") from error
    return [ProjectLineRange(blob.project_id, each) for each in ranges]
