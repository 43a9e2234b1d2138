"""Refs are rows.

The refs of existing projects are read from their repositories at the next start: `refs_version` 0 marks them.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "refs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=512), nullable=False),
        sa.Column("oid", sa.String(length=64), nullable=False),
        sa.Column("peeled_oid", sa.String(length=64), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_refs_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_refs")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_refs_project_id_name")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("projects", schema=None) as batch_op:
        batch_op.add_column(sa.Column("unborn_branch", sa.String(length=255), nullable=True))
        batch_op.add_column(sa.Column("refs_version", sa.BigInteger(), nullable=False, server_default="0"))
    with op.batch_alter_table("projects", schema=None) as batch_op:
        batch_op.alter_column("refs_version", server_default=None)

    with op.batch_alter_table("merge_intents", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_merge_intents_merge_request_id"))
    op.drop_table("merge_intents")
