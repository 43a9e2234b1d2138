"""Traces may begin with a message of the service."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
expands = True


def upgrade() -> None:
    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.add_column(sa.Column("trace_start", sa.BigInteger(), nullable=True))
