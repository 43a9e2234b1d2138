"""The columnar copy of builds: an immutable DuckDB file, and in memory what has changed since it was written.

DuckDB lets several processes read a file only while none writes it. So a file is written once, under a name of its own, and then published
by renaming a small file that names it (`current.json`). Each server process reads the file, and keeps the changed builds in memory: the
log of changes (`storage/tables/builds/build_changes.py`) is read before each answer and every second, so an answer shows what the database
has. A process that is killed leaves a file that was published as a whole, or one that nobody reads.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from storage.analytics.build_source import COLUMNS, CopyPosition
from storage.analytics.build_statistics import CopyStatement, MomentRange
from storage.analytics.derived_columns import with_derived_columns

COPY_FORMAT = 3
"""Increases with every change of the columns."""
POINTER_NAME = "current.json"
FILE_PATTERN = "builds-*.duckdb"
MEMORY_LIMIT = "192MB"
MAX_CHANGED_BUILDS = 20_000
"""With more builds changed since the file was written, it is rebuilt."""
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    # Returns memory to the system after a query, some ten bytes for each build that it counted.
    "allocator_background_threads": "true",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


class CopyOutdated(Exception):
    """The copy cannot be brought up to date from the log: it must be rebuilt."""


@dataclass(frozen=True, slots=True)
class CopyPointer:
    """The contents of `current.json`: the published file, and what it has. `identity` is that of the database."""

    file: str
    identity: str
    rows: int
    max_id: int
    change_id: int
    token: int
    snapshot: str
    format: int = COPY_FORMAT

    @property
    def position(self) -> CopyPosition:
        return CopyPosition(self.change_id, self.token, self.snapshot)


def read_pointer(folder: Path) -> CopyPointer | None:
    """Returns what is published in a folder; None if there is nothing, or it has another format."""
    try:
        pointer = CopyPointer(**orjson.loads((folder / POINTER_NAME).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    is_usable = pointer.format == COPY_FORMAT and (folder / pointer.file).is_file() and pointer.file == Path(pointer.file).name
    return pointer if is_usable else None


def publish(folder: Path, pointer: CopyPointer) -> None:
    """Publishes a file that is complete and synced, and removes the other ones; processes that read them can go on."""
    temporary = folder / f"{POINTER_NAME}.{os.getpid()}"
    temporary.write_bytes(orjson.dumps(asdict(pointer)))
    temporary.replace(folder / POINTER_NAME)
    for path in folder.glob(FILE_PATTERN):
        if path.name != pointer.file:
            path.unlink(missing_ok=True)


@dataclass(slots=True, eq=False)
class RunningQuery:
    """Identifies a call of `BuildCopy.fetch`."""

    is_canceled: bool = False


class BuildCopy:
    """An opened copy. Its methods block, and only one thread at a time may call them; any thread may call `cancel`.

    `version` increases when rows change. Constructing it raises duckdb.Error if the file is broken.
    """

    def __init__(self, folder: Path, pointer: CopyPointer) -> None:
        # Loading the library takes 20 MB and a tenth of a second, which only processes that answer statistics need.
        import duckdb

        self.pointer = pointer
        self.position = pointer.position
        self.version = 0
        self._query_lock = threading.Lock()
        self._query: RunningQuery | None = None
        """What `fetch` computes now."""
        self._changed_ids: set[int] = set()
        self._row_difference = 0
        """How many more rows there are than in the file."""
        self._replaces_finished = False
        """Whether a build that has changed is among the finished ones of the file, which are then read without it."""
        self._connection = duckdb.connect(config={**SETTINGS, "memory_limit": MEMORY_LIMIT, "temp_directory": str(folder / "temporary")})
        path = str(folder / pointer.file).replace("'", "''")
        try:
            self._connection.execute(f"ATTACH '{path}' AS base (READ_ONLY)")
            columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
            self._connection.execute(f"CREATE TABLE changed_builds ({columns})")
            self._connection.execute("CREATE TABLE replaced_ids (id BIGINT)")
            self._finished_count, self._unfinished_count = (
                self._connection.execute(f"SELECT count(*) FROM base.{table}").fetchall()[0][0]  # noqa: S608 - constants
                for table in ("builds", "unfinished_builds")
            )
            self._moments = self._read_moments()
        except BaseException:
            self._connection.close()
            raise
        rows = self._finished_count + self._unfinished_count
        if rows != pointer.rows:
            self._connection.close()
            raise CopyOutdated(f"the file has {rows} rows, not {pointer.rows}")

    @property
    def row_count(self) -> int:
        """The number of builds; lower by those that were committed after the file with an id below the file's last one."""
        return self.pointer.rows + self._row_difference

    def apply(self, rows: Sequence[Sequence[Any]]) -> None:
        """Applies rows of `build_source.changed_builds`, which were read after `position`. Raises CopyOutdated."""
        anchors = [row for row in rows if row[3] == 0]
        if len(anchors) != 1 or (anchors[0][0], anchors[0][1]) != (self.position.change_id, self.position.token):
            raise CopyOutdated("the log of changes no longer has the last change that was read")
        changed = [row for row in rows if row[3] != 0]
        if changed:
            self._replace_builds(changed)
            self.version += 1
        change_id, token, snapshot, *_ = max(rows, key=lambda row: int(row[0]))
        self.position = CopyPosition(change_id, token, snapshot)

    def _replace_builds(self, changed: Sequence[Sequence[Any]]) -> None:
        ids = [row[3] for row in changed]
        self._changed_ids.update(ids)
        if len(self._changed_ids) > MAX_CHANGED_BUILDS:
            raise CopyOutdated(f"more than {MAX_CHANGED_BUILDS} builds have changed since the file was written")
        columns = list(zip(*(row[4:] for row in changed if row[4] is not None), strict=True))
        execute = self._connection.execute
        execute("BEGIN")
        execute("DELETE FROM changed_builds WHERE id IN (SELECT unnest(?::BIGINT[]))", [ids])
        if columns:
            values = ", ".join(f"unnest(?::{kind}[])" for kind in COLUMNS.values())
            execute(f"INSERT INTO changed_builds SELECT {values}", [list(column) for column in columns])
        # Newer builds are not in the file.
        replaced = [number for number in ids if number <= self.pointer.max_id]
        if replaced:
            execute("DELETE FROM replaced_ids WHERE id IN (SELECT unnest(?::BIGINT[]))", [replaced])
            execute("INSERT INTO replaced_ids SELECT unnest(?::BIGINT[])", [replaced])
            known = "SELECT count(*) FROM replaced_ids WHERE id NOT IN (SELECT id FROM base.unfinished_builds)"
            self._replaces_finished = execute(known).fetchall() != [(0,)]
        execute("COMMIT")
        for name, (first, last) in self._moments.items():
            moments = [value for value in columns[list(COLUMNS).index(name)] if value is not None] if columns else []
            self._moments[name] = (min([first, *moments]), max([last, *moments]))
        ((difference,),) = execute("SELECT (SELECT count(*) FROM changed_builds) - (SELECT count(*) FROM replaced_ids)").fetchall()
        self._row_difference = difference

    def fetch(self, compile_statement: Callable[[Mapping[str, MomentRange]], CopyStatement], query: RunningQuery) -> list[Any]:
        """Runs a SELECT on the builds, which it names `{builds}`. Raises duckdb.Error.

        `compile_statement` receives the first and the last moment of each column of timestamps. A canceled query has no rows.
        """
        statement = compile_statement(self._moments)
        sql = statement.sql.replace("{builds}", self._builds(statement.now))
        with self._query_lock:
            self._query = query
        try:
            return [] if query.is_canceled else self._connection.execute(sql, statement.parameters).fetchall()
        except Exception:
            if query.is_canceled:
                return []
            raise
        finally:
            # Under the lock, so that the interrupt of this query cannot meet the next one.
            with self._query_lock:
                self._query = None

    def cancel(self, query: RunningQuery) -> None:
        """Has `fetch` end without the rows of this query.

        It has no effect on a statement that is being prepared, and must be repeated.
        """
        with self._query_lock:
            query.is_canceled = True
            if self._query is query:
                self._connection.interrupt()

    def _builds(self, now: int) -> str:
        """The current builds with their derived columns, as a subquery."""
        others = " WHERE id NOT IN (SELECT id FROM replaced_ids)"
        parts = [f"SELECT * FROM base.builds{others if self._replaces_finished else ''}"]  # noqa: S608 - constants
        if self._unfinished_count:
            parts.append(with_derived_columns("base.unfinished_builds", now) + (others if self._changed_ids else ""))
        if self._changed_ids:
            parts.append(with_derived_columns("changed_builds", now))
        return f"({' UNION ALL '.join(parts)})"

    def _read_moments(self) -> dict[str, MomentRange]:
        """The first and the last moment of each column of timestamps by which builds are grouped; (0, 0) if there is none."""
        found = {}
        for name in ("created_at", "finished_at"):
            tables = " UNION ALL ".join(f"SELECT {name} FROM base.{table}" for table in ("builds", "unfinished_builds"))  # noqa: S608
            sql = f"SELECT coalesce(min({name}), 0), coalesce(max({name}), 0) FROM ({tables})"  # noqa: S608 - constants
            ((first, last),) = self._connection.execute(sql).fetchall()
            found[name] = (first, last)
        return found

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._connection.close()
