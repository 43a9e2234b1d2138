"""The index of builds of users has their projects and statuses."""

from alembic import op

revision = "0038"
down_revision = "0037"

expands = True


def upgrade() -> None:
    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_builds_user_id_id"))
        batch_op.create_index("ix_builds_user_id_id_project_id", ["user_id", "id", "project_id", "status", "current_id"], unique=False)
