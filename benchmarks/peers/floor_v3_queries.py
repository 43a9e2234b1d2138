"""The statements of the floor of REST v3; those that write what the other floor writes are its own."""

import sqlite3
from datetime import UTC, datetime
from typing import Any

from benchmarks.peers import floor_postgresql, floor_sqlite

_MILESTONE = "m.id, m.iid, m.project_id, m.title, m.description, m.state, m.created_at, m.updated_at, m.due_date"
_OWN = "i.id, i.iid, i.project_id, i.title, i.description, i.state, i.created_at, i.updated_at"
_USERS = "s.id, s.username, s.name, s.state, a.id, a.username, a.name, a.state"
_JOINS = "JOIN users a ON a.id = i.author_id LEFT JOIN users s ON s.id = i.assignee_id LEFT JOIN milestones m ON m.id = i.milestone_id"
_TOTAL = "(SELECT coalesce(sum(number), 0) FROM row_counts c WHERE c.project_id = $1 AND c.kind = 'issues')"
# Limit and offset are literals: with parameters, PostgreSQL would plan the statement at every call.
ISSUES = f"""
SELECT {_OWN}, {_MILESTONE}, {_USERS}, {_TOTAL} FROM issues i {_JOINS}
 WHERE i.project_id = $1 ORDER BY i.created_at DESC, i.id DESC LIMIT %d OFFSET %d
"""
ONE = f"SELECT {_OWN}, {_MILESTONE}, {_USERS} FROM issues i {_JOINS} WHERE i.project_id = $1 AND i.id = $2"
UPDATE = f"""
WITH i AS (UPDATE issues SET description = $3, updated_at = $4 WHERE project_id = $1 AND id = $2 RETURNING *)
SELECT {_OWN}, {_MILESTONE}, {_USERS},
       ARRAY(SELECT l.title FROM issue_labels k JOIN labels l ON l.id = k.label_id WHERE k.issue_id = i.id ORDER BY l.title)
  FROM i {_JOINS}
"""
POST = floor_postgresql.POST.replace("u.state FROM note", "u.state, u.email, u.created_at FROM note")
MERGE_REQUEST = f"""
SELECT r.id, r.iid, r.project_id, r.title, r.description, r.state, r.target_branch, r.source_branch,
       (SELECT count(*) FROM notes n WHERE n.merge_request_id = r.id AND n.upvote),
       (SELECT count(*) FROM notes n WHERE n.merge_request_id = r.id AND n.downvote),
       r.source_project_id, r.merge_when_build_succeeds, r.merge_status, {_MILESTONE},
       a.id, a.username, a.name, a.state, a.email, a.created_at, s.id, s.username, s.name, s.state, s.email, s.created_at
  FROM merge_requests r JOIN users a ON a.id = r.author_id LEFT JOIN users s ON s.id = r.assignee_id
  LEFT JOIN milestones m ON m.id = r.milestone_id WHERE r.id = $1
"""
MERGE_REQUEST_LABELS = """
SELECT l.title FROM merge_request_labels k JOIN labels l ON l.id = k.label_id WHERE k.merge_request_id = $1 ORDER BY l.title
"""
AUTHOR = "SELECT id, username, name, state, email, created_at FROM users WHERE id = ?"

SQLITE_ISSUES, SQLITE_ONE, SQLITE_MERGE_REQUEST, SQLITE_MERGE_REQUEST_LABELS = (
    sql.replace("$", "?") for sql in (ISSUES, ONE, MERGE_REQUEST, MERGE_REQUEST_LABELS)
)

Found = tuple[Any | None, list[str]]
"""A row and the titles of its labels."""


class PostgresqlV3(floor_postgresql.Postgresql):
    """Both floors on PostgreSQL."""

    async def v3_issues(self, project: int, limit: int, offset: int) -> tuple[list[Any], dict[int, list[str]]]:
        return await self._issues(ISSUES % (limit, offset), project)

    async def v3_issue(self, project: int, issue: int) -> Found:
        return await self._issue(ONE, project, issue)

    async def v3_post(self, project: int, issue: int, author: int, body: str) -> tuple[Any, ...] | None:
        return await self._post(POST, project, issue, author, body)

    async def v3_update(self, project: int, issue: int, description: str | None) -> Found:
        async with self._pool.acquire() as connection:
            row = await connection.fetchrow(UPDATE, project, issue, description, datetime.now(UTC))
        return row, [] if row is None else row[25]

    async def v3_merge_request(self, merge_request: int) -> Found:
        async with self._pool.acquire() as connection:
            row = await connection.fetchrow(MERGE_REQUEST, merge_request)
            labels = await connection.fetch(MERGE_REQUEST_LABELS, merge_request)
        return row, [title for (title,) in labels]


class SqliteV3(floor_sqlite.Sqlite):
    """Both floors on SQLite."""

    async def v3_issues(self, project: int, limit: int, offset: int) -> tuple[list[Any], dict[int, list[str]]]:
        return await self._issues(SQLITE_ISSUES % (limit, offset), project)

    async def v3_issue(self, project: int, issue: int) -> Found:
        return await self._issue(SQLITE_ONE, project, issue)

    async def v3_post(self, project: int, issue: int, author: int, body: str) -> tuple[Any, ...] | None:
        return await self._post(AUTHOR, project, issue, author, body)

    async def v3_update(self, project: int, issue: int, description: str | None) -> Found:
        def find(connection: sqlite3.Connection) -> Found:
            return floor_sqlite.find_issue(connection, SQLITE_ONE, project, issue)

        return await self._update(find, project, issue, description) or (None, [])

    async def v3_merge_request(self, merge_request: int) -> Found:
        def work(connection: sqlite3.Connection) -> Found:
            row = connection.execute(SQLITE_MERGE_REQUEST, (merge_request,)).fetchone()
            return row, [title for (title,) in connection.execute(SQLITE_MERGE_REQUEST_LABELS, (merge_request,))]

        return await self._run(work)
