"""SQL of both databases that reads builds and their log for the columnar copy.

Timestamps are microseconds since 1970, infinite ones those of `storage/database/dialects.py`. Coverage is in millionths of a per cent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from storage.tables.builds.build_changes import PRUNED

COLUMNS: dict[str, str] = {
    "id": "BIGINT",
    "project_id": "BIGINT",
    "is_current": "BOOLEAN",
    "attempt": "BIGINT",
    "name": "VARCHAR",
    "stage": "VARCHAR",
    "ref": "VARCHAR",
    "status": "VARCHAR",
    "user_id": "BIGINT",
    "coverage": "BIGINT",
    "created_at": "BIGINT",
    "started_at": "BIGINT",
    "finished_at": "BIGINT",
    "sha": "VARCHAR",
    "allow_failure": "BOOLEAN",
}
"""The columns of the copy and their types in DuckDB."""

MIN_MICROSECONDS, MAX_MICROSECONDS = -62135596800000000, 253402300799999999
"""The first and the last timestamp of Python, which stand for infinite ones."""

_STRINGS = ("name", "stage", "ref", "sha")
"""Those that may have any characters."""
_NUMBERS = ("id", "project_id", "is_current", "attempt", "allow_failure")
"""Those that are never null, which SQLite formats sooner than other values."""
_TIMESTAMPS = ("created_at", "started_at", "finished_at")


def _sqlite_expressions() -> dict[str, str]:
    found = {name: f"b.{name}" for name in COLUMNS}
    found["is_current"] = "(b.current_id IS NULL)"
    found["coverage"] = "CAST(b.coverage * 1000000 + 0.5 AS INTEGER)"
    for name in _TIMESTAMPS:
        found[name] = f"(CAST(strftime('%s', substr(b.{name}, 1, 19)) AS INTEGER) * 1000000 + substr(b.{name}, 21, 6))"
    return found


def _postgresql_expressions() -> dict[str, str]:
    found = {name: f"b.{name}" for name in COLUMNS}
    found["is_current"] = "(b.current_id IS NULL)"
    found["coverage"] = "CAST(floor(b.coverage * 1000000 + 0.5) AS BIGINT)"
    for name in _TIMESTAMPS:
        found[name] = (
            f"CASE b.{name} WHEN 'infinity' THEN {MAX_MICROSECONDS} WHEN '-infinity' THEN {MIN_MICROSECONDS}"
            f" ELSE CAST(extract(epoch FROM b.{name}) * 1000000 AS BIGINT) END"
        )
    return found


_EXPRESSIONS = {"sqlite": _sqlite_expressions(), "postgresql": _postgresql_expressions()}


@dataclass(frozen=True, slots=True)
class CopyPosition:
    """Up to where the log of changes was read: the id and the token of its last row, and on PostgreSQL the snapshot that showed it."""

    change_id: int
    token: int
    snapshot: str = ""


CURRENT_POSITION = {
    "sqlite": "SELECT id, token, '' FROM build_changes ORDER BY id DESC LIMIT 1",
    "postgresql": "SELECT id, token, pg_current_snapshot()::text FROM build_changes ORDER BY id DESC LIMIT 1",
}
INSERT_ANCHOR = {
    "sqlite": "INSERT INTO build_changes (build_id, token) SELECT 0, random() WHERE NOT EXISTS (SELECT 1 FROM build_changes)",
    "postgresql": (
        "INSERT INTO build_changes (build_id, transaction_id, token) SELECT 0, pg_current_xact_id()::text::bigint,"
        " (random() * 9007199254740992)::bigint WHERE NOT EXISTS (SELECT 1 FROM build_changes)"
    ),
}
"""Inserts a row of no build if the log is empty, because a position is a row."""
DATABASE_IDENTITY = {
    "sqlite": "SELECT 'sqlite'",
    # A restored or promoted server begins a new timeline, and may use numbers of transactions again.
    "postgresql": (
        "SELECT (SELECT system_identifier FROM pg_control_system())::text || ':' || (SELECT oid FROM pg_database WHERE datname ="
        " current_database())::text || ':' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
    ),
}
TRIGGER_NAMES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": "SELECT tgname::text FROM pg_trigger WHERE tgrelid = 'builds'::regclass AND NOT tgisinternal AND tgenabled <> 'D'",
}
ID_RANGE = "SELECT coalesce(min(id), 0), coalesce(max(id), -1), count(*) FROM builds"


def changed_builds(dialect: str, position: CopyPosition, limit: int) -> tuple[str, Sequence[Any]]:
    """SQL that reads the builds changed since a position, as one statement: one snapshot on both databases.

    The rows are: newest change of the build, its token, the snapshot, the build's id, and COLUMNS, which are null for a deleted build. One
    row with build id 0 is the change of the position itself; it is absent if the log no longer has all changes after the position.
    """
    columns = ", ".join(f"{expression} AS {name}" for name, expression in _EXPRESSIONS[dialect].items())
    pruned = ""
    values: list[Any] = [position.change_id, position.change_id, limit]
    anchor, last, snapshot, condition = "?", "?", "''", "id > ?"
    if dialect == "postgresql":
        values = [position.change_id, position.snapshot, limit]
        anchor, last, snapshot = "$1", "$3", "pg_current_snapshot()::text"
        condition = (
            "transaction_id >= pg_snapshot_xmin($2::text::pg_snapshot)::text::bigint"
            " AND NOT pg_visible_in_snapshot(transaction_id::text::xid8, $2::text::pg_snapshot)"
        )
        # A pruned transaction that the snapshot may not include; those before all running ones were included.
        later = "transaction_id >= pg_snapshot_xmin($2::text::pg_snapshot)::text::bigint"
        pruned = f" AND NOT EXISTS (SELECT 1 FROM build_changes WHERE build_id = {PRUNED} AND {later})"  # noqa: S608 - constants
    newest = f"SELECT build_id, max(id) AS change_id FROM build_changes WHERE {condition} AND build_id > 0 GROUP BY build_id"  # noqa: S608
    found = f"SELECT 0 AS build_id, id AS change_id FROM build_changes WHERE id = {anchor}{pruned}"  # noqa: S608 - constants
    sql = (
        f"SELECT n.change_id, c.token, {snapshot}, n.build_id, {columns} FROM ({found} UNION ALL {newest} LIMIT {last}) n"  # noqa: S608
        " JOIN build_changes c ON c.id = n.change_id LEFT JOIN builds b ON b.id = n.build_id"
    )
    return sql, values


CSV_OPTIONS = "header = false, auto_detect = false, quote = '\"', escape = '\"', nullstr = '', allow_quoted_nulls = false, new_line = '\\n'"
"""How DuckDB reads the CSV of both databases: nulls are empty, strings are quoted."""


def read_csv(path: str) -> str:
    """SQL of DuckDB that reads the builds of a CSV file. It parses timestamps, because that takes the databases longer."""
    kinds = {name: "TIMESTAMP" if name in _TIMESTAMPS else kind for name, kind in COLUMNS.items()}
    types = ", ".join(f"'{name}': '{kind}'" for name, kind in kinds.items())
    cells = [_microseconds_of(name) if name in _TIMESTAMPS else name for name in COLUMNS]
    quoted = path.replace("'", "''")
    return f"SELECT {', '.join(cells)} FROM read_csv('{quoted}', columns = {{{types}}}, parallel = false, {CSV_OPTIONS})"  # noqa: S608


def _microseconds_of(name: str) -> str:
    infinite = f"WHEN {name} > TIMESTAMP '1970-01-01' THEN {MAX_MICROSECONDS} WHEN {name} IS NOT NULL THEN {MIN_MICROSECONDS}"
    return f"CASE WHEN isfinite({name}) THEN epoch_us({name}) {infinite} END"


def sqlite_csv() -> str:
    """SQL that returns the builds of a range of ids as one string of CSV lines."""
    found = {**_EXPRESSIONS["sqlite"], **{name: f"b.{name}" for name in _TIMESTAMPS}}
    line = ",".join('"%w"' if name in _STRINGS else "%d" if name in _NUMBERS else "%s" for name in COLUMNS)
    cells = f"printf('{line}', {', '.join(found.values())})"
    # A literal, because a function would be called for each row.
    return f"SELECT group_concat({cells}, '\n') FROM builds b WHERE b.id BETWEEN ? AND ?"  # noqa: S608 - constants


def postgresql_rows(first: int, last: int) -> str:
    """SQL that returns the builds of a range of ids, for COPY."""
    found = {**_EXPRESSIONS["postgresql"], **{name: f"b.{name} AT TIME ZONE 'UTC'" for name in _TIMESTAMPS}}
    return f"SELECT {', '.join(found.values())} FROM builds b WHERE b.id BETWEEN {int(first)} AND {int(last)}"  # noqa: S608 - numbers
