"""Builds of later CI files: artifacts that expire, environments and deployments."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    with op.batch_alter_table("builds") as batch_op:
        batch_op.add_column(sa.Column("artifacts_expired_at", sa.DateTime(timezone=True), nullable=True))
    expiring = sa.text("expires_at IS NOT NULL")
    with op.batch_alter_table("artifacts") as batch_op:
        batch_op.add_column(sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True))
        batch_op.create_index("ix_artifacts_expires_at", ["expires_at"], unique=False, sqlite_where=expiring, postgresql_where=expiring)
    op.create_table(
        "environments",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("external_url", sa.Text(), nullable=True),
        sa.Column("stop_job", sa.String(length=255), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("stopped_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_environments_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_environments")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_environments_project_id_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "deployments",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("environment_id", sa.Integer(), nullable=False),
        sa.Column("build_id", sa.Integer(), nullable=True),
        sa.Column("user_id", sa.Integer(), nullable=True),
        sa.Column("sha", sa.String(length=64), nullable=False),
        sa.Column("ref", sa.String(length=255), nullable=False),
        sa.Column("tag", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_deployments_project_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["environment_id"], ["environments.id"], name=op.f("fk_deployments_environment_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["build_id"], ["builds.id"], name=op.f("fk_deployments_build_id"), ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_deployments_user_id"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deployments")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("deployments") as batch_op:
        batch_op.create_index("ix_deployments_project_id_id", ["project_id", "id"], unique=False)
        batch_op.create_index("ix_deployments_environment_id_id", ["environment_id", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_deployments_build_id"), ["build_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_deployments_user_id"), ["user_id"], unique=False)
