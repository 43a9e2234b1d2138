"""Traces have generations."""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"

expands = True


def upgrade() -> None:
    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.add_column(sa.Column("trace_generation", sa.Integer(), nullable=True))
