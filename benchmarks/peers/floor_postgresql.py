"""The floor's statements on PostgreSQL, through a pool of asyncpg."""

from datetime import UTC, datetime
from typing import Any

import asyncpg

from benchmarks.peers.floor_merge import Merge

ISSUE = """
SELECT i.id, i.iid, i.title, i.description, i.state, i.created_at, i.updated_at,
       m.id, m.iid, m.title, m.state, m.due_date,
       a.id, a.username, a.name, a.state, s.id, s.username, s.name, s.state
  FROM issues i JOIN users a ON a.id = i.author_id LEFT JOIN users s ON s.id = i.assignee_id LEFT JOIN milestones m ON m.id = i.milestone_id
"""
# The limit is a literal: with a parameter, the server would plan the statement at every call.
ISSUES = f"{ISSUE} WHERE i.project_id = $1 ORDER BY i.created_at DESC, i.id DESC LIMIT 20"
ONE = f"{ISSUE} WHERE i.project_id = $1 AND i.id = $2"
LABELS = """
SELECT k.issue_id, l.title FROM issue_labels k JOIN labels l ON l.id = k.label_id WHERE k.issue_id = ANY($1::int[]) ORDER BY l.title
"""
MERGE_REQUESTS = """
SELECT r.id, r.iid, r.title, r.state, r.source_branch, r.target_branch, r.created_at,
       a.id, a.username, a.name, a.state, c.oid, c.title, c.author_name, c.committed_at
  FROM merge_requests r JOIN users a ON a.id = r.author_id LEFT JOIN commits c ON c.project_id = r.project_id AND c.oid = r.head_oid
 WHERE r.project_id = $1 ORDER BY r.created_at DESC, r.id DESC LIMIT 20
"""
BUILDS = """
SELECT b.* FROM unnest($2::text[]) AS head (oid) CROSS JOIN LATERAL (
  SELECT b.sha, b.id, b.name, b.stage, b.status, b.started_at, b.finished_at FROM builds b
   WHERE b.project_id = $1 AND b.sha = head.oid AND b.current_id IS NULL ORDER BY b.id DESC LIMIT 5) b
"""
POST = """
WITH note AS (
  INSERT INTO notes (project_id, issue_id, author_id, body, system, upvote, downvote, created_at, updated_at)
  SELECT $1, i.id, $3, $4, false, false, false, $5, $5 FROM issues i WHERE i.id = $2 AND i.project_id = $1 RETURNING id, author_id),
activity AS (
  INSERT INTO activities (project_id, author_id, action, subject, target_id, created_at)
  SELECT $1, $3, 'commented', 'issue_note', note.id, $5 FROM note),
changed AS (
  INSERT INTO changes (kind, project_id, issue_id, ref, old_state, new_state, created_at)
  SELECT 'issue', $1, i.id, '', i.state, i.state, $5 FROM note, issues i WHERE i.id = $2)
SELECT note.id, u.id, u.username, u.name, u.state FROM note JOIN users u ON u.id = note.author_id
"""
CREATE = """
WITH counter AS (
  INSERT INTO counters (project_id, kind, value) VALUES ($1, 'issue', 1)
  ON CONFLICT (project_id, kind) DO UPDATE SET value = counters.value + 1 RETURNING value),
issue AS (
  INSERT INTO issues (project_id, iid, author_id, title, description, state, created_at, updated_at)
  SELECT $1, counter.value, $2, $3, $4, 'opened', $5, $5 FROM counter RETURNING id, iid, author_id),
activity AS (
  INSERT INTO activities (project_id, author_id, action, subject, target_id, created_at)
  SELECT $1, $2, 'opened', 'issue', issue.id, $5 FROM issue),
changed AS (
  INSERT INTO changes (kind, project_id, issue_id, ref, old_state, new_state, created_at)
  SELECT 'issue', $1, issue.id, '', NULL, 'opened', $5 FROM issue)
SELECT issue.id, issue.iid, u.id, u.username, u.name, u.state FROM issue JOIN users u ON u.id = issue.author_id
"""
UPDATE = """
UPDATE issues i SET description = $3, updated_at = $4 FROM users u WHERE i.project_id = $1 AND i.id = $2 AND u.id = i.author_id
RETURNING i.id, i.iid, i.title, i.description, i.state, i.created_at, u.id, u.username, u.name, u.state
"""
HEADS = """
SELECT r.source_branch, r.target_branch, s.oid, t.oid
  FROM merge_requests r JOIN refs s ON s.project_id = r.source_project_id AND s.name = 'refs/heads/' || r.source_branch
  JOIN refs t ON t.project_id = r.project_id AND t.name = 'refs/heads/' || r.target_branch
 WHERE r.project_id = $1 AND r.id = $2 AND r.state IN ('opened', 'reopened')
"""
ACCEPT = """
WITH moved AS (UPDATE refs SET oid = $8 WHERE project_id = $1 AND name = 'refs/heads/' || $5 AND oid = $7 RETURNING id),
versioned AS (UPDATE projects SET refs_version = refs_version + 1, last_activity_at = $4 WHERE id = $1),
merged AS (
  UPDATE merge_requests SET state = 'merged', merge_status = 'can_be_merged', head_oid = $6, merge_commit_oid = $8, merge_user_id = $3,
         merged_at = $4, updated_at = $4 WHERE id = $2 AND EXISTS (SELECT FROM moved) RETURNING id, iid, title, state, author_id),
head AS (
  INSERT INTO refs (project_id, name, oid, is_indexed) SELECT $1, 'refs/merge-requests/' || merged.iid || '/head', $6, false FROM merged),
noted AS (
  INSERT INTO notes (project_id, merge_request_id, author_id, body, system, upvote, downvote, created_at, updated_at)
  SELECT $1, merged.id, $3, 'Status changed to merged', true, false, false, $4, $4 FROM merged),
accepted AS (
  INSERT INTO activities (project_id, author_id, action, subject, target_id, created_at)
  SELECT $1, $3, 'accepted', 'merge_request', merged.id, $4 FROM merged),
pushed AS (
  INSERT INTO activities (project_id, author_id, action, subject, push, created_at)
  SELECT $1, $3, 'pushed', 'ref', $9::json, $4 FROM merged),
indexed AS (
  INSERT INTO commits (project_id, oid, first_parent, parents, author_name, author_email, authored_at, authored_offset, committer_name,
                       committer_email, committed_at, committed_offset, title)
  SELECT $1, $8, $7, $10::json, u.name, u.email, $4, 0, u.name, u.email, $4, 0, $11 FROM merged, users u WHERE u.id = $3),
history AS (INSERT INTO branch_moves (project_id, name, oid, moved_at) SELECT $1, $5, $8, $4 FROM merged),
changed AS (
  INSERT INTO changes (kind, project_id, merge_request_id, ref, old_state, new_state, created_at)
  SELECT 'merge_request', $1, merged.id, $5, 'opened', 'merged', $4 FROM merged)
SELECT merged.id, merged.iid, merged.title, merged.state, u.id, u.username, u.name, u.state
  FROM merged JOIN users u ON u.id = merged.author_id
"""
OWN_ISSUES = f"{ISSUE} WHERE i.author_id = $1 ORDER BY i.created_at DESC, i.id DESC LIMIT 20"
OWN_MERGE_REQUESTS = """
SELECT r.id, r.iid, r.title, r.state, r.source_branch, r.target_branch, r.created_at, a.id, a.username, a.name, a.state
  FROM merge_requests r JOIN users a ON a.id = r.author_id WHERE r.author_id = $1 ORDER BY r.created_at DESC, r.id DESC LIMIT 20
"""
PROJECTS = """
SELECT p.id, p.name, p.path, n.path || '/' || p.path, p.description, p.visibility_level, p.created_at,
       (SELECT coalesce(sum(c.number), 0) FROM row_counts c WHERE c.project_id = p.id AND c.kind = 'issues' AND c.state = 'opened'),
       o.id, o.username, o.name, o.state
  FROM projects p JOIN namespaces n ON n.id = p.namespace_id LEFT JOIN users o ON o.id = n.owner_id
 WHERE n.owner_id = $1 OR EXISTS (SELECT FROM project_members m WHERE m.project_id = p.id AND m.user_id = $1)
    OR EXISTS (SELECT FROM group_members g WHERE g.group_id = n.id AND g.user_id = $1)
 ORDER BY p.created_at DESC, p.id DESC LIMIT 20
"""
GROUP_PROJECTS = """
SELECT p.id, p.name, p.path, n.path || '/' || p.path, p.description, p.visibility_level, p.created_at,
       (SELECT coalesce(sum(c.number), 0) FROM row_counts c WHERE c.project_id = p.id AND c.kind = 'issues' AND c.state = 'opened')
  FROM namespaces n JOIN projects p ON p.namespace_id = n.id
 WHERE n.path_key = $2 AND (p.visibility_level > 0
    OR EXISTS (SELECT FROM project_members m WHERE m.project_id = p.id AND m.user_id = $1)
    OR EXISTS (SELECT FROM group_members g WHERE g.group_id = n.id AND g.user_id = $1))
 ORDER BY p.created_at DESC, p.id DESC LIMIT 20
"""


