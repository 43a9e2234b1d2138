"""Directories and files of a project at a commit."""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, TypeVar

from graph.context import Context
from graph.errors import LimitExceeded, NotFound, OperationError
from graph.fields.connection_pages import ConnectionPage, Window
from graph.fields.cursors import decode_cursor, encode_cursor
from graph.operations.loaders import Loader
from graph.rules.git import refs
from graph.rules.git.commit_comparison import run_git
from graph.rules.git.commits import run_in_repository
from storage import tables
from storage.git import trees
from storage.git.content_cache import content_key
from storage.git.history import history_queries
from storage.git.refs.ref_names import FULL_ID
from storage.git.repository import RefTargets, Repository
from storage.git.trees import BlobContent, ListingPage, ListingTimeout, TreeListing, TreeListingEntry

T = TypeVar("T")

_CURSOR_KIND = "tree"
_ENTRY_VALUES = attrgetter(*(field.name for field in fields(TreeListingEntry)))
_CONTENT_VALUES = attrgetter(*(field.name for field in fields(BlobContent)))
MAX_TEXT_BYTES = 5 * 1024 * 1024
"""Bytes of all files that one operation may read as text."""
MAX_BUFFERED_BYTES = 5 * 1024 * 1024
"""Bytes of files that one operation holds until it ends, so that their base64 needs no second read."""


async def tree_page(
    context: Context, project: tables.Project, ref: str | None, path: str, recursive: bool, window: Window
) -> ConnectionPage:
    """A page of the entries of the directory `path` ("" is the root), in git's order.

    A cursor is a path, so pages stay exact while entries are added and removed. Raises NotFound (Commit, Tree), Unavailable,
    BadRequest, LimitExceeded when the walk takes too long.
    """
    after = decode_cursor(window.after, _CURSOR_KIND, _encode_key) if window.after is not None else None
    before = decode_cursor(window.before, _CURSOR_KIND, _encode_key) if window.before is not None else None
    span = ListingPage(window.size, after, before, window.offset, window.backward)

    name = project.default_branch if ref is None else ref
    known = await refs.of_revisions(context, project.id, name)

    def work(repository: Repository) -> list[ProjectTreeEntry]:
        listing = _open_listing(repository, name, path, recursive)
        return [ProjectTreeEntry.of(entry, project.id, listing.commit) for entry in listing.page(span)]

    def count(repository: Repository) -> int:
        return _open_listing(repository, name, path, recursive).count()

    contents, key = context.services.content_cache, content_key(project.id, name, known, path, recursive, span)
    found = contents.get(key)
    if found is None:
        found = await _run_within_limits(context, project.id, work, known)
        contents.put(key, found)
    has_more = len(found) > window.size
    shown = found[: window.size]
    if window.backward:
        shown.reverse()
    return ConnectionPage(
        nodes=shown,
        has_next=before is not None if window.backward else has_more,
        has_previous=has_more if window.backward else after is not None or window.offset > 0,
        cursor=lambda entry: encode_cursor(_CURSOR_KIND, entry.key.decode("latin-1")),
        count=lambda: _run_within_limits(context, project.id, count, known),
    )


@dataclass(frozen=True, slots=True)
class ProjectTreeEntry(TreeListingEntry):
    """An entry of a directory in a commit of a project."""

    project_id: int
    commit_oid: str

    @classmethod
    def of(cls, entry: TreeListingEntry, project_id: int, commit_oid: str) -> "ProjectTreeEntry":
        return cls(*(*_ENTRY_VALUES(entry), project_id, commit_oid))


@dataclass(frozen=True, slots=True)
class ProjectBlob(BlobContent):
    """A file in a commit of a project. `ref` is the name by which it was requested."""

    project_id: int
    commit_oid: str
    ref: str

    @classmethod
    def of(cls, content: BlobContent, project_id: int, commit_oid: str, ref: str) -> "ProjectBlob":
        return cls(*(*_CONTENT_VALUES(content), project_id, commit_oid, ref))


