"""Dumps an instance while it is used: the rows of one snapshot, then the files that they name."""

import contextlib
import gzip
import secrets
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

import orjson
from sqlalchemy import Table

from storage import migrations
from storage.database.engine import Database
from storage.dump import bucket_repository_parts, portable_rows, repository_parts
from storage.dump.dump_format import FORMAT_VERSION, DumpError, DumpHead, Manifest, TableEntry
from storage.dump.dump_writer import DumpOutput, DumpWriter
from storage.dump.snapshots import DatabaseSnapshot, open_snapshot
from storage.dump.stored_file_parts import FILE_COLUMNS, NamedFile, StoredFileDump, record_missing
from storage.git.importing.repository_import import ProgressCallback
from storage.git.packing.pack_transfer import PackLost, PacksUnavailable
from storage.git.repositories import Repositories
from storage.git.repository import NotARepository
from storage.git.repository_cache import RepositoryCache
from storage.objects.object_store import ObjectStore
from storage.objects.uploads import UploadStore
from storage.tables import metadata

CHUNK_IDS = 1_000
"""Ids whose rows are one chunk, so that the chunks of rows that have not changed stay the same."""
MAX_CHUNK_BYTES = 4 * 2**20
"""Of lines; a chunk with longer rows is divided."""
CHUNK_FILE = "rows.jsonl.gz"
COMPRESSION_LEVEL = 3
TABLES = "tables"
SECRETS = "secrets"
PROJECTS = "projects"
LOCATION_TABLES = frozenset(
    ("build_changes", "hosts", "instance_identity", "job_leases", "packs", "repack_leases", "row_counts", "schema_compatibility")
)
"""Tables that say where an instance is stored, or that triggers fill, not what it contains; the restored instance has its own."""


@dataclass(frozen=True, slots=True)
class InstanceData:
    """Where the data of an instance lie. `buckets` are the stores of those that are in buckets, by their names."""

    database: Database
    repositories: Repositories
    uploads: UploadStore
    objects: ObjectStore
    buckets: Mapping[str, ObjectStore]


