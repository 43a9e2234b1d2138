"""Users have access tokens, which have scopes and may expire.

It only adds columns, but is not marked so: the version before would take every access token for one with all rights.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.add_column("tokens", sa.Column("scopes", sa.String(length=255), nullable=True))
    op.add_column("tokens", sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("tokens", sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True))
