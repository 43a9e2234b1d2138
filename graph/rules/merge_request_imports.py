"""Imports of merge requests as background jobs: a row says how far each has come, and every process takes those that nobody works on.

A batch is one transaction: the merge requests of some merges, and the progress past them. So a kill at any moment loses no more than the
batch on its way, the next process goes on behind the last one, and nothing is written twice. A process has a lease while it works,
which each batch renews; who was taken over by another writes nothing more. An import goes with its project.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import structlog

from graph.context import Context, Services
from graph.rules import merged_history
from graph.transaction import keep, session_for
from storage import tables
from storage.git.merges import highest_number, merge_line
from storage.git.program import GitFailed
from storage.git.repository import NotARepository, Repository, UnknownCommit
from storage.tables import ImportState, merge_request_imports

BATCH = 200
"""Merges of one transaction."""
LEASE = timedelta(seconds=60)
"""How long a batch may take; an import whose process was killed goes on after that."""
PAUSE = 20.0
"""Seconds between two looks for imports that another process has left."""
PHASE = "merge requests"

log = structlog.get_logger("graph")


async def start(context: Context, project: tables.Project) -> tables.MergeRequestImport:
    """Queues an import; one that is on its way goes on as it is."""
    # Two that start the first import of a project at once wait for each other.
    await context.session.execute(tables.lock(tables.Project, project.id))
    row = await context.first(merge_request_imports.lock_of_project(project.id))
    if row is None:
        row = await context.add(tables.MergeRequestImport(project_id=project.id, user_id=context.viewer.id))
    elif row.state not in merge_request_imports.UNFINISHED:
        row.state, row.user_id, row.created_at = ImportState.QUEUED, context.viewer.id, context.now()
        row.tip_oid = row.total = row.error = row.lease_until = row.finished_at = None
        row.processed = row.imported = row.known = row.skipped = 0
    row.updated_at = context.now()
    context.after_commit.append(context.services.imports.wake)
    return row


async def run(services: Services) -> None:
    """Does the imports that there are, and those that are queued, for ever."""
    while True:
        await run_pending(services)
        await services.imports.woken(PAUSE)


async def run_pending(services: Services) -> None:
    """Does all imports that no process works on, one after the other. Raises when the database is away: the lease ends by itself."""
    while (job := await _take(services)) is not None:
        try:
            await _Import(services, job).run()
        except _TakenOver:
            log.info("import taken over", project_id=job.project_id)
        except (GitFailed, NotARepository, UnknownCommit, OSError) as error:
            log.error("import failed", project_id=job.project_id, error=str(error))
            await _fail(services, job, "The repository cannot be read right now; the log of the service says why. Start the import again.")


class _TakenOver(Exception):
    """Another process has the import, or it went with its project."""


@dataclass
class _Job:
    """What a process has taken: everything that it needs to go on."""

    id: int
    project_id: int
    user_id: int | None
    lease_until: datetime
    tip_oid: str | None
    processed: int


async def _take(services: Services) -> _Job | None:
    async with session_for(services.database, writing=True) as session:
        context = Context(services, session, None, "import")
        row = await context.first(merge_request_imports.next_free(context.now()))
        if row is None:
            return None
        row.state, row.lease_until = ImportState.RUNNING, context.now() + LEASE
        job = _Job(row.id, row.project_id, row.user_id, row.lease_until, row.tip_oid, row.processed)
        await keep(context)
        return job


async def _fail(services: Services, job: _Job, text: str) -> None:
    async with session_for(services.database, writing=True) as session:
        context = Context(services, session, None, "import")
        row = await context.first(merge_request_imports.lock_leased(job.id, job.lease_until))
        if row is not None:
            row.state, row.error, row.lease_until, row.updated_at = ImportState.FAILED, text, None, context.now()
            row.finished_at = context.now()
            await keep(context)


class _Import:
    """One import on its way, in this process."""

    def __init__(self, services: Services, job: _Job) -> None:
        self._services = services
        self._job = job

    async def run(self) -> None:
        job, services = self._job, self._services
        line, highest = await services.repositories.read(job.project_id, self._read_line) if await self._find_tip() else ([], 0)
        self._tell(len(line))
        if job.processed >= len(line):
            await self._write([], [], len(line), highest)
        while job.processed < len(line):
            oids = line[job.processed : job.processed + BATCH]
            async with session_for(services.database, writing=False) as session:
                known = await merged_history.known_merges(Context(services, session, None, "import"), job.project_id, oids)
            here = {oid for oid in known if oid is not None}
            past = await services.repositories.read(job.project_id, partial(merged_history.read, oids=oids, known=here))
            await self._write(oids, past, len(line), highest)
            self._tell(len(line))
            # Others have their turn between two batches.
            await asyncio.sleep(0)

    async def _find_tip(self) -> bool:
        """The commit whose history is read: the default branch as it is at the first batch. False in an empty repository."""
        job, services = self._job, self._services
        if job.tip_oid is None:
            async with session_for(services.database, writing=False) as session:
                project = await Context(services, session, None, "import").rows_by_id(tables.Project).get(job.project_id)
            if project is None:
                raise _TakenOver
            branch = project.default_branch or ""
            job.tip_oid = await services.repositories.read(job.project_id, lambda repository: repository.resolve(branch))
        return job.tip_oid is not None

    def _read_line(self, repository: Repository) -> tuple[list[str], int]:
        line = merge_line(repository, self._job.tip_oid or "")
        return line, highest_number(repository, line)

    async def _write(self, oids: Sequence[str], past: Sequence[merged_history.Past], total: int, highest: int) -> None:
        """Writes a batch and the progress past it. Raises _TakenOver."""
        job, services = self._job, self._services
        async with session_for(services.database, writing=True) as session:
            context = Context(services, session, None, "import")
            row = await context.first(merge_request_imports.lock_leased(job.id, job.lease_until))
            if row is None:
                raise _TakenOver
            project = await session.get(tables.Project, job.project_id)
            context.viewer_or_none = await session.get(tables.User, job.user_id) if job.user_id is not None else None
            if project is None:
                raise _TakenOver
            if context.viewer_or_none is None:
                row.state, row.error = ImportState.FAILED, "The user who started this import is gone; start it again."
                row.lease_until, row.finished_at = None, context.now()
                await keep(context)
                raise _TakenOver
            # Between the look and the lock somebody may have merged.
            known = await merged_history.known_merges(context, job.project_id, oids)
            fresh = [each for each in past if each.merged.merge.oid not in known]
            await merged_history.write(context, project, fresh, highest)
            there = sum(oid in known for oid in oids)
            row.tip_oid, row.total, row.updated_at = job.tip_oid, total, context.now()
            row.processed += len(oids)
            row.imported += len(fresh)
            row.known += there
            row.skipped += len(oids) - len(fresh) - there
            job.processed = row.processed
            if row.processed >= total:
                row.state, row.lease_until, row.finished_at = ImportState.FINISHED, None, context.now()
            else:
                row.lease_until = job.lease_until = context.now() + LEASE
            await keep(context)

    def _tell(self, total: int) -> None:
        if self._services.progress is not None and total:
            self._services.progress(PHASE, self._job.processed, total)
