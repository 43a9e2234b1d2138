"""Lists of all projects, of assignees and of builds of a branch are sorted by indexes."""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"

expands = True


def upgrade() -> None:
    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.create_index(
            "ix_builds_project_id_ref_id",
            ["project_id", "ref", "id"],
            unique=False,
            sqlite_where=sa.text("current_id IS NULL"),
            postgresql_where=sa.text("current_id IS NULL"),
        )

    with op.batch_alter_table("issues", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_issues_assignee_id"))
        batch_op.create_index("ix_issues_assignee_id_created_at", ["assignee_id", "created_at", "id"], unique=False)
        batch_op.create_index("ix_issues_created_at", ["created_at", "id"], unique=False)

    with op.batch_alter_table("merge_requests", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_merge_requests_assignee_id"))
        batch_op.create_index("ix_merge_requests_assignee_id_created_at", ["assignee_id", "created_at", "id"], unique=False)
        batch_op.create_index("ix_merge_requests_created_at", ["created_at", "id"], unique=False)
