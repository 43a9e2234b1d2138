"""The log of changed builds, from which the columnar copy of builds is kept up to date.

Triggers of the database write it, so that nothing that changes builds can bypass it: cascades of deletions, imports, older versions of the
program on other hosts. The table `changes` has only changes of status that subscribers receive, and loses them with the build.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Connection, Index, Select, TextClause, event, func, select, text
from sqlmodel import Field, col

from storage.database.column_types import metadata
from storage.tables.base import Row, partial_index

MAX_LOGGED = 500_000
"""Number of rows that are retained. A copy that is older is rebuilt."""
MAX_PRUNED = 50_000
"""Number of rows that one statement deletes."""
PRUNED = -1
"""The build of rows that say up to which transaction the log was pruned; PostgreSQL only."""
TRIGGERS = frozenset(("log_build_insert", "log_build_update", "log_build_delete"))
_COLUMNS = (
    "project_id, current_id, attempt, name, stage, ref, status, user_id, coverage, created_at, started_at, finished_at, sha, allow_failure"
)
_LOG = (
    "INSERT INTO build_changes (build_id, transaction_id, token)"
    " SELECT {0}, pg_current_xact_id()::text::bigint, (random() * 9007199254740992)::bigint"
)


class BuildChange(Row, table=True):
    """A build that was inserted, updated in a column of the copy, or deleted.

    `transaction_id` is that of PostgreSQL, null on SQLite, whose ids are in the order of commits. `token` is random: a copy that knows the
    token of its last change detects that the database was replaced by another one.
    """

    __tablename__ = "build_changes"
    __table_args__: Any = (
        Index("ix_build_changes_transaction_id", "transaction_id", **partial_index("transaction_id IS NOT NULL")),
        {"sqlite_autoincrement": True},
    )

    build_id: int
    transaction_id: int | None = Field(default=None, sa_type=BigInteger)
    token: int = Field(sa_type=BigInteger)


def prune(dialect: str, max_logged: int | None = None) -> TextClause:
    """Deletes at most MAX_PRUNED of the oldest rows; the newest `max_logged` are retained, by default MAX_LOGGED.

    On PostgreSQL a transaction may commit late rows with low ids. So it deletes only rows that every later snapshot includes, and inserts a
    row of the build PRUNED with the newest of their transactions: a copy whose snapshot may not include that one is out of date.
    """
    oldest = "id <= (SELECT max(id) FROM build_changes) - :max_logged AND id < (SELECT min(id) FROM build_changes) + :limit"
    if dialect == "sqlite":
        statement = f"DELETE FROM build_changes WHERE {oldest}"  # noqa: S608 - constants
    else:
        statement = (
            f"WITH pruned AS (DELETE FROM build_changes WHERE {oldest}"  # noqa: S608 - constants
            " AND transaction_id < pg_snapshot_xmin(pg_current_snapshot())::text::bigint RETURNING transaction_id)"
            f" INSERT INTO build_changes (build_id, transaction_id, token) SELECT {PRUNED}, max(transaction_id),"
            " (random() * 9007199254740992)::bigint FROM pruned HAVING count(*) > 0"
        )
    return text(statement).bindparams(max_logged=MAX_LOGGED if max_logged is None else max_logged, limit=MAX_PRUNED)


def id_range() -> Select[Any]:
    """Selects the lowest and the highest id of the log, each from its index; null without rows."""
    lowest, highest = (select(each(col(BuildChange.id))).scalar_subquery() for each in (func.min, func.max))
    return select(lowest, highest)


def trigger_statements(dialect: str) -> Sequence[str]:
    """Statements that create the triggers, as the revisions of the schema leave them.

    On PostgreSQL insertions and deletions are logged once a statement. Updates are not: `UPDATE OF` excludes a transition table there.
    """
    if dialect == "sqlite":
        events = (("insert", "INSERT", "new"), ("update", f"UPDATE OF {_COLUMNS}", "new"), ("delete", "DELETE", "old"))
        return [
            f"CREATE TRIGGER log_build_{name} AFTER {each} ON builds"  # noqa: S608 - constants
            f" BEGIN INSERT INTO build_changes (build_id, token) VALUES ({row}.id, random()); END"
            for name, each, row in events
        ]
    each_row = f"BEGIN {_LOG.format('NEW.id')}; RETURN NULL; END"
    each_statement = f"BEGIN {_LOG.format('id')} FROM changed_builds; RETURN NULL; END"
    return [
        f"CREATE FUNCTION log_build_change() RETURNS trigger LANGUAGE plpgsql AS $$ {each_row} $$",
        f"CREATE FUNCTION log_build_changes() RETURNS trigger LANGUAGE plpgsql AS $$ {each_statement} $$",
        f"CREATE TRIGGER log_build_update AFTER UPDATE OF {_COLUMNS} ON builds FOR EACH ROW EXECUTE FUNCTION log_build_change()",
        *(
            f"CREATE TRIGGER log_build_{name.lower()} AFTER {name} ON builds"
            f" REFERENCING {rows} TABLE AS changed_builds FOR EACH STATEMENT EXECUTE FUNCTION log_build_changes()"
            for name, rows in (("INSERT", "NEW"), ("DELETE", "OLD"))
        ),
    ]


@event.listens_for(metadata, "after_create")
def _create_triggers(target: Any, connection: Connection, **options: Any) -> None:
    if {"builds", "build_changes"} <= {table.name for table in options["tables"]}:
        for statement in trigger_statements(connection.dialect.name):
            connection.exec_driver_sql(statement)
