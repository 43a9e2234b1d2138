"""Repositories whose refs a test writes itself with git: the database takes them over silently, without the effects of a push.

Before each operation the refs of files that a test has changed become rows; after it, the files show the refs of the database.
"""

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import event

from graph.context import Context, Services
from graph.git_access import RepositoryGrant
from graph.operations.execution import Graph
from graph.operations.transaction import commit_and_notify, session_for, write_transaction
from graph.rules.git import ref_updates, refs
from storage import tables
from storage.database.engine import WAIT_SECONDS, Database, DatabaseSession
from storage.git.protocol.push import RefCommand
from storage.git.refs import projection
from storage.git.refs.projection import RefProjection
from storage.git.refs.ref_names import DEFAULT_HEAD
from storage.git.repositories import Repositories
from storage.git.repository import RefTargets, Repository
from storage.tables.git import commits
from storage.tables.git import refs as git_refs
from storage.tables.projects import projects

T = TypeVar("T")

Stored = list[tuple[str, str, str | None]]
Change = tuple[str, tuple[Any, ...]]
"""A statement and its values."""
PUT_REF = """
INSERT INTO refs (project_id, name, oid, peeled_oid, is_indexed) VALUES ($1, $2, $3, $4,
    CAST($2 AS VARCHAR) LIKE 'refs/heads/%' AND EXISTS (SELECT 1 FROM commits WHERE project_id = $1 AND oid = CAST($3 AS VARCHAR)))
ON CONFLICT (project_id, name) DO UPDATE SET oid = excluded.oid, peeled_oid = excluded.peeled_oid, is_indexed = excluded.is_indexed
"""
"""Writes a ref whatever its value was. A branch counts as indexed if the index has its head."""


class EditableRepository(Repository):
    """A repository whose refs a test can write."""

    def move_ref(self, name: str, new: str | None, old: str | None) -> None:
        """Moves a ref of the files from `old`; None is a ref that does not exist."""
        refs = self.handle.references
        assert self.find_ref(name) == old, f"{name} is not at {old}"
        if new is not None:
            refs.create(name, new, force=old is not None)
        elif old is not None:
            refs.delete(name)


class EditableRepositories(Repositories):
    """Repositories of a test. Work that the test gives sees current refs, and the database takes over those that it writes."""

    def __init__(self, root: Path, database: Database) -> None:
        super().__init__(root)
        self.database = database
        self._sync_lock = asyncio.Lock()
        self._has_committed = True
        """Whether the database has changed since `project`."""
        self._versions: dict[tuple[Path, int, int], int | None] = {}
        event.listen(database.engine.sync_engine, "commit", self.note_commit)
        event.listen(database.engine.sync_engine, "before_cursor_execute", self.note_statement)

    def note_commit(self, connection: object = None) -> None:
        """The database has changed."""
        self._has_committed = True

    def note_statement(self, connection: object, cursor: object, statement: str, *_: object) -> None:
        """A commit that bypasses the engine is no event, but its statements are."""
        if not statement.startswith("SELECT"):
            self._has_committed = True

    async def read(self, project_id: int, work: Callable[[Any], T], *, refs: RefTargets | None = None, cancellable: bool = False) -> T:
        if refs is not None or not (work.__module__ or "").startswith("tests"):
            return await super().read(project_id, work, refs=refs, cancellable=cancellable)
        await self.take_over()
        result = await super().read(project_id, lambda repository: work(EditableRepository(repository.handle)), cancellable=cancellable)
        await self.take_over()
        return result

    async def take_over(self) -> None:
        """Makes rows of the refs that a test has written into the files since the last `project`.

        Git writes them as files of their own. Where it has deleted one it has written all others again, without the version.
        """
        async with self._sync_lock:
            for project_id, path in self._paths().items():
                loose = _loose_refs(path)
                is_rewritten = self._version(path) is None
                if not loose and not is_rewritten:
                    continue
                stored = [row for row in Repository.open(path).stored_refs() if is_rewritten or row[0] in loose]
                rows = await self._rows(project_id)
                if stored != rows if is_rewritten else not set(stored) <= set(rows):
                    # A test deletes no head of a merge request, but the files may not have it yet.
                    kept = {name for name, _, _ in rows if name.startswith("refs/merge-requests/")} - {name for name, _, _ in stored}
                    await self._store(project_id, stored, [row for row in rows if row[0] not in kept and (is_rewritten or row[0] in loose)])
                projection.remove_loose_refs(path, {name: oid for name, oid, _ in stored})
        await self.project()

    async def project(self) -> None:
        """Makes the files show the refs of the database. Reads nothing while there was no commit."""
        if not self._has_committed:
            return
        async with self._sync_lock:
            self._has_committed = False
            found = {key: rest for key, *rest in await self._fetch("SELECT id, refs_version, default_branch, unborn_branch FROM projects")}
            for project_id, path in self._paths().items():
                version, default, unborn = found.get(project_id, (0, None, None))
                if version and self._version(path) != version:
                    async with projection.lock(path):
                        rows = await self._rows(project_id)
                        projection.write(path, RefProjection(version, default or unborn or DEFAULT_HEAD, rows))

    def _paths(self) -> dict[int, Path]:
        try:
            with os.scandir(self.root) as entries:
                names = [entry.name for entry in entries if entry.name.endswith(".git")]
        except FileNotFoundError:
            return {}
        paths = {int(name.removesuffix(".git")): _join(self.root, name) for name in names}
        return {project_id: path for project_id, path in paths.items() if _join(path, "HEAD").exists()}

    def _version(self, path: Path) -> int | None:
        """As `projection.read_version`, but reads the file only when it was replaced."""
        try:
            found = _join(path, "packed-refs").stat()
        except FileNotFoundError:
            return None
        file = path, found.st_ino, found.st_mtime_ns
        if file not in self._versions:
            self._versions[file] = projection.read_version(path)
        return self._versions[file]

    async def _rows(self, project_id: int) -> Stored:
        rows = await self._fetch(f"SELECT name, oid, peeled_oid FROM refs WHERE project_id = {project_id:d}")
        return sorted((name, oid, peeled) for name, oid, peeled in rows)

    async def _fetch(self, sql: str) -> Sequence[Any]:
        """Reads without a session, so that the statement is not counted."""
        reader = await self.database.reader_pool.acquire()
        try:
            return await reader.fetch(sql, ())
        finally:
            self.database.reader_pool.release(reader)

    async def _store(self, project_id: int, rows: Stored, old: Stored) -> None:
        """Writes the rows beside the sessions of the test, which counts their statements and commits."""
        names = {name for name, _, _ in rows}
        removed = [name for name, _, _ in old if name not in names]
        changes: list[Change] = [("DELETE FROM refs WHERE project_id = $1 AND name = $2", (project_id, name)) for name in removed]
        changes += [(PUT_REF, (project_id, name, oid, peeled)) for name, oid, peeled in rows if (name, oid, peeled) not in old]
        changes += [("UPDATE projects SET refs_version = refs_version + 1 WHERE id = $1", (project_id,))]
        if self.database.dialect == "sqlite":
            await asyncio.to_thread(_write_to_sqlite, str(self.database.url.database), changes)
        else:
            reader = await self.database.reader_pool.acquire()
            try:
                await _write_to_postgresql(reader, changes)
            finally:
                self.database.reader_pool.release(reader)
        self._has_committed = True


