"""Builds have variables and triggers."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "variables",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("sealed_value", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_variables_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_variables")),
        sa.UniqueConstraint("project_id", "key", name=op.f("uq_variables_project_id_key")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.add_column(sa.Column("sealed_variables", sa.Text(), nullable=True))