class Postgresql:
    def __init__(self, url: str) -> None:
        self._url = url.replace("+asyncpg", "")
        self._pool: Any = None

    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(self._url, min_size=1, max_size=20, server_settings={"jit": "off"})

    async def close(self) -> None:
        await self._pool.close()

    async def issues(self, project: int) -> tuple[list[Any], dict[int, list[str]]]:
        return await self._issues(ISSUES, project)

    async def own_issues(self, author: int) -> tuple[list[Any], dict[int, list[str]]]:
        return await self._issues(OWN_ISSUES, author)

    async def _issues(self, sql: str, key: int) -> tuple[list[Any], dict[int, list[str]]]:
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(sql, key)
            labels: dict[int, list[str]] = {}
            for issue, title in await connection.fetch(LABELS, [row[0] for row in rows]):
                labels.setdefault(issue, []).append(title)
        return rows, labels

    async def issue(self, project: int, issue: int) -> tuple[Any | None, list[str]]:
        return await self._issue(ONE, project, issue)

    async def _issue(self, sql: str, project: int, issue: int) -> tuple[Any | None, list[str]]:
        async with self._pool.acquire() as connection:
            row = await connection.fetchrow(sql, project, issue)
            labels = await connection.fetch(LABELS, [issue])
        return row, [title for _, title in labels]

    async def merge_requests(self, project: int) -> tuple[list[Any], dict[str, list[Any]]]:
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(MERGE_REQUESTS, project)
            builds: dict[str, list[Any]] = {}
            for build in await connection.fetch(BUILDS, project, [row[11] for row in rows]):
                builds.setdefault(build[0], []).append(build)
        return rows, builds

    async def post(self, project: int, issue: int, author: int, body: str) -> tuple[int, datetime, tuple[Any, ...]] | None:
        return await self._post(POST, project, issue, author, body)

    async def _post(self, sql: str, project: int, issue: int, author: int, body: str) -> tuple[int, datetime, tuple[Any, ...]] | None:
        created_at = datetime.now(UTC)
        async with self._pool.acquire() as connection:
            row = await connection.fetchrow(sql, project, issue, author, body, created_at)
        return None if row is None else (row[0], created_at, tuple(row[1:]))

    async def create(self, project: int, author: int, title: str, description: str | None) -> tuple[Any, tuple[Any, ...]]:
        created_at = datetime.now(UTC)
        async with self._pool.acquire() as connection:
            row = await connection.fetchrow(CREATE, project, author, title, description, created_at)
        return (row[0], row[1], created_at), tuple(row[2:])

    async def update(self, project: int, issue: int, description: str | None) -> tuple[Any, ...] | None:
        async with self._pool.acquire() as connection:
            row = await connection.fetchrow(UPDATE, project, issue, description, datetime.now(UTC))
        return None if row is None else tuple(row)

    async def heads(self, project: int, merge_request: int) -> tuple[Any, ...] | None:
        async with self._pool.acquire() as connection:
            row = await connection.fetchrow(HEADS, project, merge_request)
        return None if row is None else tuple(row)

    async def accept(self, project: int, merge_request: int, user: int, merge: Merge) -> tuple[Any, ...] | None:
        values = (merge.target_branch, merge.source, merge.target, merge.new, merge.push, merge.parents, merge.title)
        async with self._pool.acquire() as connection:
            row = await connection.fetchrow(ACCEPT, project, merge_request, user, datetime.now(UTC), *values)
        return None if row is None else tuple(row)

    async def own_merge_requests(self, author: int) -> list[Any]:
        async with self._pool.acquire() as connection:
            return await connection.fetch(OWN_MERGE_REQUESTS, author)  # type: ignore[no-any-return]

    async def projects(self, member: int) -> list[Any]:
        async with self._pool.acquire() as connection:
            return await connection.fetch(PROJECTS, member)  # type: ignore[no-any-return]

    async def group_projects(self, user: int, path: str) -> list[Any]:
        async with self._pool.acquire() as connection:
            return await connection.fetch(GROUP_PROJECTS, user, path)  # type: ignore[no-any-return]
