"""On PostgreSQL the counters of a deleted project are deleted at the end of the transaction, after its cascades have changed them."""

from alembic import op

revision = "0039"
down_revision = "0038"

expands = True


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        return
    op.execute("DROP TRIGGER forget_row_counts ON projects")
    op.execute(
        "CREATE CONSTRAINT TRIGGER forget_row_counts AFTER DELETE ON projects DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION forget_row_counts()"
    )
    op.execute("DELETE FROM row_counts WHERE NOT EXISTS (SELECT FROM projects WHERE projects.id = row_counts.project_id)")
