"""Users visit merge requests."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"

expands = True


def upgrade() -> None:
    op.create_table(
        "merge_request_visits",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("merge_request_id", sa.Integer(), nullable=False),
        sa.Column("head_oid", sa.String(length=64), nullable=True),
        sa.Column("note_number", sa.Integer(), nullable=False),
        sa.Column("visited_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("previous_head_oid", sa.String(length=64), nullable=True),
        sa.Column("previous_note_number", sa.Integer(), nullable=False),
        sa.Column("previous_visited_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["merge_request_id"], ["merge_requests.id"], name=op.f("fk_merge_request_visits_merge_request_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_merge_request_visits_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_merge_request_visits")),
        sa.UniqueConstraint("user_id", "merge_request_id", name=op.f("uq_merge_request_visits_user_id_merge_request_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_merge_request_visits_merge_request_id"), "merge_request_visits", ["merge_request_id"], unique=False)
