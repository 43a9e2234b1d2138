"""Closing notes have a source.

"Status changed to closed by commit group/project@ID" named a project to viewers who may not see it, because the note did not say what it
names. The source is derived from the text. Where it cannot be, as when the project was renamed or is gone, the text loses the name.
"""

import re

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

CLOSED = "Status changed to closed"
CLOSED_BY = re.compile(
    rf"{CLOSED} by (?:commit (?:(?P<of_commit>[^/@\s]+/[^/@\s]+)@)?(?P<oid>[0-9a-f]{{40,64}})"
    r"|merge request (?P<of_merge_request>[^/!\s]+/[^/!\s]+)?!(?P<iid>[1-9][0-9]{0,9}))"
)
BATCH = 500
LARGEST_ID = 2**31 - 1

UNTOLD = sa.text(
    "SELECT id, project_id, body FROM notes WHERE system AND source_project_id IS NULL AND issue_id IS NOT NULL"
    " AND body LIKE :prefix AND id > :after ORDER BY id LIMIT :batch"
)
PROJECT = sa.text(
    "SELECT projects.id FROM projects JOIN namespaces ON namespaces.id = projects.namespace_id"
    " WHERE namespaces.path_key = :namespace AND projects.path_key = :path"
)
COMMIT = sa.text("SELECT 1 FROM commits WHERE project_id = :project AND oid = :oid")
MERGE_REQUEST = sa.text("SELECT id FROM merge_requests WHERE project_id = :project AND iid = :iid")


def upgrade() -> None:
    connection = op.get_bind()
    after = 0
    while rows := connection.execute(UNTOLD, {"prefix": f"{CLOSED} by %", "after": after, "batch": BATCH}).all():
        for note_id, project_id, body in rows:
            found = _source(connection, project_id, body)
            if found is None:
                change = sa.text("UPDATE notes SET body = :body WHERE id = :id").bindparams(body=CLOSED, id=note_id)
            else:
                change = sa.text("UPDATE notes SET source_project_id = :project, source = :source WHERE id = :id").bindparams(
                    project=found[0], source=f"{found[1]}:{note_id}", id=note_id
                )
            connection.execute(change)
        after = rows[-1][0]


def _source(connection: sa.Connection, own_project_id: int, body: str) -> tuple[int, str] | None:
    """The project and the key of what closed the issue; None where the text names nothing that is there."""
    match = CLOSED_BY.fullmatch(body)
    if match is None:
        return None
    path = match["of_commit"] or match["of_merge_request"]
    project_id: int | None = own_project_id
    if path is not None:
        namespace, _, name = path.lower().partition("/")
        project_id = connection.scalar(PROJECT, {"namespace": namespace, "path": name})
    if project_id is None:
        return None
    if match["oid"] is not None:
        # A commit of its own project, or one that proves that the path still is that project's.
        known = path is None or connection.scalar(COMMIT, {"project": project_id, "oid": match["oid"]})
        return (project_id, f"commit:{match['oid']}") if known else None
    if int(match["iid"]) > LARGEST_ID:
        return None
    number = connection.scalar(MERGE_REQUEST, {"project": project_id, "iid": int(match["iid"])})
    return (project_id, f"merge_request:{number}") if number is not None else None