def _write_to_sqlite(path: str, changes: Sequence[Change]) -> None:
    connection = sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        for sql, values in changes:
            connection.execute(sql.replace("$", "?"), values)
        connection.execute("COMMIT")
    finally:
        connection.close()


async def _write_to_postgresql(reader: Any, changes: Sequence[Change]) -> None:
    connection = reader._connection
    await connection.execute("BEGIN READ WRITE")
    try:
        for sql, values in changes:
            await connection.execute(sql, *values)
        await connection.execute("COMMIT")
    finally:
        if connection.is_in_transaction():
            await connection.execute("ROLLBACK")


async def put(session: DatabaseSession, dialect: str, project_id: int, name: str, oid: str, peeled: str | None = None) -> None:
    """Writes a row whatever its value was. A branch counts as indexed if the index has its head."""
    is_indexed = name.startswith("refs/heads/") and bool(await session.read(commits.existing_oids(project_id, [oid])))
    row = {"project_id": project_id, "name": name, "oid": oid, "peeled_oid": peeled, "is_indexed": is_indexed}
    await session.execute(git_refs.upsert(dialect), [row])


@lru_cache(10_000)
def _join(folder: Path, name: str) -> Path:
    """`folder / name`, which takes longer than asking for the file."""
    return folder / name


def _loose_refs(repository: Path) -> set[str]:
    """The complete names of the refs that are files of their own."""
    found: set[str] = set()
    folders = ["refs"]
    while folders:
        folder = folders.pop()
        with os.scandir(f"{repository}/{folder}") as entries:
            for entry in entries:
                if entry.is_dir():
                    folders.append(f"{folder}/{entry.name}")
                else:
                    found.add(f"{folder}/{entry.name}")
    return found


def keep_refs_in_step(graph: Graph) -> Graph:
    """Makes each operation of the graph see the refs that the test has written, and the files what the operation wrote."""
    repositories = graph.services.repositories
    assert isinstance(repositories, EditableRepositories)

    def wrap(run: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        async def run_in_step(*args: Any, **settings: Any) -> T:
            await repositories.take_over()
            try:
                return await run(*args, **settings)
            finally:
                await repositories.project()

        return run_in_step

    for name in ("_run_query", "_run_mutation"):
        setattr(graph, name, wrap(getattr(graph, name)))
    return graph


async def take_over(services: Services) -> None:
    """Makes the refs of the database those of the files, before a test calls a rule."""
    assert isinstance(services.repositories, EditableRepositories)
    await services.repositories.take_over()


async def push(services: Services, grant: RepositoryGrant, updates: Sequence[RefCommand], request_id: str = "test") -> None:
    """Moves refs as a push does whose objects are there, from their old values, whatever values the test has given them.

    The user's permissions are not checked.
    """
    await take_over(services)
    async with write_transaction(services.database) as session:
        context = Context(services, session, None, "test")
        await context.first(projects.for_update(grant.project_id))
        for update in updates:
            current = await refs.current(context, grant.project_id, [update.ref])
            if update.old is None and current:
                values = {"of_project": grant.project_id, "of_name": update.ref, "old": current[update.ref]}
                await session.execute(git_refs.REMOVE, values)
            if update.old is not None and current.get(update.ref) != update.old:
                await put(session, services.database.dialect, grant.project_id, update.ref, update.old)
    prepared = await ref_updates.prepare_updates(services, grant.project_id, updates, since=grant.version)
    async with session_for(services.database, writing=True) as session:
        viewer = await session.get(tables.User, grant.viewer_id) if grant.viewer_id is not None else None
        context = Context(services, session, viewer, request_id)
        locked = await ref_updates.lock_projects(context, grant.project_id, prepared)
        await ref_updates.apply_updates(context, locked, prepared)
        await commit_and_notify(context)
    if isinstance(services.repositories, EditableRepositories):
        await services.repositories.project()
