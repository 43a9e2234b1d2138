"""Lists of projects and their counts read indexes."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    with op.batch_alter_table("issues") as batch_op:
        batch_op.create_index("ix_issues_project_id_state", ["project_id", "state"], unique=False)
    is_fork = sa.text("forked_from_id IS NOT NULL")
    with op.batch_alter_table("projects") as batch_op:
        batch_op.drop_index(batch_op.f("ix_projects_forked_from_id"))
        batch_op.create_index(
            "ix_projects_forked_from_id", ["forked_from_id"], unique=False, sqlite_where=is_fork, postgresql_where=is_fork
        )
    for kind in ("project", "group"):
        with op.batch_alter_table(f"{kind}_members") as batch_op:
            batch_op.drop_index(batch_op.f(f"ix_{kind}_members_user_id"))
            batch_op.create_index(f"ix_{kind}_members_user_id", ["user_id", f"{kind}_id"], unique=False)
