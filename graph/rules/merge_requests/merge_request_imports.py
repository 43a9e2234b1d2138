"""Imports of merge requests from history, as background jobs.

A row stores the progress, and any process takes an import without a lease. A batch is one transaction: the merge requests of some
merges, and the new progress. A crash therefore loses at most the current batch, the next process continues after the last committed
one, and nothing is written twice. A process has a lease while it works, which it renews also during a batch, because a batch of large
changes may take longer than the lease; after another process has taken over the lease, it writes nothing more. Deleting a project deletes
its import.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import structlog

from graph.context import Context, Services
from graph.jobs import lease_renewal
from graph.jobs.import_polls import UNEXPECTED_MESSAGE, has_unleased_import
from graph.jobs.lease_renewal import LeaseLost
from graph.operations.transaction import commit_and_notify, session_for
from graph.rules.git import refs
from graph.rules.merge_requests import merged_history
from storage import tables
from storage.database.errors import is_unavailable
from storage.git.history.merge_history import first_parent_merges, highest_number
from storage.git.refs.ref_names import BRANCHES
from storage.git.repository import NotARepository, Repository, UnknownCommit
from storage.git.subprocesses.git_command import GitCommandError
from storage.tables import ImportState, imports

BATCH_SIZE = 200
"""Merges per transaction."""
LEASE_DURATION = timedelta(seconds=60)
"""After a crash, another process continues the import when the lease expires."""
RENEW_SECONDS = 20.0
"""Seconds between renewals of the lease, besides those of each batch."""
POLL_SECONDS = 20.0
"""Seconds between polls for imports whose lease has expired."""
PROGRESS_PHASE = "merge requests"

log = structlog.get_logger("graph")


async def queue_import(context: Context, project: tables.Project) -> tables.MergeRequestImport:
    """Queue an import; an unfinished one continues unchanged."""
    # Serializes concurrent calls that would both insert the first import of a project.
    await context.session.execute(tables.lock(tables.Project, project.id))
    row = await context.first(imports.for_update(tables.MergeRequestImport, project.id))
    if row is None:
        row = await context.add(tables.MergeRequestImport(project_id=project.id, user_id=context.viewer.id))
    elif row.state not in imports.UNFINISHED:
        row.state, row.user_id, row.created_at = ImportState.QUEUED, context.viewer.id, context.now()
        row.tip_oid = row.total = row.error = row.lease_until = row.finished_at = None
        row.processed = row.imported = row.known = row.skipped = 0
    row.updated_at = context.now()
    context.after_commit.append(context.services.import_wakeup.notify)
    return row


async def run_forever(services: Services) -> None:
    """Run pending imports, and wait for new ones, until canceled."""
    while True:
        await run_pending(services)
        await services.import_wakeup.wait(POLL_SECONDS)


async def run_pending(services: Services) -> None:
    """Run all imports without a lease, one after the other.

    Raises when the database is unavailable; the lease then expires.
    """
    while (job := await _lease_next(services)) is not None:
        try:
            await _ImportRun(services, job).run()
        except LeaseLost:
            log.info("import lease lost", project_id=job.project_id)
        except (GitCommandError, NotARepository, UnknownCommit, OSError) as error:
            log.error("import failed", project_id=job.project_id, error=str(error))
            await _mark_failed(services, job, "The repository cannot be read; the server log has the reason. Start the import again.")
        except Exception as error:
            if is_unavailable(error):
                raise
            # It would fail in the same way each time that its lease expires.
            log.error("import failed", project_id=job.project_id, exc_info=error)
            await _mark_failed(services, job, UNEXPECTED_MESSAGE)


@dataclass
class _LeasedImport:
    """An import leased by this process, with the state needed to continue it."""

    id: int
    project_id: int
    user_id: int | None
    lease_until: datetime
    tip_oid: str | None
    processed: int


async def _lease_next(services: Services) -> _LeasedImport | None:
    if not await has_unleased_import(services, tables.MergeRequestImport):
        return None
    async with session_for(services.database, writing=True) as session:
        context = Context(services, session, None, "import")
        row = await context.first(imports.next_unleased_for_update(tables.MergeRequestImport, context.now()))
        if row is None:
            return None
        row.state, row.lease_until = ImportState.RUNNING, context.now() + LEASE_DURATION
        job = _LeasedImport(row.id, row.project_id, row.user_id, row.lease_until, row.tip_oid, row.processed)
        await commit_and_notify(context)
        return job


async def _mark_failed(services: Services, job: _LeasedImport, message: str) -> None:
    async with session_for(services.database, writing=True) as session:
        context = Context(services, session, None, "import")
        row = await context.first(imports.leased_for_update(tables.MergeRequestImport, job.id, job.lease_until))
        if row is not None:
            row.state, row.error, row.lease_until, row.updated_at = ImportState.FAILED, message, None, context.now()
            row.finished_at = context.now()
            await commit_and_notify(context)


class _ImportRun:
    """One run of an import, in this process."""

    def __init__(self, services: Services, job: _LeasedImport) -> None:
        self._services = services
        self._job = job
        self._is_finished = False
        self._lease_lock = asyncio.Lock()
        """Locked while a transaction compares and changes the lease, so that a batch and a renewal do not take it from each other."""

    async def run(self) -> None:
        """Write all batches. Raises LeaseLost, and what reading the repository raises."""
        work = asyncio.ensure_future(self._write_batches())
        try:
            await lease_renewal.renew_until_done(work, self._renew_lease, RENEW_SECONDS)
        finally:
            await lease_renewal.end(work)

    async def _renew_lease(self) -> None:
        """Extend the lease. Raises LeaseLost."""
        async with self._lease_lock:
            if self._is_finished:
                return
            async with session_for(self._services.database, writing=True) as session:
                context = Context(self._services, session, None, "import")
                row = await self._find_leased(context)
                row.lease_until = self._job.lease_until = context.now() + LEASE_DURATION
                await commit_and_notify(context)

    async def _find_leased(self, context: Context) -> tables.MergeRequestImport:
        """The row of the import, locked. Raises LeaseLost."""
        row = await context.first(imports.leased_for_update(tables.MergeRequestImport, self._job.id, self._job.lease_until))
        if row is None:
            raise LeaseLost
        return row

    async def _write_batches(self) -> None:
        job, services = self._job, self._services
        merge_oids: list[str] = []
        highest = 0
        if await self._find_tip():
            merge_oids, highest = await services.repositories.read(job.project_id, self._read_merge_line, cancellable=True)
        self._report_progress(len(merge_oids))
        if job.processed >= len(merge_oids):
            await self._write_batch([], [], len(merge_oids), highest)
        while job.processed < len(merge_oids):
            oids = merge_oids[job.processed : job.processed + BATCH_SIZE]
            async with session_for(services.database, writing=False) as session:
                known = await merged_history.load_known_merges(Context(services, session, None, "import"), job.project_id, oids)
            known_oids = {oid for oid in known if oid is not None}
            read = partial(merged_history.read_past_merges, oids=oids, known=known_oids)
            past_merges = await services.repositories.read(job.project_id, read, cancellable=True)
            await self._write_batch(oids, past_merges, len(merge_oids), highest)
            self._report_progress(len(merge_oids))
            # Lets other tasks run between two batches.
            await asyncio.sleep(0)

    async def _find_tip(self) -> bool:
        """Resolve the commit whose history is read: the head of the default branch at the first batch.

        False if there is none.
        """
        job, services = self._job, self._services
        if job.tip_oid is None:
            async with session_for(services.database, writing=False) as session:
                context = Context(services, session, None, "import")
                project = await context.rows_by_id(tables.Project).get(job.project_id)
                if project is None:
                    raise LeaseLost
                job.tip_oid = await refs.find(context, job.project_id, f"{BRANCHES}{project.default_branch}")
        return job.tip_oid is not None

    def _read_merge_line(self, repository: Repository) -> tuple[list[str], int]:
        merge_oids = first_parent_merges(repository, self._job.tip_oid or "")
        return merge_oids, highest_number(repository, merge_oids)

    async def _write_batch(self, oids: Sequence[str], past_merges: Sequence[merged_history.PastMerge], total: int, highest: int) -> None:
        """Write a batch and the progress. Raises LeaseLost."""
        job, services = self._job, self._services
        async with self._lease_lock, session_for(services.database, writing=True) as session:
            context = Context(services, session, None, "import")
            row = await self._find_leased(context)
            project = await session.get(tables.Project, job.project_id)
            context.viewer_or_none = await session.get(tables.User, job.user_id) if job.user_id is not None else None
            if project is None:
                raise LeaseLost
            if context.viewer_or_none is None:
                row.state, row.error = ImportState.FAILED, "The user who started this import was deleted. Start it again."
                row.lease_until, row.finished_at = None, context.now()
                await commit_and_notify(context)
                raise LeaseLost
            # A merge may have been recorded before the lock was taken.
            known = await merged_history.load_known_merges(context, job.project_id, oids)
            new_merges = [each for each in past_merges if each.merged.merge.oid not in known]
            await merged_history.write_past_merges(context, project, new_merges, highest)
            known_count = sum(oid in known for oid in oids)
            row.tip_oid, row.total, row.updated_at = job.tip_oid, total, context.now()
            row.processed += len(oids)
            row.imported += len(new_merges)
            row.known += known_count
            row.skipped += len(oids) - len(new_merges) - known_count
            job.processed = row.processed
            if row.processed >= total:
                row.state, row.lease_until, row.finished_at = ImportState.FINISHED, None, context.now()
            else:
                row.lease_until = job.lease_until = context.now() + LEASE_DURATION
            await commit_and_notify(context)
            self._is_finished = row.state is ImportState.FINISHED

    def _report_progress(self, total: int) -> None:
        if self._services.progress is not None and total:
            self._services.progress(PROGRESS_PHASE, self._job.processed, total)
