"""Artifacts, traces and uploads as parts of a dump.

Files are immutable. Small ones are grouped by the ids of their rows; a large one is a part of its own. Rows are written before the files
that they name. A file may be deleted meanwhile, together with its row; a trace may be joined, and is then read from the joined object.
"""

import asyncio
import contextlib
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from itertools import groupby

from sqlalchemy import select

from storage import tables
from storage.database.engine import Database
from storage.dump.dump_format import DamagedDump, Manifest
from storage.dump.dump_reader import DumpMember
from storage.dump.dump_writer import DumpWriter
from storage.dump.repository_parts import write_file
from storage.objects.bucket_uploads import BucketUploadStore
from storage.objects.folder_store import FolderStore
from storage.objects.object_store import KEY_PATTERN, ObjectNotFound, ObjectStore
from storage.objects.uploads import UploadStore

ARTIFACTS = "artifacts"
TRACES = "trace_parts"
UPLOADS = "uploads"
MAX_GROUPED_BYTES = 2**18
GROUP_ROWS = 64
"""Ids whose files, if they have at most MAX_GROUPED_BYTES, are one group."""
FILE_COLUMNS: dict[str, tuple[str, ...]] = {
    ARTIFACTS: ("id", "size", "key"),
    TRACES: ("id", "size", "key", "build_id", "start"),
    UPLOADS: ("id", "size", "secret", "project_id"),
}
"""The tables whose rows name files, and the columns that `NamedFile` is made of."""
_UPLOAD = re.compile("([1-9][0-9]*)-([0-9a-f]{32})")


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file that a row names. `key` is that of the object, or the secret of an upload; `owner` its build or project."""

    id: int
    size: int
    key: str
    owner: int = 0
    start: int = 0


class StoredFileDump:
    """Adds the files that rows name to a dump. The manifest gets the rows whose files were deleted meanwhile, and what is damaged."""

    def __init__(self, writer: DumpWriter, manifest: Manifest, database: Database, objects: ObjectStore, uploads: UploadStore) -> None:
        self._writer = writer
        self._manifest = manifest
        self._database = database
        self._objects = objects
        self._uploads = uploads

    async def add(self, table: str, files: Iterable[NamedFile], report: Callable[[int], None]) -> None:
        """Adds files, which are ordered by id; calls `report` with the number of those that are done. Raises OSError."""
        done = 0
        for number, group in groupby(files, lambda file: file.id // GROUP_ROWS):
            small = []
            for file in group:
                done += 1
                if file.size <= MAX_GROUPED_BYTES:
                    small.append(file)
                else:
                    await self._add_large(table, file)
            if small:
                await self._add_group(table, number * GROUP_ROWS, small)
            report(done)

    async def _add_group(self, table: str, first: int, files: list[NamedFile]) -> None:
        digest = hashlib.sha256("".join(f"{_name_of(table, file)} {file.size}\n" for file in files).encode()).hexdigest()[:16]
        name = f"{table}/{first:012d}-{digest}"
        if self._writer.reuse(name):
            return
        contents = await asyncio.gather(*(self._read(table, file) for file in files))
        with self._writer.add_part(name) as part:
            for file, content in zip(files, contents, strict=True):
                if content is None:
                    await self._record_missing(table, file, name)
                    continue
                part.begin_file(_name_of(table, file), file.size)
                part.write(content)
                if not part.end_file() or len(content) > file.size:
                    self._manifest.note_damage(name, f"{table} {file.id}: its file has {len(content)} bytes, not {file.size}")

    async def _add_large(self, table: str, file: NamedFile) -> None:
        name = f"{table}/{_name_of(table, file)}"
        if self._writer.reuse(name):
            return
        try:
            async with self._open(table, file) as chunks:
                with self._writer.add_part(name) as part:
                    part.begin_file(_name_of(table, file), file.size)
                    size = 0
                    async for data in chunks:
                        part.write(data)
                        size += len(data)
                    if not part.end_file() or size > file.size:
                        self._manifest.note_damage(name, f"{table} {file.id}: its file has {size} bytes, not {file.size}")
        except FileNotFoundError:
            await self._record_missing(table, file, name)

    async def _read(self, table: str, file: NamedFile) -> bytes | None:
        try:
            async with self._open(table, file) as chunks:
                return b"".join([data async for data in chunks])
        except FileNotFoundError:
            return None

    @contextlib.asynccontextmanager
    async def _open(self, table: str, file: NamedFile) -> AsyncIterator[AsyncIterator[bytes]]:
        """Raises FileNotFoundError."""
        if table == UPLOADS:
            async with self._uploads.read(file.owner, file.key) as chunks:
                yield chunks
            return
        async with contextlib.AsyncExitStack() as stack:
            try:
                chunks = await stack.enter_async_context(self._objects.open(file.key))
            except ObjectNotFound:
                joined = await self._find_joined(file) if table == TRACES else None
                if joined is None:
                    raise
                chunks = await stack.enter_async_context(self._objects.open(joined.key, file.start - joined.start, file.size))
            yield chunks

    async def _find_joined(self, file: NamedFile) -> tables.TracePart | None:
        """The part of the trace that now has the bytes of a part that was joined with others."""
        part: type = tables.TracePart
        covers = (part.build_id == file.owner, part.start <= file.start, part.start + part.size >= file.start + file.size)  # type: ignore[attr-defined]
        async with self._database.read_session() as session:
            found = await session.read(select(part).where(*covers))
        return found[0][0] if found and found[0][0].key != file.key else None

    async def _record_missing(self, table: str, file: NamedFile, part: str) -> None:
        await record_missing(self._manifest, self._database, table, file.id, f"its file {_name_of(table, file)} does not exist", part)


async def record_missing(manifest: Manifest, database: Database, table: str, id: int, problem: str, part: str | None = None) -> None:
    """Records a row whose files are missing: as deleted if the row no longer exists, else as a problem of the instance."""
    row = tables.metadata.tables[table]
    async with database.read_session() as session:
        exists = await session.scalar(select(row.c.id).where(row.c.id == id))
    if exists is None:
        manifest.deleted.setdefault(table, []).append(id)
    else:
        manifest.note_damage(part, f"{table} {id}: {problem}")


class StoredFileRestore:
    """Writes the files of a dump into folders, or buckets."""

    def __init__(self, objects: ObjectStore, uploads: UploadStore) -> None:
        self._objects = objects
        self._uploads = uploads

    async def restore_member(self, member: DumpMember) -> None:
        """Raises DamagedDump for an unknown file, OSError."""
        if member.part.startswith(f"{UPLOADS}/") and (upload := _UPLOAD.fullmatch(member.name)):
            if isinstance(self._uploads, BucketUploadStore):
                await self._uploads.objects.put(upload[2], _iterate(member.chunks), member.size)
            else:
                write_file(self._uploads.path_of(int(upload[1]), upload[2]), member.chunks)
        elif member.part.startswith((f"{ARTIFACTS}/", f"{TRACES}/")) and KEY_PATTERN.fullmatch(member.name):
            if isinstance(self._objects, FolderStore):
                write_file(self._objects.path_of(member.name), member.chunks)
            else:
                await self._objects.put(member.name, _iterate(member.chunks), member.size)
        else:
            raise DamagedDump(f"the dump has an unknown file {member.part}/{member.name}")


def _name_of(table: str, file: NamedFile) -> str:
    return f"{file.owner}-{file.key}" if table == UPLOADS else file.key


async def _iterate(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for data in chunks:
        yield data
