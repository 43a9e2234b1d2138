"""Numbers of rows of projects by state, so that no page reads a whole list to count it.

Triggers of the database write them in the transaction that changes the rows, so that nothing bypasses them: cascades of deletions, imports,
older versions of the program on other hosts.

On PostgreSQL a counter is the sum of several rows. A change inserts a row with the difference, so transactions that change the same list
do not wait for each other, and every snapshot has the counters of the rows that it has. One change in MERGE_EVERY replaces older
differences by their sum. SQLite has one writer at a time, and updates one row.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import Connection, Index, String, TextClause, event, func, select, text
from sqlmodel import Field, col

from storage.database.column_types import enum_type, metadata
from storage.tables.base import Row, rows_of

MERGE_EVERY = 32
"""One change in MERGE_EVERY merges the differences of its list, so that a list has a few times as many of them at most."""
MAX_MERGED = 500
"""Number of rows that are merged at once."""


class CountedKind(StrEnum):
    """The names of the tables whose rows are counted."""

    ISSUES = "issues"
    MERGE_REQUESTS = "merge_requests"
    BUILDS = "builds"


class CountedTable(NamedTuple):
    """The column of the state, and the column that is null in counted rows; None: all rows are counted."""

    state: str
    null: str | None = None


COUNTED_TABLES = {
    CountedKind.ISSUES: CountedTable("state"),
    CountedKind.MERGE_REQUESTS: CountedTable("state"),
    # Superseded attempts are not counted.
    CountedKind.BUILDS: CountedTable("status", "current_id"),
}


class RowCount(Row, table=True):
    """A part of the number of rows of a project in a kind with a state; the number is the sum of all parts."""

    __tablename__ = "row_counts"
    __table_args__: Any = (Index("ix_row_counts_project_id_kind", "project_id", "kind"), {"sqlite_autoincrement": True})

    # No foreign key: triggers insert rows while a deletion of the project cascades.
    project_id: int
    kind: CountedKind = Field(sa_type=enum_type(CountedKind))
    state: str = Field(sa_type=String(32))
    number: int


def total() -> Any:
    """The expression of the number of rows that the selected rows of `RowCount` are parts of."""
    return func.coalesce(func.sum(col(RowCount.number)), 0)


def conditions_of(kind: CountedKind) -> tuple[Any, ...]:
    """The conditions of the counters of a kind."""
    return (col(RowCount.kind) == kind,)


def has_state(states: Sequence[str] | None) -> list[Any]:
    """The condition that a counter is of one of these states; None: of any."""
    return [] if states is None else [col(RowCount.state).in_([str(state) for state in states])]


def count_in(project: Any, kind: CountedKind, states: Sequence[str]) -> Any:
    """The number of rows of the project with the columns `project`, as a subquery."""
    found: Any = select(total()).where(col(RowCount.project_id) == project.id, *conditions_of(kind), *has_state(states))
    return found.correlate(rows_of(project)).scalar_subquery()


# What the triggers write


def _condition(counted: CountedTable, row: str = "") -> str:
    return "" if counted.null is None else f"{row}{counted.null} IS NULL"


def _counts_of_tables() -> str:
    selects = []
    for name, counted in COUNTED_TABLES.items():
        where = f" WHERE {_condition(counted)}" if counted.null is not None else ""
        selects.append(
            f"SELECT project_id, '{name}' AS kind, {counted.state} AS state, count(*) AS number"  # noqa: S608 - constants
            f" FROM {name}{where} GROUP BY project_id, {counted.state}"
        )
    return " UNION ALL ".join(selects)


_DIFFERENCES = (
    "SELECT project_id, kind, state, sum(number) AS number FROM"  # noqa: S608 - constants
    f" ({_counts_of_tables()} UNION ALL SELECT project_id, kind, state, -number FROM row_counts) AS parts"
    " GROUP BY project_id, kind, state HAVING sum(number) <> 0"
)


def find_differences() -> TextClause:
    """Selects (project id, list, state, number of rows that the counters lack), where they are wrong."""
    return text(f"{_DIFFERENCES} ORDER BY project_id, kind, state")


def repair() -> TextClause:
    """Corrects all counters, by one statement, which therefore does not miss rows that are inserted meanwhile."""
    return text(f"INSERT INTO row_counts (project_id, kind, state, number) {_DIFFERENCES}")


def trigger_statements(dialect: str) -> Sequence[str]:
    """Statements that create the triggers, as the revisions of the schema leave them."""
    make = _sqlite_triggers if dialect == "sqlite" else _postgres_triggers
    of_tables = [statement for kind, counted in COUNTED_TABLES.items() for statement in make(kind, counted)]
    return [*of_tables, _SQLITE_FORGET] if dialect == "sqlite" else [_POSTGRES_MERGE, *of_tables, *_POSTGRES_FORGET]


_SQLITE_FORGET = "CREATE TRIGGER forget_row_counts AFTER DELETE ON projects BEGIN DELETE FROM row_counts WHERE project_id = old.id; END"


def _sqlite_triggers(name: str, counted: CountedTable) -> list[str]:
    def change(row: str, number: int) -> str:
        """A repair inserts a second row of the same counter."""
        key = f"project_id = {row}.project_id AND kind = '{name}' AND state = {row}.{counted.state}"
        condition = f" AND {_condition(counted, f'{row}.')}" if counted.null is not None else ""
        return (
            f"UPDATE row_counts SET number = number + {number}"  # noqa: S608 - constants
            f" WHERE id = (SELECT id FROM row_counts WHERE {key} LIMIT 1){condition};"
            f" INSERT INTO row_counts (project_id, kind, state, number)"
            f" SELECT {row}.project_id, '{name}', {row}.{counted.state}, {number} WHERE changes() = 0{condition};"
        )

    columns = ["project_id", counted.state, *([counted.null] if counted.null is not None else [])]
    differs = " OR ".join(f"old.{column} IS NOT new.{column}" for column in columns)
    return [
        f"CREATE TRIGGER count_{name}_insert AFTER INSERT ON {name} BEGIN {change('new', 1)} END",
        f"CREATE TRIGGER count_{name}_update AFTER UPDATE OF {', '.join(columns)} ON {name} WHEN {differs}"
        f" BEGIN {change('old', -1)} {change('new', 1)} END",
        f"CREATE TRIGGER count_{name}_delete AFTER DELETE ON {name} BEGIN {change('old', -1)} END",
    ]


_POSTGRES_MERGE = (
    "CREATE FUNCTION merge_row_counts(merged_project integer, merged_kind text) RETURNS void LANGUAGE plpgsql AS $$"  # noqa: S608 - constants
    # Rows that another transaction merges are left to it.
    f" BEGIN WITH found AS (SELECT id FROM row_counts WHERE project_id = merged_project AND kind = merged_kind LIMIT {MAX_MERGED}"
    " FOR UPDATE SKIP LOCKED),"
    " merged AS (DELETE FROM row_counts USING found WHERE row_counts.id = found.id RETURNING row_counts.state, row_counts.number)"
    " INSERT INTO row_counts (project_id, kind, state, number)"
    " SELECT merged_project, merged_kind, state, sum(number) FROM merged GROUP BY state HAVING sum(number) <> 0; END $$"
)
_POSTGRES_FORGET = (
    "CREATE FUNCTION forget_row_counts() RETURNS trigger LANGUAGE plpgsql AS $$"
    " BEGIN DELETE FROM row_counts WHERE project_id = OLD.id; RETURN NULL; END $$",
    # At the end of the transaction: the triggers of rows that a cascade deletes fire after those of the project.
    "CREATE CONSTRAINT TRIGGER forget_row_counts AFTER DELETE ON projects DEFERRABLE INITIALLY DEFERRED"
    " FOR EACH ROW EXECUTE FUNCTION forget_row_counts()",
)


def _postgres_triggers(name: str, counted: CountedTable) -> list[str]:
    state, null = counted
    insert = "INSERT INTO row_counts (project_id, kind, state, number)"
    where = f" WHERE {_condition(counted)}" if null is not None else ""
    merge = f"IF random() < {1 / MERGE_EVERY} THEN PERFORM merge_row_counts({{}}, '{name}'){{}}; END IF; RETURN NULL; END"
    merge_changed = merge.format("project_id", " FROM (SELECT DISTINCT project_id FROM changed_rows) AS changed")

    def of_statement(number: str) -> str:
        return (
            f" BEGIN {insert} SELECT project_id, '{name}', {state}, {number} FROM changed_rows{where}"  # noqa: S608 - constants
            f" GROUP BY project_id, {state}; {merge_changed}"
        )

    columns = ["project_id", state, *([null] if null is not None else [])]
    differs = " OR ".join(f"OLD.{column} IS DISTINCT FROM NEW.{column}" for column in columns)
    old, new = ("true" if null is None else _condition(counted, row) for row in ("OLD.", "NEW."))
    each_row = (
        f" BEGIN {insert} SELECT project, '{name}', state, difference FROM"  # noqa: S608 - constants
        f" (VALUES (OLD.project_id, OLD.{state}, -1, {old}), (NEW.project_id, NEW.{state}, 1, {new}))"
        f" AS parts (project, state, difference, counts) WHERE counts; {merge.format('NEW.project_id', '')}"
    )
    functions = {"inserted": of_statement("count(*)"), "updated": each_row, "deleted": of_statement("-count(*)")}
    on_rows = "REFERENCING {0} TABLE AS changed_rows FOR EACH STATEMENT"
    events = (
        ("insert", "INSERT", on_rows.format("NEW"), "inserted"),
        ("update", f"UPDATE OF {', '.join(columns)}", f"FOR EACH ROW WHEN ({differs})", "updated"),
        ("delete", "DELETE", on_rows.format("OLD"), "deleted"),
    )
    return [
        *(f"CREATE FUNCTION count_{verb}_{name}() RETURNS trigger LANGUAGE plpgsql AS $${body} $$" for verb, body in functions.items()),
        *(
            f"CREATE TRIGGER count_{name}_{event_name} AFTER {when} ON {name} {rows} EXECUTE FUNCTION count_{function}_{name}()"
            for event_name, when, rows, function in events
        ),
    ]


@event.listens_for(metadata, "after_create")
def _create_triggers(target: Any, connection: Connection, **options: Any) -> None:
    if {"projects", "row_counts", *COUNTED_TABLES} <= {table.name for table in options["tables"]}:
        for statement in trigger_statements(connection.dialect.name):
            connection.exec_driver_sql(statement)
