"""Directories and files of a project, as they are at a commit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from graph.connections import Page, Window
from graph.context import Context
from graph.cursors import cursor_of, place_of
from graph.errors import LimitExceeded, NotFound, OperationError
from graph.loading import Loader
from graph.rules.commits import head_of_default, in_repository
from storage import tables
from storage.git import trees
from storage.git.repository import Repository
from storage.git.trees import Blob, Listing, Span, TooMuch, TreeEntry

T = TypeVar("T")

_MARK = "tree"
TEXT_LIMIT = 5 * 1024 * 1024
"""Bytes of all files that one operation may read as text."""


async def page(context: Context, project: tables.Project, ref: str | None, path: str, recursive: bool, window: Window) -> Page:
    """A page of what lies in the directory `path` ("" is the root), in git's order.

    A cursor is a path, so pages stay exact while entries come and go. Raises NotFound (Commit, Tree), Unavailable, BadRequest,
    LimitExceeded for what takes too long to walk.
    """
    after = place_of(window.after, _MARK, _bytes) if window.after is not None else None
    before = place_of(window.before, _MARK, _bytes) if window.before is not None else None
    span = Span(window.size, after, before, window.offset, window.backward)

    def work(repository: Repository) -> list[TreeEntry]:
        return _listing(repository, project, ref, path, recursive).page(span)

    def length(repository: Repository) -> int:
        return _listing(repository, project, ref, path, recursive).count()

    found = await _within_limits(context, project.id, work)
    more = len(found) > window.size
    shown = found[: window.size]
    if window.backward:
        shown.reverse()
    return Page(
        nodes=shown,
        has_next=before is not None if window.backward else more,
        has_previous=more if window.backward else after is not None or window.offset > 0,
        cursor=lambda entry: cursor_of(_MARK, entry.key.decode("latin-1")),
        count=lambda: _within_limits(context, project.id, length),
    )


async def blob(context: Context, project: tables.Project, ref: str | None, path: str) -> Blob:
    """The file at the path. Raises NotFound (Commit, Blob), Unavailable, LimitExceeded where the operation read too much already."""
    blobs: Loader[tuple[int, str | None, str], Blob | OperationError] = context.loader("blobs", _Blobs(context))
    found = await blobs.get((project.id, ref, path))
    if isinstance(found, OperationError):
        raise found
    assert found is not None, "an error stands for what is not found"  # noqa: S101
    return found


@dataclass
class _Blobs:
    """Reads the files of one operation, one after the other, until they hold more than it may read."""

    context: Context
    left: int = TEXT_LIMIT

    async def __call__(self, keys: list[tuple[int, str | None, str]]) -> Mapping[Any, Blob | OperationError]:
        found: dict[Any, Blob | OperationError] = {}
        for key in keys:
            try:
                found[key] = await self._read(*key)
            except OperationError as error:
                found[key] = error
        return found

    async def _read(self, project_id: int, ref: str | None, path: str) -> Blob:
        if self.left <= 0:
            raise LimitExceeded("The files of one operation hold at most 5 MiB; ask for fewer.")
        project = await self.context.rows_by_id(tables.Project).get(project_id)
        assert project is not None, "asked for by one who sees it"  # noqa: S101

        def work(repository: Repository) -> Blob | None:
            found = trees.find_blob(repository, _commit(repository, project, ref), path)
            return trees.read_blob(repository, *found, path) if found else None

        blob = await in_repository(self.context, project_id, work, cancellable=True)
        if blob is None:
            raise NotFound("Blob")
        self.left -= len(blob.text or "") + 1
        return blob


def _listing(repository: Repository, project: tables.Project, ref: str | None, path: str, recursive: bool) -> Listing:
    try:
        return Listing(repository, _commit(repository, project, ref), path, recursive=recursive)
    except LookupError as error:
        raise NotFound("Tree") from error


def _commit(repository: Repository, project: tables.Project, ref: str | None) -> str:
    """The id of the commit that is meant. Raises NotFound."""
    oid = repository.resolve(ref) if ref is not None else head_of_default(repository, project.default_branch)
    if oid is None:
        raise NotFound("Commit")
    return oid


async def _within_limits(context: Context, project_id: int, work: Callable[[Repository], T]) -> T:
    try:
        return await in_repository(context, project_id, work, cancellable=True)
    except TooMuch as error:
        raise LimitExceeded("This takes too long to walk; ask for a directory in it, or without `recursive`.") from error


def _bytes(key: str) -> bytes:
    return key.encode("latin-1")
