"""Changes of builds are logged."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"

expands = True

COLUMNS = "project_id, current_id, attempt, name, stage, ref, status, user_id, coverage, created_at, started_at, finished_at"


def upgrade() -> None:
    op.create_table(
        "build_changes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("build_id", sa.Integer(), nullable=False),
        sa.Column("transaction_id", sa.BigInteger(), nullable=True),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_build_changes")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_build_changes_transaction_id",
        "build_changes",
        ["transaction_id"],
        sqlite_where=sa.text("transaction_id IS NOT NULL"),
        postgresql_where=sa.text("transaction_id IS NOT NULL"),
    )
    if op.get_bind().dialect.name == "sqlite":
        for event, row in (("INSERT", "new"), (f"UPDATE OF {COLUMNS}", "new"), ("DELETE", "old")):
            log = f"INSERT INTO build_changes (build_id, token) VALUES ({row}.id, random());"  # noqa: S608 - constants
            op.execute(f"CREATE TRIGGER log_build_{event.partition(' ')[0].lower()} AFTER {event} ON builds BEGIN {log} END")
        return
    log = (
        "INSERT INTO build_changes (build_id, transaction_id, token)"
        " SELECT {0}, pg_current_xact_id()::text::bigint, (random() * 9007199254740992)::bigint"
    )
    op.execute(
        f"CREATE FUNCTION log_build_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {log.format('NEW.id')}; RETURN NULL; END $$"
    )
    op.execute(
        "CREATE FUNCTION log_build_changes() RETURNS trigger LANGUAGE plpgsql AS $$"
        f" BEGIN {log.format('id')} FROM changed_builds; RETURN NULL; END $$"
    )
    op.execute(f"CREATE TRIGGER log_build_update AFTER UPDATE OF {COLUMNS} ON builds FOR EACH ROW EXECUTE FUNCTION log_build_change()")
    for event, rows in (("INSERT", "NEW"), ("DELETE", "OLD")):
        op.execute(
            f"CREATE TRIGGER log_build_{event.lower()} AFTER {event} ON builds"
            f" REFERENCING {rows} TABLE AS changed_builds FOR EACH STATEMENT EXECUTE FUNCTION log_build_changes()"
        )