async def get_blob(context: Context, project: tables.Project, ref: str | None, path: str) -> ProjectBlob:
    """The file at the path.

    Raises NotFound (Commit, Blob), Unavailable, LimitExceeded when the operation has read too much.
    """
    blobs: Loader[tuple[int, str | None, str], ProjectBlob | OperationError] = context.loader("blobs", _BlobReader(context))
    found = await blobs.get((project.id, ref, path))
    if isinstance(found, OperationError):
        raise found
    assert found is not None, "the reader returns a blob or an error for every key"  # noqa: S101
    return found


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A blob of a project. `size` is in bytes."""

    project_id: int
    oid: str
    size: int


async def get_raw_blob(context: Context, project: tables.Project, oid: str) -> StoredBlob:
    """The blob with this full id. Raises NotFound, Unavailable."""
    size = None
    if FULL_ID.fullmatch(oid := oid.lower()):
        size = await run_in_repository(context, project.id, lambda repository: trees.blob_size(repository, oid), cancellable=True)
    if size is None:
        raise NotFound("Blob")
    return StoredBlob(project.id, oid, size)


async def read_base64(context: Context, blob: ProjectBlob) -> str:
    """The whole contents of a file as base64. Raises Unavailable, LimitExceeded for a larger file than the service shows."""
    limit = context.services.max_file_bytes
    if blob.size > limit:
        raise LimitExceeded(f"The file has {blob.size:,} bytes; files of at most {limit:,} are shown as base64. Clone the repository.")

    def work(repository: Repository) -> str:
        return base64.b64encode(trees.read_bytes(repository, blob.oid)).decode()

    if blob.data is not None:
        encoded = base64.b64encode(blob.data).decode()
    else:
        encoded = await run_in_repository(context, blob.project_id, work, cancellable=True)
    context.count_text(encoded)
    return encoded


async def find_last_change(context: Context, blob: ProjectBlob) -> str | None:
    """The id of the newest commit, up to that of the blob, that changed the file. Raises Unavailable."""
    contents, key = context.services.content_cache, content_key(blob.project_id, blob.commit_oid, {}, "last change", blob.path)
    found: str | None = contents.get(key)
    if found is None:
        found = await run_git(
            context, blob.project_id, lambda repository: history_queries.last_change(repository, blob.commit_oid, blob.path)
        )
        if found is not None:
            contents.put(key, found)
    return found


@dataclass
class _BlobReader:
    """Reads the files of one operation sequentially, until their total exceeds the limit."""

    context: Context
    remaining: int = MAX_TEXT_BYTES
    buffered: int = 0

    async def __call__(self, keys: list[tuple[int, str | None, str]]) -> Mapping[Any, ProjectBlob | OperationError]:
        found: dict[Any, ProjectBlob | OperationError] = {}
        for key in keys:
            try:
                found[key] = await self._read(*key)
            except OperationError as error:
                found[key] = error
        return found

    async def _read(self, project_id: int, ref: str | None, path: str) -> ProjectBlob:
        if self.remaining <= 0:
            raise LimitExceeded("The files of one operation exceed 5 MiB. Request fewer files.")
        project = await self.context.rows_by_id(tables.Project).get(project_id)
        assert project is not None, "the viewer may see the project, so it exists"  # noqa: S101

        name = project.default_branch if ref is None else ref

        def work(repository: Repository) -> ProjectBlob | None:
            commit = _resolve_commit(repository, name)
            found = trees.find_blob(repository, commit, path)
            return ProjectBlob.of(trees.read_blob(repository, *found, path), project_id, commit, name or "") if found else None

        known = await refs.of_revisions(self.context, project_id, name)
        contents, cache_key = self.context.services.content_cache, content_key(project_id, name, known, path)
        blob: ProjectBlob | None = contents.get(cache_key)
        if blob is None:
            blob = await run_in_repository(self.context, project_id, work, refs=known, cancellable=True)
            if blob is None:
                raise NotFound("Blob")
            contents.put(cache_key, blob)
        self.context.count_text(blob.text)
        self.remaining -= len(blob.text or "") + 1
        self.buffered += len(blob.data or b"")
        if self.buffered > MAX_BUFFERED_BYTES:
            blob = replace(blob, data=None)
        return blob


def _open_listing(repository: Repository, name: str | None, path: str, recursive: bool) -> TreeListing:
    try:
        return TreeListing(repository, _resolve_commit(repository, name), path, recursive=recursive)
    except LookupError as error:
        raise NotFound("Tree") from error


def _resolve_commit(repository: Repository, name: str | None) -> str:
    """Resolve a name to a commit id; None is the default branch of an empty repository. Raises NotFound."""
    oid = repository.resolve(name) if name is not None else None
    if oid is None:
        raise NotFound("Commit")
    return oid


async def _run_within_limits(context: Context, project_id: int, work: Callable[[Repository], T], known: RefTargets) -> T:
    try:
        return await run_in_repository(context, project_id, work, refs=known, cancellable=True)
    except ListingTimeout as error:
        raise LimitExceeded("The directory takes too long to walk. Request a subdirectory, or omit `recursive`.") from error


def _encode_key(key: str) -> bytes:
    return key.encode("latin-1")
