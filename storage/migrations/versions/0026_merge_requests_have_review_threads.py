"""Merge requests have review threads."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"

expands = True


def upgrade() -> None:
    op.create_table(
        "review_threads",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("merge_request_id", sa.Integer(), nullable=False),
        sa.Column("author_id", sa.Integer(), nullable=False),
        sa.Column("base_oid", sa.String(length=64), nullable=True),
        sa.Column("start_oid", sa.String(length=64), nullable=True),
        sa.Column("head_oid", sa.String(length=64), nullable=True),
        sa.Column("old_path", sa.Text(), nullable=True),
        sa.Column("new_path", sa.Text(), nullable=True),
        sa.Column("old_line", sa.Integer(), nullable=True),
        sa.Column("new_line", sa.Integer(), nullable=True),
        sa.Column("excerpt", sa.Text(), nullable=True),
        sa.Column("resolved_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("resolved_by_id", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["author_id"], ["users.id"], name=op.f("fk_review_threads_author_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["merge_request_id"], ["merge_requests.id"], name=op.f("fk_review_threads_merge_request_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_review_threads_project_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["resolved_by_id"], ["users.id"], name=op.f("fk_review_threads_resolved_by_id"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_review_threads")),
        sqlite_autoincrement=True,
    )
    for column in ("author_id", "merge_request_id", "project_id", "resolved_by_id"):
        op.create_index(op.f(f"ix_review_threads_{column}"), "review_threads", [column], unique=False)
    with op.batch_alter_table("notes", schema=None, table_kwargs={"sqlite_autoincrement": True}) as batch_op:
        batch_op.add_column(sa.Column("thread_id", sa.Integer(), nullable=True))
        batch_op.create_index(batch_op.f("ix_notes_thread_id"), ["thread_id"], unique=False)
        batch_op.create_foreign_key(batch_op.f("fk_notes_thread_id"), "review_threads", ["thread_id"], ["id"], ondelete="CASCADE")
