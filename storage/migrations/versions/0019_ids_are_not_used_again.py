"""On SQLite, ids of projects, hooks, pipelines and refs are not used again: earlier revisions copied these tables without AUTOINCREMENT."""

from alembic import op

revision = "0019"
down_revision = "0018"

expands = True

TABLES = ("hooks", "pipelines", "projects", "refs")


def upgrade() -> None:
    if op.get_bind().dialect.name != "sqlite":
        return
    for table in TABLES:
        # The ids that are copied set the first new one.
        with op.batch_alter_table(table, recreate="always", table_kwargs={"sqlite_autoincrement": True}):
            pass
