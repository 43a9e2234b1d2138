"""The floor's statements on SQLite, in a small pool of threads with a connection each."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TypeVar

from benchmarks.peers import floor_postgresql
from benchmarks.peers.floor_merge import Merge
from benchmarks.peers.floor_postgresql import ISSUE

T = TypeVar("T")

THREADS = 4
ISSUES = f"{ISSUE} WHERE i.project_id = ? ORDER BY i.created_at DESC, i.id DESC LIMIT 20"
ONE = f"{ISSUE} WHERE i.project_id = ? AND i.id = ?"
LABELS = "SELECT l.title FROM issue_labels k JOIN labels l ON l.id = k.label_id WHERE k.issue_id = ? ORDER BY l.title"
MERGE_REQUESTS = """
SELECT r.id, r.iid, r.title, r.state, r.source_branch, r.target_branch, r.created_at,
       a.id, a.username, a.name, a.state, c.oid, c.title, c.author_name, c.committed_at
  FROM merge_requests r JOIN users a ON a.id = r.author_id LEFT JOIN commits c ON c.project_id = r.project_id AND c.oid = r.head_oid
 WHERE r.project_id = ? ORDER BY r.created_at DESC, r.id DESC LIMIT 20
"""
# One statement for each commit, which costs less in the same process than one statement that ranks the builds of all.
BUILDS = """
SELECT b.sha, b.id, b.name, b.stage, b.status, b.started_at, b.finished_at FROM builds b
 WHERE b.project_id = ? AND b.sha = ? AND b.current_id IS NULL ORDER BY b.id DESC LIMIT 5
"""
POST = """
INSERT INTO notes (project_id, issue_id, author_id, body, system, upvote, downvote, created_at, updated_at)
SELECT ?1, i.id, ?3, ?4, 0, 0, 0, ?5, ?5 FROM issues i WHERE i.id = ?2 AND i.project_id = ?1
"""
ACTIVITY = """
INSERT INTO activities (project_id, author_id, action, subject, target_id, created_at) VALUES (?, ?, 'commented', 'issue_note', ?, ?)
"""
NOTED = """
INSERT INTO changes (kind, project_id, issue_id, ref, old_state, new_state, created_at)
SELECT 'issue', project_id, id, '', state, state, ?2 FROM issues WHERE id = ?1
"""
AUTHOR = "SELECT id, username, name, state FROM users WHERE id = ?"
COUNTER = """
INSERT INTO counters (project_id, kind, value) VALUES (?, 'issue', 1)
ON CONFLICT (project_id, kind) DO UPDATE SET value = value + 1 RETURNING value
"""
CREATE = """
INSERT INTO issues (project_id, iid, author_id, title, description, state, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, 'opened', ?6, ?6)
"""
OPENED = "INSERT INTO activities (project_id, author_id, action, subject, target_id, created_at) VALUES (?, ?, 'opened', 'issue', ?, ?)"
CREATED = """
INSERT INTO changes (kind, project_id, issue_id, ref, old_state, new_state, created_at) VALUES ('issue', ?, ?, '', NULL, 'opened', ?)
"""
UPDATE = "UPDATE issues SET description = ?3, updated_at = ?4 WHERE project_id = ?1 AND id = ?2"
CHANGED = """
SELECT i.id, i.iid, i.title, i.description, i.state, i.created_at, u.id, u.username, u.name, u.state
  FROM issues i JOIN users u ON u.id = i.author_id WHERE i.id = ?
