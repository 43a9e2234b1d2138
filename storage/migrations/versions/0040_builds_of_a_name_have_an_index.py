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
