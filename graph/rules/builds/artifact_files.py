"""Files inside artifacts that are zip archives: folders of an archive, and one of its files.

`storage/objects/zip_archives.py` reads the archives; here they are limited per operation, and their errors are those of the graph.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from graph.context import Context
from graph.errors import BadRequest, LimitExceeded, NotFound, OperationError, Unavailable
from graph.fields.connection_pages import ConnectionPage, Window
from graph.fields.cursors import decode_cursor, encode_cursor
from graph.rules.web_urls import load_project_url
from graph.served_files import read_first
from storage import tables
from storage.objects import zip_archives
from storage.objects.object_store import ObjectNotFound, ObjectStore
from storage.objects.zip_archives import EntryKind, UnreadableZip, ZipDirectory, ZipEntry, ZipListingEntry

MAX_ARCHIVES = 5
"""Archives that one operation may read."""
_CURSOR_KIND = "artifact"


@dataclass(frozen=True, slots=True)
class ArtifactListingEntry(ZipListingEntry):
    """An entry of a folder of an artifact."""

    artifact: tables.Artifact


@dataclass(frozen=True, slots=True)
class ArtifactMember:
    """A file of an artifact. `size` is in bytes, decompressed."""

    artifact: tables.Artifact
    name: str
    path: str
    size: int
    entry: ZipEntry


@dataclass(frozen=True, slots=True)
class ZippedFile:
    """A served file that is one of a zip archive; it has no ranges, since its bytes are decompressed from the first on."""

    objects: ObjectStore
    key: str
    name: str
    size: int
    entry: ZipEntry

    @asynccontextmanager
    async def open(self, start: int, size: int) -> AsyncIterator[AsyncIterator[bytes]]:
        """As `ServedFile.open`, always from the start to the end. Raises BadRequest for a file that is damaged at its beginning."""
        try:
            async with zip_archives.open_entry(self.objects, self.key, self.entry) as chunks:
                yield await read_first(_read_all(chunks))
        except UnreadableZip as error:
            raise _file_error(error) from error


async def _read_all(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        async for chunk in chunks:
            yield chunk
    except UnreadableZip as error:
        raise OSError(f"an artifact cannot be read: {error}") from error


async def entry_page(context: Context, artifact: tables.Artifact, path: str, window: Window) -> ConnectionPage:
    """A page of the entries of a folder of the archive ("" is the root). Raises NotFound, BadRequest, LimitExceeded, Unavailable."""
    after = decode_cursor(window.after, _CURSOR_KIND, _parse_position) if window.after is not None else None
    before = decode_cursor(window.before, _CURSOR_KIND, _parse_position) if window.before is not None else None
    directory = await _load_directory(context, artifact)
    listed = await asyncio.to_thread(directory.list_folder, path.removesuffix("/"))
    if listed is None:
        raise NotFound("Folder")
    entries = [entry for entry in listed if (after is None or _position(entry) > after) and (before is None or _position(entry) < before)]
    if window.backward:
        entries.reverse()
    shown = entries[window.offset : window.offset + window.size]
    has_more = len(entries) > window.offset + window.size
    if window.backward:
        shown.reverse()
    context.count_text(*(entry.path for entry in shown))
    return ConnectionPage(
        nodes=[ArtifactListingEntry(each.name, each.path, each.kind, each.size, artifact) for each in shown],
        has_next=before is not None if window.backward else has_more,
        has_previous=has_more if window.backward else after is not None or window.offset > 0,
        cursor=lambda entry: encode_cursor(_CURSOR_KIND, *_position(entry)),
        count=lambda: len(listed),
    )


async def find_file(context: Context, artifact: tables.Artifact, path: str) -> ArtifactMember:
    """The file at the path. Raises NotFound, BadRequest for one that cannot be read, LimitExceeded, Unavailable."""
    entry = (await _load_directory(context, artifact)).find(path)
    if entry is None:
        raise NotFound("File")
    if reason := zip_archives.unreadable_reason(entry):
        raise _file_error(UnreadableZip(reason))
    return ArtifactMember(artifact, path.rpartition("/")[2], path, entry.size, entry)


async def build_file_url(context: Context, artifact: tables.Artifact, path: str) -> str:
    """The URL from which a file of the artifact is downloaded with a private token."""
    project_url = await load_project_url(context, artifact.project_id)
    return f"{project_url}/builds/{artifact.build_id}/artifacts/file/{quote(path)}"


def offer_file(context: Context, file: ArtifactMember) -> str:
    """Register the file for download; returns the handle under which the endpoint finds its bytes."""
    handle = f"artifact {file.artifact.id} {file.path}"
    context.files[handle] = ZippedFile(context.services.objects, file.artifact.key, file.name, file.size, file.entry)
    return handle


async def _load_directory(context: Context, artifact: tables.Artifact) -> ZipDirectory:
    directories: Any = context.loader("directories of artifacts", _DirectoryReader(context.services.objects))
    found: ZipDirectory | OperationError = await directories.get((artifact.key, artifact.size))
    if isinstance(found, OperationError):
        raise found
    return found


@dataclass
class _DirectoryReader:
    """Reads the directories of one operation sequentially, up to the limit."""

    objects: ObjectStore
    remaining: int = MAX_ARCHIVES

    async def __call__(self, keys: list[tuple[str, int]]) -> Mapping[Any, ZipDirectory | OperationError]:
        return {key: await self._read(*key) for key in keys}

    async def _read(self, key: str, size: int) -> ZipDirectory | OperationError:
        if self.remaining <= 0:
            return LimitExceeded(f"An operation may read at most {MAX_ARCHIVES} archives. Request fewer artifacts.")
        self.remaining -= 1
        try:
            return await zip_archives.read_directory(self.objects, key, size)
        except UnreadableZip as error:
            return BadRequest(f"The archive cannot be listed: {error}. Download it as a whole.")
        except ObjectNotFound:
            return NotFound("Artifact")
        except OSError:
            return Unavailable()


def _file_error(error: UnreadableZip) -> BadRequest:
    return BadRequest(f"The file cannot be read: {error}. Download the archive as a whole.")


def _position(entry: ZipListingEntry) -> tuple[bool, str]:
    return entry.kind is not EntryKind.FOLDER, entry.name


def _parse_position(is_file: bool, name: str) -> tuple[bool, str]:
    if not isinstance(is_file, bool) or not isinstance(name, str):
        raise TypeError("a cursor of another list")
    return is_file, name