"""
HEADS = floor_postgresql.HEADS.replace("$1", "?1").replace("$2", "?2")
ACCEPT = (
    "UPDATE refs SET oid = :new WHERE project_id = :project AND name = 'refs/heads/' || :target_branch AND oid = :target",
    "UPDATE projects SET refs_version = refs_version + 1, last_activity_at = :moment WHERE id = :project",
    """UPDATE merge_requests SET state = 'merged', merge_status = 'can_be_merged', head_oid = :source, merge_commit_oid = :new,
              merge_user_id = :user, merged_at = :moment, updated_at = :moment WHERE id = :id""",
    """INSERT INTO refs (project_id, name, oid, is_indexed)
       SELECT :project, 'refs/merge-requests/' || iid || '/head', :source, 0 FROM merge_requests WHERE id = :id""",
    """INSERT INTO notes (project_id, merge_request_id, author_id, body, system, upvote, downvote, created_at, updated_at)
       VALUES (:project, :id, :user, 'Status changed to merged', 1, 0, 0, :moment, :moment)""",
    """INSERT INTO activities (project_id, author_id, action, subject, target_id, push, created_at)
       VALUES (:project, :user, 'accepted', 'merge_request', :id, NULL, :moment),
              (:project, :user, 'pushed', 'ref', NULL, :push, :moment)""",
    """INSERT INTO commits (project_id, oid, first_parent, parents, author_name, author_email, authored_at, authored_offset, committer_name,
                            committer_email, committed_at, committed_offset, title)
       SELECT :project, :new, :target, :parents, name, email, :moment, 0, name, email, :moment, 0, :title FROM users WHERE id = :user""",
    "INSERT INTO branch_moves (project_id, name, oid, moved_at) VALUES (:project, :target_branch, :new, :moment)",
    """INSERT INTO changes (kind, project_id, merge_request_id, ref, old_state, new_state, created_at)
       VALUES ('merge_request', :project, :id, :target_branch, 'opened', 'merged', :moment)""",
)
ACCEPTED = """
SELECT r.id, r.iid, r.title, r.state, u.id, u.username, u.name, u.state
  FROM merge_requests r JOIN users u ON u.id = r.author_id WHERE r.id = ?
