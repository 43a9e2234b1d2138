"""Lists of groups read indexes."""

from alembic import op

revision = "0036"
down_revision = "0035"

expands = True


def upgrade() -> None:
    with op.batch_alter_table("namespaces", schema=None) as batch_op:
        batch_op.create_index("ix_namespaces_kind_id", ["kind", "id"], unique=False)

    with op.batch_alter_table("projects", schema=None) as batch_op:
        batch_op.create_index("ix_projects_namespace_id_visibility_level", ["namespace_id", "visibility_level"], unique=False)
