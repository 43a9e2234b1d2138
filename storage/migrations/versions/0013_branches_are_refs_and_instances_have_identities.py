"""Indexed branches are refs: what `branches` had about a ref are columns of its row. Instances have identities,
and databases say which programs they suit.

A project whose refs were not read from its repository yet gets those of its indexed branches, so that the next start finds the moves that
were not recorded.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

ADOPT_INDEXED = """
    INSERT INTO refs (project_id, name, oid)
    SELECT branches.project_id, 'refs/heads/' || branches.name, branches.oid
    FROM branches JOIN projects ON projects.id = branches.project_id
    WHERE projects.refs_version = 0
"""
COPY_INDEXED = """
    UPDATE refs SET is_indexed = {true}, notified_health = branches.notified_health, notified_oid = branches.notified_oid
    FROM branches
    WHERE branches.project_id = refs.project_id AND refs.name = 'refs/heads/' || branches.name AND refs.oid = branches.oid
"""


def upgrade() -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    op.execute(ADOPT_INDEXED)
    op.add_column("refs", sa.Column("is_indexed", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("refs", sa.Column("notified_health", sa.String(length=32), nullable=True))
    op.add_column("refs", sa.Column("notified_oid", sa.String(length=64), nullable=True))
    op.execute(COPY_INDEXED.format(true="1" if is_sqlite else "true"))
    op.create_index(
        "ix_refs_indexed",
        "refs",
        ["project_id", "oid"],
        unique=False,
        sqlite_where=sa.text("is_indexed = 1"),
        postgresql_where=sa.text("is_indexed"),
    )
    with op.batch_alter_table("branches", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_branches_project_id_oid"))
    op.drop_table("branches")
    with op.batch_alter_table("refs", schema=None) as batch_op:
        batch_op.alter_column("is_indexed", server_default=None)

    op.create_table(
        "instance_identity",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("identity", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instance_identity")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "schema_compatibility",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("oldest_revision", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schema_compatibility")),
        sqlite_autoincrement=True,
    )
