"""Users that rows refer to have indexes."""

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"

expands = True


def upgrade() -> None:
    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.create_index(
            "ix_builds_erased_by_id",
            ["erased_by_id"],
            unique=False,
            sqlite_where=sa.text("erased_by_id IS NOT NULL"),
            postgresql_where=sa.text("erased_by_id IS NOT NULL"),
        )

    with op.batch_alter_table("merge_request_imports", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_merge_request_imports_user_id"), ["user_id"], unique=False)

    with op.batch_alter_table("project_imports", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_project_imports_user_id"), ["user_id"], unique=False)

    with op.batch_alter_table("runners", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_runners_creator_id"), ["creator_id"], unique=False)
