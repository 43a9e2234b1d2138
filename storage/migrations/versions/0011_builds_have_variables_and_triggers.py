"""Builds have variables and triggers."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


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
    op.create_table(
        "triggers",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("token_digest", sa.String(length=64), nullable=False),
        sa.Column("sealed_token", sa.Text(), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_triggers_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_triggers")),
        sa.UniqueConstraint("token_digest", name=op.f("uq_triggers_token_digest")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("triggers", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_triggers_project_id"), ["project_id"], unique=False)
    op.create_table(
        "trigger_requests",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("trigger_id", sa.Integer(), nullable=True),
        sa.Column("sealed_variables", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_trigger_requests_project_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["trigger_id"], ["triggers.id"], name=op.f("fk_trigger_requests_trigger_id"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trigger_requests")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("trigger_requests", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_trigger_requests_project_id"), ["project_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_trigger_requests_trigger_id"), ["trigger_id"], unique=False)
    is_pushed = sa.text("trigger_request_id IS NULL")
    key = ["project_id", "sha", "ref"]
    with op.batch_alter_table("pipelines", schema=None) as batch_op:
        batch_op.drop_constraint(batch_op.f("uq_pipelines_project_id_sha_ref"), type_="unique")
        batch_op.add_column(sa.Column("trigger_request_id", sa.Integer(), nullable=True))
        batch_op.create_foreign_key(
            batch_op.f("fk_pipelines_trigger_request_id"), "trigger_requests", ["trigger_request_id"], ["id"], ondelete="CASCADE"
        )
    with op.batch_alter_table("pipelines", schema=None) as batch_op:
        batch_op.create_index("ix_pipelines_project_id_sha_ref", key, unique=False)
        batch_op.create_index("uq_pipelines_pushed", key, unique=True, sqlite_where=is_pushed, postgresql_where=is_pushed)
        batch_op.create_index(batch_op.f("ix_pipelines_trigger_request_id"), ["trigger_request_id"], unique=False)
    with op.batch_alter_table("runners", schema=None) as batch_op:
        batch_op.add_column(sa.Column("sealed_token", sa.Text(), nullable=True))
    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.add_column(sa.Column("sealed_variables", sa.Text(), nullable=True))
