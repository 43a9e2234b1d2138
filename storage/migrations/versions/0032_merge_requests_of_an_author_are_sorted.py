"""Merge requests of an author are sorted by an index."""

from alembic import op

revision = "0032"
down_revision = "0031"

expands = True


def upgrade() -> None:
    with op.batch_alter_table("merge_requests", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_merge_requests_author_id"))
        batch_op.create_index("ix_merge_requests_author_id_created_at", ["author_id", "created_at", "id"], unique=False)
