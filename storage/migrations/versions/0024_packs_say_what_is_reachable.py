"""Packs say whether their objects are reachable."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"

expands = True


def upgrade() -> None:
    with op.batch_alter_table("packs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("is_reachable", sa.Boolean(), nullable=True))
