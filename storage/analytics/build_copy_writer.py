"""Writes the columnar copy of builds from the database.

The position in the log is taken before the builds are read, in chunks and without a long transaction: a build that changes meanwhile is in
the log after the position, and is read again by every process that opens the file.
"""

import asyncio
import contextlib
import fcntl
import os
import secrets
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from storage.analytics import build_source
from storage.analytics.build_copy import SETTINGS, CopyOutdated, CopyPointer, publish
from storage.analytics.build_source import COLUMNS, CopyPosition
from storage.analytics.derived_columns import with_derived_columns
from storage.database.engine import Database
from storage.tables.builds.build_changes import TRIGGERS

CHUNK_IDS = 100_000
MEMORY_LIMIT = "384MB"
SORTING_THREADS = 2
"""One thread loads while the database reads. When everything has been read, the core of the database is free."""
LOCK_NAME = "rebuild.lock"

ProgressReport = Callable[[int, int], None]
"""Called with the number of builds that were read, and the number of all."""


class RebuildRunning(Exception):
    """Another process writes the copy in this folder."""


class _BuildReader(Protocol):
    """A connection from which builds are read."""

    async def row(self, sql: str) -> tuple[Any, ...]: ...
    async def names(self, sql: str) -> set[str]: ...
    async def execute(self, sql: str) -> None: ...
    async def write_csv(self, first: int, last: int, path: Path) -> None: ...


class _SqliteBuildReader:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def row(self, sql: str) -> tuple[Any, ...]:
        return tuple(self._connection.execute(sql).fetchone())

    async def names(self, sql: str) -> set[str]:
        return {str(name) for (name,) in self._connection.execute(sql)}

    async def execute(self, sql: str) -> None:
        self._connection.execute(sql)

    async def write_csv(self, first: int, last: int, path: Path) -> None:
        with path.open("wb") as file:
            for start in range(first, last + 1, 5_000):
                (lines,) = self._connection.execute(build_source.sqlite_csv(), (start, min(start + 4_999, last))).fetchone()
                if lines is not None:
                    file.write(lines.encode())
                    file.write(b"\n")


class _PostgresBuildReader:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def row(self, sql: str) -> tuple[Any, ...]:
        return tuple(await self._connection.fetchrow(sql))

    async def names(self, sql: str) -> set[str]:
        return {str(row[0]) for row in await self._connection.fetch(sql)}

    async def execute(self, sql: str) -> None:
        await self._connection.execute(sql)

    async def write_csv(self, first: int, last: int, path: Path) -> None:
        await self._connection.copy_from_query(build_source.postgresql_rows(first, last), output=path, format="csv")


@asynccontextmanager
async def _open_reader(database: Database) -> AsyncIterator[_BuildReader]:
    if database.dialect == "sqlite":
        with contextlib.closing(sqlite3.connect(str(database.url.database), timeout=30, isolation_level=None)) as connection:
            yield _SqliteBuildReader(connection)
        return
    connection = await database.connect_unpooled(statement_timeout="60000")
    try:
        yield _PostgresBuildReader(connection)
    finally:
        await connection.close()


async def read_identity(database: Database) -> str:
    """Identifies the history of the database: a copy of another one is useless. Raises the driver's errors."""
    async with database.read_session() as session:
        ((identity,),) = await session.fetch(build_source.DATABASE_IDENTITY[database.dialect], ())
    return str(identity)


async def write_copy(database: Database, folder: Path, report: ProgressReport) -> CopyPointer:
    """Writes and publishes a copy. Call it in an event loop of its own, in a thread, because it blocks.

    Raises RebuildRunning, CopyOutdated if the database does not log changes, OSError, duckdb.Error, and the errors of the driver.
    """
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - this runs in a thread of its own
    with (folder / LOCK_NAME).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RebuildRunning from None
        work = folder / "rebuild"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            async with _open_reader(database) as reader:
                pointer = await _write_file(reader, database.dialect, folder, work, report)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        publish(folder, pointer)
        return pointer


async def _write_file(reader: _BuildReader, dialect: str, folder: Path, work: Path, report: ProgressReport) -> CopyPointer:
    import duckdb

    if not await reader.names(build_source.TRIGGER_NAMES[dialect]) >= TRIGGERS:
        raise CopyOutdated("the database has no triggers that log changes of builds")
    (identity,) = await reader.row(build_source.DATABASE_IDENTITY[dialect])
    await reader.execute(build_source.INSERT_ANCHOR[dialect])
    position = CopyPosition(*await reader.row(build_source.CURRENT_POSITION[dialect]))
    first, last, total = await reader.row(build_source.ID_RANGE)
    report(0, total)
    path = work / f"builds-{secrets.token_hex(8)}.duckdb"
    settings = {**SETTINGS, "memory_limit": MEMORY_LIMIT, "temp_directory": str(work / "temporary"), "preserve_insertion_order": "false"}
    with contextlib.closing(duckdb.connect(config=settings)) as connection:
        connection.execute(f"ATTACH '{_quote(path)}' AS target")
        connection.execute(f"ATTACH '{_quote(work / 'unsorted.duckdb')}' AS staging")
        connection.execute(f"CREATE TABLE staging.builds ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())})")
        await _load_builds(connection, reader, (first, last), work, lambda done: report(min(done, total), total))
        connection.execute(f"SET threads = {SORTING_THREADS}")
        # A query of one project reads few row groups. Quantiles by day, of durations that are sorted, take a fifth less.
        order = "project_id, created_day, duration, id"
        finished = f"{with_derived_columns('staging.builds')} WHERE finished_at IS NOT NULL ORDER BY {order}"
        connection.execute(f"CREATE TABLE target.builds AS {finished}")
        connection.execute("CREATE TABLE target.unfinished_builds AS SELECT * FROM staging.builds WHERE finished_at IS NULL ORDER BY id")
        ((rows, max_id),) = connection.execute("SELECT count(*), coalesce(max(id), 0) FROM staging.builds").fetchall()
        connection.execute("CHECKPOINT target")
        connection.execute("DETACH target")
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    path.replace(folder / path.name)
    return CopyPointer(path.name, identity, rows, max_id, position.change_id, position.token, position.snapshot)


async def _load_builds(
    connection: Any, reader: _BuildReader, ids: tuple[int, int], work: Path, report_count: Callable[[int], None]
) -> None:
    """Reads the builds with these ids in chunks. DuckDB loads each chunk while the database writes the next one."""
    loop = asyncio.get_running_loop()

    def load(path: Path) -> int:
        ((inserted,),) = connection.execute(f"INSERT INTO staging.builds {build_source.read_csv(str(path))}").fetchall()
        path.unlink()
        return int(inserted)

    done, loading = 0, None
    try:
        for number, start in enumerate(range(ids[0], ids[1] + 1, CHUNK_IDS)):
            chunk = work / f"chunk{number % 2}.csv"
            await reader.write_csv(start, min(start + CHUNK_IDS - 1, ids[1]), chunk)
            if loading is not None:
                done += await loading
                report_count(done)
            loading = loop.run_in_executor(None, load, chunk) if chunk.stat().st_size else None
        if loading is not None:
            report_count(done + await loading)
    finally:
        if loading is not None and not loading.done():
            # Its connection is closed next.
            await asyncio.wait([loading])


def _quote(path: Path) -> str:
    return str(path).replace("'", "''")