class InstanceDump:
    """Writes a dump of an instance, or, with the manifest of an earlier dump, what differs from it.

    `product` is the version of the program. `secret_files` are written if there are any: the contents of the files with keys, by name.
    """

    def __init__(
        self,
        data: InstanceData,
        *,
        product: str,
        key_fingerprint: str,
        secret_files: Mapping[str, bytes],
        earlier: Manifest | None = None,
        progress: ProgressCallback,
    ) -> None:
        self._data = data
        self._product = product
        self._key_fingerprint = key_fingerprint
        self._secret_files = secret_files
        self._earlier = earlier
        self._progress = progress

    async def write(self, output: DumpOutput) -> tuple[Manifest, int]:
        """Writes the dump; returns its manifest and its size in bytes. Raises DumpError, OSError, and the errors of the driver."""
        with contextlib.ExitStack() as files:
            # The rows that name files would not fit into memory.
            names = {table: files.enter_context(tempfile.TemporaryFile()) for table in FILE_COLUMNS}
            projects = files.enter_context(tempfile.TemporaryFile())
            async with open_snapshot(self._data.database) as snapshot:
                writer, manifest = await self._begin(snapshot, output)
                await self._add_tables(snapshot, writer, manifest, names)
                await self._list_projects(snapshot, projects)
            await self._add_repositories(writer, manifest, projects)
            stored = StoredFileDump(writer, manifest, self._data.database, self._data.objects, self._data.uploads)
            for table in FILE_COLUMNS:
                rows = (NamedFile(*values) for values in _read_names(names[table]))
                await stored.add(table, rows, partial(self._report_files, table, manifest.tables[table].rows))
        manifest.parts = writer.parts
        writer.finish(manifest)
        return manifest, writer.written_bytes

    def _report_files(self, table: str, total: int, done: int) -> None:
        self._progress(f"files of {table}", done, total)

    async def _begin(self, snapshot: DatabaseSnapshot, output: DumpOutput) -> tuple[DumpWriter, Manifest]:
        revision = await snapshot.revision()
        if revision != migrations.newest_revision():
            raise DumpError(
                f"the database is at revision {revision}, this program needs {migrations.newest_revision()}."
                " Start the service once, which migrates it"
            )
        earlier = self._earlier
        head = DumpHead(
            format=FORMAT_VERSION,
            id=secrets.token_hex(8),
            since=earlier.head.id if earlier else None,
            taken_at=int(time.time()),
            product=self._product,
            revision=revision,
        )
        chain = [*earlier.chain, earlier.head] if earlier else []
        manifest = Manifest(head, chain, self._data.database.dialect, self._key_fingerprint)
        writer = DumpWriter(output, head, earlier)
        if self._secret_files:
            with writer.add_part(SECRETS) as part:
                for name, content in self._secret_files.items():
                    part.begin_file(name, len(content))
                    part.write(content)
                    part.end_file()
        return writer, manifest

    async def _add_tables(self, snapshot: DatabaseSnapshot, writer: DumpWriter, manifest: Manifest, names: Mapping[str, IO[bytes]]) -> None:
        tables = sorted((table for name, table in metadata.tables.items() if name not in LOCATION_TABLES), key=lambda table: table.name)
        counts = {table.name: await snapshot.count(table) for table in tables}
        total, done = sum(counts.values()), 0
        for table in tables:
            columns = portable_rows.columns_of(table)
            encoders = portable_rows.encoders([kind for _, kind in columns], self._data.database.dialect)
            file, positions = names.get(table.name), [table.columns.keys().index(name) for name in FILE_COLUMNS.get(table.name, ())]
            chunks = _ChunkWriter(writer, table)
            async for rows in snapshot.rows(table):
                for row in rows:
                    chunks.add(row[chunks.key_position], portable_rows.encode(row, encoders))
                    if file is not None:
                        file.write(orjson.dumps([row[position] for position in positions], option=orjson.OPT_APPEND_NEWLINE))
                done += len(rows)
                self._progress("rows", done, total)
            chunks.flush()
            manifest.tables[str(table.name)] = TableEntry(columns, counts[table.name], await snapshot.sequence(table))

    async def _list_projects(self, snapshot: DatabaseSnapshot, file: IO[bytes]) -> None:
        in_bucket = isinstance(self._data.repositories, RepositoryCache)
        async for rows in snapshot.stream(bucket_repository_parts.STATEMENT if in_bucket else repository_parts.REFS_STATEMENT):
            file.writelines(orjson.dumps(list(row), option=orjson.OPT_APPEND_NEWLINE) for row in rows)

    async def _add_repositories(self, writer: DumpWriter, manifest: Manifest, names: IO[bytes]) -> None:
        repositories, total = self._data.repositories, manifest.tables[PROJECTS].rows
        add: Callable[[int, Any], Awaitable[None]]
        projects: Iterable[tuple[int, Any]]
        if isinstance(repositories, RepositoryCache):
            repositories.root.mkdir(mode=0o700, exist_ok=True)
            projects = bucket_repository_parts.read_projects(_read_names(names))
            add = partial(bucket_repository_parts.add_repository, writer, manifest, repositories)
        else:
            projects = repository_parts.read_projects(_read_names(names))
            add = partial(self._add_folder, writer, manifest)
        for number, (project_id, stored) in enumerate(projects):
            self._progress("repositories", number, total)
            try:
                await add(project_id, stored)
            except PackLost as error:
                await record_missing(manifest, self._data.database, PROJECTS, project_id, str(error))
            except PacksUnavailable as error:
                raise DumpError(str(error)) from error
            except NotARepository as error:
                await record_missing(manifest, self._data.database, PROJECTS, project_id, f"it has no repository: {error}")
        self._progress("repositories", total, total)

    async def _add_folder(self, writer: DumpWriter, manifest: Manifest, project_id: int, refs: Mapping[str, str]) -> None:
        path = self._data.repositories.path_of(project_id)
        repository_parts.add_repository(writer, manifest, path, project_id)
        if problem := repository_parts.describe_missing_objects(path, refs):
            await record_missing(manifest, self._data.database, PROJECTS, project_id, problem)


class _ChunkWriter:
    """Divides the rows of a table into chunks: by the first column of the primary key, and by size."""

    def __init__(self, writer: DumpWriter, table: Table) -> None:
        self.key_position = table.columns.keys().index(next(iter(table.primary_key.columns)).name)
        self._writer = writer
        self._prefix = f"{TABLES}/{table.name}"
        self._lines: list[bytes] = []
        self._bytes = 0
        self._number = 0
        self._division = 0

    def add(self, key: int, line: bytes) -> None:
        number = key // CHUNK_IDS
        if number != self._number or self._bytes + len(line) > MAX_CHUNK_BYTES:
            self.flush()
            self._division = self._division + 1 if number == self._number else 0
            self._number = number
        self._lines.append(line)
        self._bytes += len(line)

    def flush(self) -> None:
        if self._lines:
            # No time in the header: equal rows have equal bytes.
            data = gzip.compress(b"".join(self._lines), COMPRESSION_LEVEL, mtime=0)
            self._writer.add_chunk(f"{self._prefix}/{self._number * CHUNK_IDS:012d}.{self._division}", CHUNK_FILE, data)
            self._lines, self._bytes = [], 0


def _read_names(file: IO[bytes]) -> Iterator[list[Any]]:
    file.seek(0)
    for line in file:
        yield orjson.loads(line)
