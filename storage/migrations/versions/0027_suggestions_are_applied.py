"""Suggestions of notes are applied."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"

expands = True


def upgrade() -> None:
    op.create_table(
        "applied_suggestions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("note_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("author_id", sa.Integer(), nullable=False),
        sa.Column("commit_oid", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["author_id"], ["users.id"], name=op.f("fk_applied_suggestions_author_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["note_id"], ["notes.id"], name=op.f("fk_applied_suggestions_note_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_applied_suggestions")),
        sa.UniqueConstraint("note_id", "position", name=op.f("uq_applied_suggestions_note_id_position")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_applied_suggestions_author_id"), "applied_suggestions", ["author_id"], unique=False)
