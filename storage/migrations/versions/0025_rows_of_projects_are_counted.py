"""Rows of projects are counted by triggers."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"

expands = True

COUNTED_TABLES: tuple[tuple[str, str, str | None], ...] = (
    ("issues", "state", None),
    ("merge_requests", "state", None),
    ("builds", "status", "current_id"),
)
INSERT = "INSERT INTO row_counts (project_id, kind, state, number)"


def upgrade() -> None:
    op.create_table(
        "row_counts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_row_counts")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_row_counts_project_id_kind"), "row_counts", ["project_id", "kind"])
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    if not is_sqlite:
        # Otherwise changes of other hosts between the counting and the triggers are missed.
        op.execute("LOCK TABLE projects, issues, merge_requests, builds IN SHARE ROW EXCLUSIVE MODE")
        create_merging()
    for table, state, null in COUNTED_TABLES:
        where = "" if null is None else f" WHERE {null} IS NULL"
        counts = f"SELECT project_id, '{table}', {state}, count(*) FROM {table}{where} GROUP BY project_id, {state}"  # noqa: S608
        op.execute(f"{INSERT} {counts}")
        (create_sqlite_triggers if is_sqlite else create_postgres_triggers)(table, state, null)
    if is_sqlite:
        op.execute("CREATE TRIGGER forget_row_counts AFTER DELETE ON projects BEGIN DELETE FROM row_counts WHERE project_id = old.id; END")


def create_sqlite_triggers(table: str, state: str, null: str | None) -> None:
    def change(row: str, number: int) -> str:
        key = f"project_id = {row}.project_id AND kind = '{table}' AND state = {row}.{state}"
        condition = "" if null is None else f" AND {row}.{null} IS NULL"
        return (
            f"UPDATE row_counts SET number = number + {number} WHERE id = (SELECT id FROM row_counts WHERE {key} LIMIT 1){condition};"  # noqa: S608
            f" {INSERT} SELECT {row}.project_id, '{table}', {row}.{state}, {number} WHERE changes() = 0{condition};"
        )

    columns = ["project_id", state, *([] if null is None else [null])]
    differs = " OR ".join(f"old.{column} IS NOT new.{column}" for column in columns)
    op.execute(f"CREATE TRIGGER count_{table}_insert AFTER INSERT ON {table} BEGIN {change('new', 1)} END")
    op.execute(
        f"CREATE TRIGGER count_{table}_update AFTER UPDATE OF {', '.join(columns)} ON {table} WHEN {differs}"
        f" BEGIN {change('old', -1)} {change('new', 1)} END"
    )
    op.execute(f"CREATE TRIGGER count_{table}_delete AFTER DELETE ON {table} BEGIN {change('old', -1)} END")


def create_merging() -> None:
    op.execute(
        "CREATE FUNCTION merge_row_counts(merged_project integer, merged_kind text) RETURNS void LANGUAGE plpgsql AS $$"  # noqa: S608
        " BEGIN WITH found AS (SELECT id FROM row_counts WHERE project_id = merged_project AND kind = merged_kind LIMIT 500"
        " FOR UPDATE SKIP LOCKED),"
        " merged AS (DELETE FROM row_counts USING found WHERE row_counts.id = found.id RETURNING row_counts.state, row_counts.number)"
        f" {INSERT}"
        " SELECT merged_project, merged_kind, state, sum(number) FROM merged GROUP BY state HAVING sum(number) <> 0; END $$"
    )
    op.execute(
        "CREATE FUNCTION forget_row_counts() RETURNS trigger LANGUAGE plpgsql AS $$"
        " BEGIN DELETE FROM row_counts WHERE project_id = OLD.id; RETURN NULL; END $$"
    )
    op.execute("CREATE TRIGGER forget_row_counts AFTER DELETE ON projects FOR EACH ROW EXECUTE FUNCTION forget_row_counts()")


def create_postgres_triggers(table: str, state: str, null: str | None) -> None:
    where = "" if null is None else f" WHERE {null} IS NULL"
    merge = f"IF random() < 0.03125 THEN PERFORM merge_row_counts({{}}, '{table}'){{}}; END IF; RETURN NULL; END"
    merge_changed = merge.format("project_id", " FROM (SELECT DISTINCT project_id FROM changed_rows) AS changed")

    def of_statement(number: str) -> str:
        return (
            f" BEGIN {INSERT} SELECT project_id, '{table}', {state}, {number} FROM changed_rows{where}"  # noqa: S608
            f" GROUP BY project_id, {state}; {merge_changed}"
        )

    columns = ["project_id", state, *([] if null is None else [null])]
    differs = " OR ".join(f"OLD.{column} IS DISTINCT FROM NEW.{column}" for column in columns)
    old, new = ("true" if null is None else f"{row}.{null} IS NULL" for row in ("OLD", "NEW"))
    each_row = (
        f" BEGIN {INSERT} SELECT project, '{table}', state, difference FROM"  # noqa: S608
        f" (VALUES (OLD.project_id, OLD.{state}, -1, {old}), (NEW.project_id, NEW.{state}, 1, {new}))"
        f" AS parts (project, state, difference, counts) WHERE counts; {merge.format('NEW.project_id', '')}"
    )
    functions = {"inserted": of_statement("count(*)"), "updated": each_row, "deleted": of_statement("-count(*)")}
    for verb, body in functions.items():
        op.execute(f"CREATE FUNCTION count_{verb}_{table}() RETURNS trigger LANGUAGE plpgsql AS $${body} $$")
    for event, rows in (("insert", "NEW"), ("delete", "OLD")):
        op.execute(
            f"CREATE TRIGGER count_{table}_{event} AFTER {event.upper()} ON {table} REFERENCING {rows} TABLE AS changed_rows"
            f" FOR EACH STATEMENT EXECUTE FUNCTION count_{'inserted' if event == 'insert' else 'deleted'}_{table}()"
        )
    op.execute(
        f"CREATE TRIGGER count_{table}_update AFTER UPDATE OF {', '.join(columns)} ON {table}"
        f" FOR EACH ROW WHEN ({differs}) EXECUTE FUNCTION count_updated_{table}()"
    )
