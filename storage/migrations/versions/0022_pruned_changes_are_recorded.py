"""Pruned changes are recorded."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"

expands = True


def upgrade() -> None:
    op.create_table(
        "pruned_changes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("last_seq", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pruned_changes")),
        sqlite_autoincrement=True,
    )
