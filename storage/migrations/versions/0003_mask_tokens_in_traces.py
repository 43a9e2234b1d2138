"""Store the tokens of builds, encrypted, to mask them in traces."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.add_column(sa.Column("sealed_token", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("sealed_trace_end", sa.Text(), nullable=True))
