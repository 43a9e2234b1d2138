"""Projects have hooks and deploy keys."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "deploy_keys",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("title", sa.String(length=255), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_deploy_keys_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deploy_keys")),
        sa.UniqueConstraint("project_id", "fingerprint", name=op.f("uq_deploy_keys_project_id_fingerprint")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("deploy_keys", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_deploy_keys_fingerprint"), ["fingerprint"], unique=False)

    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.add_column(sa.Column("project_id", sa.Integer(), nullable=True))

    with op.batch_alter_table("hooks", schema=None) as batch_op:
        batch_op.add_column(sa.Column("project_id", sa.Integer(), nullable=True))
        batch_op.add_column(sa.Column("sealed_token", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("build_events", sa.Boolean(), nullable=False, server_default=sa.false()))
        batch_op.create_index(batch_op.f("ix_hooks_project_id"), ["project_id"], unique=False)
        batch_op.create_foreign_key(batch_op.f("fk_hooks_project_id"), "projects", ["project_id"], ["id"], ondelete="CASCADE")
    with op.batch_alter_table("hooks", schema=None) as batch_op:
        batch_op.alter_column("build_events", server_default=None)
