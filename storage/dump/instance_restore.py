"""Restores dumps into an empty instance: verifies all of them first, then writes files and rows; the rows are committed last."""

import asyncio
import contextlib
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy import delete

from storage import integrity, migrations
from storage.dump import dump_locations, repository_parts
from storage.dump.dump_format import DamagedDump, DumpError, DumpHead, Manifest
from storage.dump.dump_reader import DumpMember, DumpReader
from storage.dump.instance_dump import PROJECTS, SECRETS, TABLES, InstanceData
from storage.dump.stored_file_parts import StoredFileRestore
from storage.dump.table_loader import TableLoader, TargetNotEmpty, open_loader, require_empty
from storage.git.importing.repository_import import ProgressCallback
from storage.git.repositories import StagedRepository
from storage.git.repository import Repository
from storage.git.repository_cache import RepositoryCache
from storage.objects.folder_store import FolderStore
from storage.objects.object_store import ALL_SECONDS
from storage.tables import metadata

MAX_SECRET_BYTES = 2**16
MAX_CHUNK_BYTES = 2**28
"""Of the rows of a chunk, unpacked. A row may be longer than the usual size of a chunk."""
_NAME = re.compile("[a-z_]+")


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A verified dump: where it lies, its size in bytes, its manifest, and the files with keys that it contains."""

    location: str
    size: int
    manifest: Manifest
    secret_files: Mapping[str, bytes]


async def read_dumps(locations: Sequence[str], s3_settings: Mapping[str, str], progress: ProgressCallback) -> list[DumpFile]:
    """Verifies every byte of a chain of dumps, and returns them, the oldest first. Raises DumpError, OSError."""
    files = [await _verify(location, s3_settings, progress) for location in locations]
    files.sort(key=lambda file: len(file.manifest.chain))
    newest = files[-1].manifest
    files_by_id = {file.manifest.head.id: file for file in files}
    for head in newest.chain:
        if head.id not in files_by_id:
            raise DumpError(
                f"{files[-1].location} is incremental and needs the dump {head.id}, taken at {_format_time(head)}: name its file too"
            )
    for file in files:
        if file.manifest.head not in (*newest.chain, newest.head):
            raise DumpError(f"{file.location} does not belong to the chain of {files[-1].location}: leave it out")
    if len(files_by_id) < len(files):
        raise DumpError("a dump is named twice")
    available = {(name, file.manifest.head.id): part for file in files for name, part in file.manifest.parts.items()}
    for name, part in newest.parts.items():
        if available.get((name, part.dump)) != part:
            raise DamagedDump(f"the dump {part.dump} does not have the part {name} of {files[-1].location}")
    return files


def require_known_revision(head: DumpHead) -> None:
    """Raises DumpError if this program is older than the dump."""
    if not migrations.is_known(head.revision):
        raise DumpError(
            f"the dump was made by Forgefront {head.product} at revision {head.revision}; this program knows revisions up to"
            f" {migrations.newest_revision()}. Upgrade it first"
        )


class InstanceRestore:
    """Restores a chain of verified dumps into empty `data`."""

    def __init__(self, data: InstanceData, files: Sequence[DumpFile], s3_settings: Mapping[str, str], progress: ProgressCallback) -> None:
        self.manifest = files[-1].manifest
        self._data = data
        self._files = files
        self._s3_settings = s3_settings
        self._progress = progress
        self._stored_files = StoredFileRestore(data.objects, data.uploads)
        self._uploaded: list[StagedRepository] = []

    async def require_empty(self) -> None:
        """Raises TargetNotEmpty unless database, folders and bucket are empty."""
        await require_empty(self._data.database, self.manifest.head.revision)
        folders = [self._data.repositories.root, self._data.uploads.root]
        if isinstance(self._data.objects, FolderStore):
            folders.append(self._data.objects.root)
        for name, store in self._data.buckets.items():
            async for keys in store.list_older_than(ALL_SECONDS):
                if keys:
                    raise TargetNotEmpty(f"the bucket has {name}. Name another prefix of it, or empty it. Nothing was changed")
            if await store.read_owner():
                raise TargetNotEmpty(f"the prefix of the bucket for {name} belongs to an instance. Name another one. Nothing was changed")
        for folder in folders:
            if folder.is_dir() and any(folder.iterdir()):
                raise TargetNotEmpty(f"{folder} is not empty. Name an empty folder. Nothing was changed")

    async def run(self) -> None:
        """Writes everything. Raises DumpError, OSError, and the errors of the driver; the database is empty then."""
        for name, table in self.manifest.tables.items():
            if not all(_NAME.fullmatch(word) for word in (name, *(column for column, _ in table.columns))):
                raise DamagedDump(f"the dump has an unknown table {name}")
        async with open_loader(self._data.database, self.manifest.head.revision, self.manifest.tables) as loader:
            loaded = dict.fromkeys(self.manifest.tables, 0)
            for file in self._files:
                await self._restore_file(file, loader, loaded)
            for name, table in self.manifest.tables.items():
                if loaded[name] != table.rows:
                    raise DamagedDump(f"the dump has {loaded[name]} rows of {name}, not {table.rows}")
                if table.sequence is not None:
                    await loader.set_sequence(name, table.sequence)
            self._progress("indexes and foreign keys", 0, 1)
            await loader.create_constraints()
            await self._upload_repositories()
            os.sync()
        self._progress("indexes and foreign keys", 1, 1)
        await self._delete_rows()

    async def _restore_file(self, file: DumpFile, loader: TableLoader, loaded: dict[str, int]) -> None:
        id, phase = file.manifest.head.id, f"restoring {file.location}"
        with dump_locations.open_dump(file.location, self._s3_settings) as stream:
            reader = DumpReader(file.location, stream)
            if reader.head != file.manifest.head:
                raise DamagedDump(f"{file.location} was replaced during the restoration")
            for member in reader.members():
                part = self.manifest.parts.get(member.part)
                # An earlier dump also has parts that a later one replaces.
                if part is not None and part.dump == id:
                    await self._restore_member(member, loader, loaded)
                self._progress(phase, reader.offset, file.size)
            self._progress(phase, file.size, file.size)

    async def _restore_member(self, member: DumpMember, loader: TableLoader, loaded: dict[str, int]) -> None:
        kind, _, rest = member.part.partition("/")
        if kind == TABLES:
            table = rest.partition("/")[0]
            if table not in loaded:
                raise DamagedDump(f"the dump has rows of an unknown table {table}")
            loaded[table] += await loader.load(table, _unpack(member))
        elif kind == repository_parts.KIND:
            if repository_parts.project_of(member.part) not in self.manifest.deleted.get(PROJECTS, ()):
                repository_parts.restore_member(self._data.repositories, member)
        elif kind != SECRETS:
            await self._stored_files.restore_member(member)

    async def _delete_rows(self) -> None:
        """Deletes the rows that were deleted during the dump before their files were read."""
        if self.manifest.deleted:
            async with self._data.database.write_session() as session:
                for name, ids in self.manifest.deleted.items():
                    await session.execute(delete(metadata.tables[name]).where(metadata.tables[name].c.id.in_(ids)))
                await session.commit()

    async def _upload_repositories(self) -> None:
        """Uploads all packs, if the repositories are in a bucket; the folders stay as copies. Otherwise they are where they belong."""
        if not isinstance(self._data.repositories, RepositoryCache):
            return
        paths = sorted(self._data.repositories.root.glob("[0-9]*.git"))
        for number, path in enumerate(paths):
            self._uploaded.append(await self._data.repositories.publish_staged(path))
            self._progress("uploading repositories", number + 1, len(paths))

    async def finish(self) -> None:
        """Migrates the database, inserts the rows of uploaded packs, and creates the repositories of projects without objects."""
        database = self._data.database
        # The dump may be older than the table of packs.
        await asyncio.to_thread(migrations.upgrade, database.url.render_as_string(hide_password=False))
        async with database.write_session() as session:
            for repository in self._uploaded:
                await self._data.repositories.insert_packs(session, int(repository.path.stem), repository.packs)
            await session.commit()
        for project in await integrity.list_projects(self._data.database):
            with contextlib.suppress(FileExistsError):
                Repository.create(self._data.repositories.path_of(project.id)).handle.free()


async def _verify(location: str, s3_settings: Mapping[str, str], progress: ProgressCallback) -> DumpFile:
    report = partial(progress, f"verifying {location}")
    with dump_locations.open_dump(location, s3_settings) as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        reader, secret_files = DumpReader(location, stream), {}
        require_known_revision(reader.head)
        for member in reader.members():
            if member.part == SECRETS and member.size <= MAX_SECRET_BYTES:
                secret_files[member.name] = member.read()
            for _ in member.chunks:
                report(reader.offset, size)
                # A signal cancels only what waits.
                await asyncio.sleep(0)
        report(size, size)
    if reader.manifest is None:
        raise DamagedDump(f"{location} has no manifest")
    return DumpFile(location, size, reader.manifest, secret_files)


def _unpack(member: DumpMember) -> bytes:
    try:
        unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        lines = unpacker.decompress(member.read(), MAX_CHUNK_BYTES)
    except zlib.error:
        lines, unpacker = b"", None
    if unpacker is None or not unpacker.eof:
        raise DamagedDump(f"the rows of {member.part} cannot be unpacked")
    return lines


def _format_time(head: DumpHead) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(head.taken_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
