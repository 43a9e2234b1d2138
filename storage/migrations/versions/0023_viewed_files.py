"""Users mark files of merge requests that they have viewed."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"

expands = True


def upgrade() -> None:
    op.create_table(
        "viewed_files",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("merge_request_id", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("path_digest", sa.String(length=64), nullable=False),
        sa.Column("blob_oid", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_viewed_files_user_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["merge_request_id"], ["merge_requests.id"], name=op.f("fk_viewed_files_merge_request_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_viewed_files")),
        sa.UniqueConstraint(
            "user_id", "merge_request_id", "path_digest", name=op.f("uq_viewed_files_user_id_merge_request_id_path_digest")
        ),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_viewed_files_merge_request_id"), "viewed_files", ["merge_request_id"], unique=False)
