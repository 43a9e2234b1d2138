"""Builds of a name have an index."""

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"

expands = True


def upgrade() -> None:
    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.create_index(
            "ix_builds_project_id_name_id",
            ["project_id", "name", "id"],
            unique=False,
            sqlite_where=sa.text("current_id IS NULL"),
            postgresql_where=sa.text("current_id IS NULL"),
        )
    if op.get_bind().dialect.name == "postgresql":
        # For a statement that it has prepared PostgreSQL assumes that each value is as frequent as any other. With the few values that
        # these columns have, it expects to find a page of any by reading the newest builds, which for a rare one reads all.
        op.execute("ALTER TABLE builds ALTER COLUMN name SET (n_distinct = 1000), ALTER COLUMN status SET (n_distinct = 50)")
        op.execute("ANALYZE builds (name, status)")
