"""Rename columns that had unclear names, and the table of due health checks.

Columns are renamed in place, which rewrites no row. SQLite cannot rename constraints and indexes, so the table, a queue that is usually
empty, is created under its new name and its rows are copied.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

COLUMNS = (
    ("branches", "told_health", "notified_health"),
    ("branches", "told_oid", "notified_oid"),
    ("changes", "was", "old_state"),
    ("changes", "became", "new_state"),
    ("closings", "described", "in_description"),
)


def upgrade() -> None:
    for table, old, new in COLUMNS:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
    op.create_table(
        "health_checks_due",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=True),
        sa.Column("sha", sa.String(length=64), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_health_checks_due_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_health_checks_due")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_health_checks_due_project_id"), "health_checks_due", ["project_id"])
    op.execute("INSERT INTO health_checks_due (project_id, name, sha) SELECT project_id, name, sha FROM branch_looks ORDER BY id")
    op.drop_table("branch_looks")
