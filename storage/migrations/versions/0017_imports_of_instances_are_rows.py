"""Imports of instances are rows, with the identities of what was imported."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

expands = True


def upgrade() -> None:
    op.create_table(
        "instance_imports",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("source", sa.String(length=2000), nullable=False),
        sa.Column("keeps_ids", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_instance_imports_user_id"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instance_imports")),
        sa.UniqueConstraint("source", name=op.f("uq_instance_imports_source")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "import_identities",
        sa.Column("import_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("source_id", sa.String(length=600), nullable=False),
        sa.Column("database_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["import_id"], ["instance_imports.id"], name=op.f("fk_import_identities_import_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("import_id", "kind", "source_id", name=op.f("pk_import_identities")),
    )
    op.create_table(
        "import_marks",
        sa.Column("import_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("value", sa.String(length=1000), nullable=False),
        sa.ForeignKeyConstraint(["import_id"], ["instance_imports.id"], name=op.f("fk_import_marks_import_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("import_id", "name", name=op.f("pk_import_marks")),
    )
