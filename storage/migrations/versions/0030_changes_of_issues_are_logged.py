"""Changes of issues are logged."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    with op.batch_alter_table("changes", schema=None, table_kwargs={"sqlite_autoincrement": True}) as batch_op:
        batch_op.add_column(sa.Column("issue_id", sa.Integer(), nullable=True))
        batch_op.create_index(batch_op.f("ix_changes_issue_id"), ["issue_id"], unique=False)
        batch_op.create_foreign_key(batch_op.f("fk_changes_issue_id"), "issues", ["issue_id"], ["id"], ondelete="CASCADE")