"""
OWN_ISSUES = f"{ISSUE} WHERE i.author_id = ? ORDER BY i.created_at DESC, i.id DESC LIMIT 20"
OWN_MERGE_REQUESTS = floor_postgresql.OWN_MERGE_REQUESTS.replace("$1", "?")
PROJECTS, GROUP_PROJECTS = (
    sql.replace("$", "?").replace("SELECT FROM", "SELECT 1 FROM") for sql in (floor_postgresql.PROJECTS, floor_postgresql.GROUP_PROJECTS)
)


class Sqlite:
    def __init__(self, url: str) -> None:
        self._path = url.partition("///")[2]
        self._threads = ThreadPoolExecutor(THREADS, initializer=self._connect)
        self._own = threading.local()

    def _connect(self) -> None:
        connection = sqlite3.connect(self._path, isolation_level=None, cached_statements=200)
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON", "busy_timeout = 10000"):
            connection.execute(f"PRAGMA {pragma}")
        self._own.connection = connection

    async def open(self) -> None:
        """Nothing: each thread opens its connection."""

    async def close(self) -> None:
        self._threads.shutdown()

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: work(self._own.connection))

    async def issues(self, project: int) -> tuple[list[Any], dict[int, list[str]]]:
        return await self._issues(ISSUES, project)

    async def own_issues(self, author: int) -> tuple[list[Any], dict[int, list[str]]]:
        return await self._issues(OWN_ISSUES, author)

    async def _issues(self, sql: str, key: int) -> tuple[list[Any], dict[int, list[str]]]:
        def work(connection: sqlite3.Connection) -> tuple[list[Any], dict[int, list[str]]]:
            rows = connection.execute(sql, (key,)).fetchall()
            return rows, {row[0]: [title for (title,) in connection.execute(LABELS, (row[0],))] for row in rows}

        return await self._run(work)

    async def issue(self, project: int, issue: int) -> tuple[Any | None, list[str]]:
        return await self._issue(ONE, project, issue)

    async def _issue(self, sql: str, project: int, issue: int) -> tuple[Any | None, list[str]]:
        return await self._run(lambda connection: find_issue(connection, sql, project, issue))

    async def merge_requests(self, project: int) -> tuple[list[Any], dict[str, list[Any]]]:
        def work(connection: sqlite3.Connection) -> tuple[list[Any], dict[str, list[Any]]]:
            rows = connection.execute(MERGE_REQUESTS, (project,)).fetchall()
            return rows, {row[11]: connection.execute(BUILDS, (project, row[11])).fetchall() for row in rows}

        return await self._run(work)

    async def post(self, project: int, issue: int, author: int, body: str) -> tuple[int, str, tuple[Any, ...]] | None:
        return await self._post(AUTHOR, project, issue, author, body)

    async def _post(self, find_author: str, project: int, issue: int, author: int, body: str) -> tuple[int, str, tuple[Any, ...]] | None:
        created_at = _now()

        def work(connection: sqlite3.Connection) -> tuple[int, str, tuple[Any, ...]] | None:
            connection.execute("BEGIN IMMEDIATE")
            made = connection.execute(POST, (project, issue, author, body, created_at))
            note = made.lastrowid if made.rowcount else None
            if note is not None:
                connection.execute(ACTIVITY, (project, author, note, created_at))
                connection.execute(NOTED, (issue, created_at))
            connection.execute("COMMIT")
            return None if note is None else (note, created_at, connection.execute(find_author, (author,)).fetchone())

        return await self._run(work)

    async def create(self, project: int, author: int, title: str, description: str | None) -> tuple[Any, tuple[Any, ...]]:
        created_at = _now()

        def work(connection: sqlite3.Connection) -> tuple[Any, tuple[Any, ...]]:
            connection.execute("BEGIN IMMEDIATE")
            ((iid,),) = connection.execute(COUNTER, (project,)).fetchall()
            issue = connection.execute(CREATE, (project, iid, author, title, description, created_at)).lastrowid
            connection.execute(OPENED, (project, author, issue, created_at))
            connection.execute(CREATED, (project, issue, created_at))
            connection.execute("COMMIT")
            return (issue, iid, created_at), connection.execute(AUTHOR, (author,)).fetchone()

        return await self._run(work)

    async def update(self, project: int, issue: int, description: str | None) -> tuple[Any, ...] | None:
        return await self._update(lambda connection: connection.execute(CHANGED, (issue,)).fetchone(), project, issue, description)

    async def _update(self, find: Callable[[sqlite3.Connection], T], project: int, issue: int, description: str | None) -> T | None:
        def work(connection: sqlite3.Connection) -> T | None:
            connection.execute("BEGIN IMMEDIATE")
            changed = connection.execute(UPDATE, (project, issue, description, _now())).rowcount
            connection.execute("COMMIT")
            return find(connection) if changed else None

        return await self._run(work)

    async def heads(self, project: int, merge_request: int) -> tuple[Any, ...] | None:
        return await self._run(lambda connection: connection.execute(HEADS, (project, merge_request)).fetchone())

    async def accept(self, project: int, merge_request: int, user: int, merge: Merge) -> tuple[Any, ...] | None:
        values = {**asdict(merge), "project": project, "id": merge_request, "user": user, "moment": _now()}

        def work(connection: sqlite3.Connection) -> tuple[Any, ...] | None:
            connection.execute("BEGIN IMMEDIATE")
            has_moved = connection.execute(ACCEPT[0], values).rowcount
            for statement in ACCEPT[1:] if has_moved else ():
                connection.execute(statement, values)
            connection.execute("COMMIT")
            return connection.execute(ACCEPTED, (merge_request,)).fetchone() if has_moved else None

        return await self._run(work)

    async def own_merge_requests(self, author: int) -> list[Any]:
        return await self._run(lambda connection: connection.execute(OWN_MERGE_REQUESTS, (author,)).fetchall())

    async def projects(self, member: int) -> list[Any]:
        return await self._run(lambda connection: connection.execute(PROJECTS, (member,)).fetchall())

    async def group_projects(self, user: int, path: str) -> list[Any]:
        return await self._run(lambda connection: connection.execute(GROUP_PROJECTS, (user, path)).fetchall())


def find_issue(connection: sqlite3.Connection, sql: str, project: int, issue: int) -> tuple[Any | None, list[str]]:
    """The row of an issue, and the titles of its labels."""
    row = connection.execute(sql, (project, issue)).fetchone()
    return row, [title for (title,) in connection.execute(LABELS, (issue,))]


def _now() -> str:
    """The current time in the format of the service's rows."""
    return datetime.now(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
