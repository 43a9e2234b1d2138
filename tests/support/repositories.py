"""Repositories whose refs a test writes itself with git: the database takes them over silently, without the effects of a push.

Before each operation the refs of files that a test has changed become rows; after it, the files show the refs of the database.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import event

from graph.context import Context, Services
from graph.git_access import RepositoryGrant
from graph.operations.execution import Graph
from graph.operations.transaction import commit_and_notify, session_for, write_transaction
from graph.rules.git import ref_updates, refs
from storage import tables
from storage.database.engine import Database, DatabaseSession, now
from storage.git import projection
from storage.git.projection import RefProjection
from storage.git.protocol.push import RefCommand
from storage.git.ref_names import DEFAULT_HEAD
from storage.git.repositories import Repositories
from storage.git.repository import RefTargets, Repository
from storage.tables.git import commits
from storage.tables.git import refs as git_refs
from storage.tables.projects import projects
from tests.support.git_history import git

T = TypeVar("T")

Stored = list[tuple[str, str, str | None]]


class EditableRepository(Repository):
    """A repository whose refs a test can write."""

    def move_ref(self, name: str, new: str | None, old: str | None) -> None:
        """Moves a ref of the files from `old`; None is a ref that does not exist."""
        change = f"update {name}\0{new or '0' * 40}\0{old or '0' * 40}\0"
        git(self.path, "update-ref", "--stdin", "-z", stdin=change.encode())


class EditableRepositories(Repositories):
    """Repositories of a test. Work that the test gives sees current refs, and the database takes over those that it writes."""

    def __init__(self, root: Path, database: Database) -> None:
        super().__init__(root)
        self.database = database
        self._sync_lock = asyncio.Lock()
        self._has_committed = True
        """Whether the database has changed since `project`."""
        event.listen(database.engine.sync_engine, "commit", self._note_commit)

    def _note_commit(self, connection: object) -> None:
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
                is_rewritten = projection.read_version(path) is None
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
                if version and projection.read_version(path) != version:
                    async with projection.lock(path):
                        rows = await self._rows(project_id)
                        projection.write(path, RefProjection(version, default or unborn or DEFAULT_HEAD, rows))

    def _paths(self) -> dict[int, Path]:
        if not self.root.is_dir():
            return {}
        return {int(path.stem): path for path in self.root.iterdir() if path.suffix == ".git" and (path / "HEAD").is_file()}

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
        twin = Database(self.database.url.render_as_string(hide_password=False))
        try:
            async with write_transaction(twin) as session:
                for name, oid, _ in old:
                    if name not in {row[0] for row in rows}:
                        await session.execute(git_refs.remove(project_id, name, oid))
                for name, oid, peeled in rows:
                    if (name, oid, peeled) not in old:
                        await put(session, twin.dialect, project_id, name, oid, peeled)
                await session.execute(git_refs.advance_version([project_id], now()))
        finally:
            await twin.close()
        self._has_committed = True


async def put(session: DatabaseSession, dialect: str, project_id: int, name: str, oid: str, peeled: str | None = None) -> None:
    """Writes a row whatever its value was. A branch counts as indexed if the index has its head."""
    is_indexed = name.startswith("refs/heads/") and bool(await session.read(commits.existing_oids(project_id, [oid])))
    row = {"project_id": project_id, "name": name, "oid": oid, "peeled_oid": peeled, "is_indexed": is_indexed}
    await session.execute(git_refs.put(dialect), [row])


def _loose_refs(repository: Path) -> set[str]:
    """The complete names of the refs that are files of their own."""
    start = len(str(repository)) + 1
    return {f"{folder[start:]}/{name}" for folder, _, names in os.walk(repository / "refs") for name in names}


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
                await session.execute(git_refs.remove(grant.project_id, update.ref, current[update.ref]))
            if update.old is not None and current.get(update.ref) != update.old:
                await put(session, services.database.dialect, grant.project_id, update.ref, update.old)
    prepared = await ref_updates.prepare_updates(services, grant.project_id, updates)
    async with session_for(services.database, writing=True) as session:
        viewer = await session.get(tables.User, grant.viewer_id) if grant.viewer_id is not None else None
        context = Context(services, session, viewer, request_id)
        locked = await ref_updates.lock_projects(context, grant.project_id, prepared)
        await ref_updates.apply_updates(context, locked, prepared)
        await commit_and_notify(context)
    if isinstance(services.repositories, EditableRepositories):
        await services.repositories.project()
