"""Lists of users read indexes."""

from alembic import op

revision = "0029"
down_revision = "0028"

expands = True


def upgrade() -> None:
    with op.batch_alter_table("activities", schema=None) as batch_op:
        batch_op.create_index("ix_activities_author_id_id", ["author_id", "id"], unique=False)
        batch_op.drop_index(batch_op.f("ix_activities_author_id"))

    with op.batch_alter_table("builds", schema=None) as batch_op:
        batch_op.create_index("ix_builds_user_id_id", ["user_id", "id"], unique=False)
        batch_op.drop_index(batch_op.f("ix_builds_user_id"))
