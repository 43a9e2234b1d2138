"""Users star projects, and projects can refuse shared runners."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "project_stars",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_project_stars_project_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_project_stars_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_project_stars")),
        sa.UniqueConstraint("project_id", "user_id", name=op.f("uq_project_stars_project_id_user_id")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("project_stars", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_project_stars_user_id"), ["user_id"], unique=False)

    with op.batch_alter_table("projects", schema=None) as batch_op:
        batch_op.add_column(sa.Column("shared_runners_enabled", sa.Boolean(), server_default=sa.true(), nullable=False))
    with op.batch_alter_table("projects", schema=None) as batch_op:
        batch_op.alter_column("shared_runners_enabled", server_default=None)
