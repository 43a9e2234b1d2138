"""Changes of a build's commit are logged."""

from alembic import op

revision = "0031"
down_revision = "0030"

expands = True

COLUMNS = (
    "project_id, current_id, attempt, name, stage, ref, status, user_id, coverage, created_at, started_at, finished_at, sha, allow_failure"
)


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TRIGGER log_build_update")
        log = "INSERT INTO build_changes (build_id, token) VALUES (new.id, random());"
        op.execute(f"CREATE TRIGGER log_build_update AFTER UPDATE OF {COLUMNS} ON builds BEGIN {log} END")
        return
    op.execute("DROP TRIGGER log_build_update ON builds")
    op.execute(f"CREATE TRIGGER log_build_update AFTER UPDATE OF {COLUMNS} ON builds FOR EACH ROW EXECUTE FUNCTION log_build_change()")
