"""Jobs have leases."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"

expands = True


def upgrade() -> None:
    op.create_table(
        "job_leases",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("holder", sa.String(length=32), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_leases")),
        sa.UniqueConstraint("name", name=op.f("uq_job_leases_name")),
        sqlite_autoincrement=True,
    )
