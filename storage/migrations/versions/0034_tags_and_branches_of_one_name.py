"""A branch and a tag of one name have pipelines of their own. Builds that lost their queues wait for runners again.

A build that ended while builds of its project were disabled had no queue when it was retried later.
"""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"

expands = True

PROJECTS = sa.table(
    "projects",
    sa.column("id", sa.Integer),
    sa.column("builds_enabled", sa.Boolean),
    sa.column("shared_runners_enabled", sa.Boolean),
    sa.column("archived", sa.Boolean),
)
BUILDS = sa.table(
    "builds",
    sa.column("id", sa.Integer),
    sa.column("project_id", sa.Integer),
    sa.column("current_id", sa.Integer),
    sa.column("status", sa.String),
    sa.column("commands", sa.Text),
    sa.column("tags", sa.JSON),
    sa.column("queue", sa.Text),
)


def upgrade() -> None:
    is_pushed = sa.text("trigger_request_id IS NULL")
    with op.batch_alter_table("pipelines", schema=None) as batch_op:
        batch_op.drop_index("uq_pipelines_pushed")
        batch_op.create_index(
            "uq_pipelines_pushed",
            ["project_id", "sha", "ref", "tag"],
            unique=True,
            sqlite_where=is_pushed,
            postgresql_where=is_pushed,
        )
    queue_builds(op.get_bind())


def queue_builds(connection: sa.Connection) -> None:
    build, project = BUILDS.c, PROJECTS.c
    waiting = (
        sa.select(build.id, build.tags, project.shared_runners_enabled)
        .join_from(BUILDS, PROJECTS, build.project_id == project.id)
        .where(
            project.builds_enabled,
            sa.not_(project.archived),
            build.status == sa.literal_column("'pending'"),
            build.current_id.is_(None),
            build.commands.is_not(None),
            build.queue.is_(None),
        )
    )
    found = [
        {"build_id": number, "name": ("" if is_shared else ",") + ",".join(sorted(set(tags)))}
        for number, tags, is_shared in connection.execute(waiting)
    ]
    if found:
        connection.execute(sa.update(BUILDS).where(build.id == sa.bindparam("build_id")).values(queue=sa.bindparam("name")), found)
