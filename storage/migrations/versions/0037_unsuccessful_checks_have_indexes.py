"""Unsuccessful checks have indexes."""

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"

expands = True


def upgrade() -> None:
    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.create_index(
            "ix_builds_unsuccessful",
            ["project_id", "sha", "status", "allow_failure"],
            unique=False,
            sqlite_where=sa.text("current_id IS NULL AND status IN ('pending', 'running', 'failed', 'canceled')"),
            postgresql_where=sa.text("current_id IS NULL AND status IN ('pending', 'running', 'failed', 'canceled')"),
        )

    with op.batch_alter_table("commit_statuses", schema=None) as batch_op:
        batch_op.create_index(
            "ix_commit_statuses_unsuccessful",
            ["project_id", "sha", "status", "allow_failure"],
            unique=False,
            sqlite_where=sa.text("status IN ('pending', 'running', 'failed', 'canceled')"),
            postgresql_where=sa.text("status IN ('pending', 'running', 'failed', 'canceled')"),
        )
