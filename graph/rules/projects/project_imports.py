"""Imports of repositories from other hosts, as background jobs.

The project exists, empty, from the start, and a row has the state of its import. Any process takes an import without a lease, fetches
into a folder that belongs to no project, and installs the result in one transaction: a crash leaves the project empty, and the next process
begins again. While git fetches and the result is uploaded, the process renews its lease and writes the progress. After another process has
taken over the lease, or the project was deleted, git is stopped and nothing is written.

Git connects only to addresses that webhooks may call (`graph/events/address_guard.py`).
"""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import httpx
import structlog

from graph.context import Context, Services
from graph.errors import Invalid
from graph.events.address_guard import ForbiddenAddress, HookUrl, UnresolvableHost, port_of
from graph.jobs import lease_renewal
from graph.jobs.import_polls import UNEXPECTED_MESSAGE, has_unleased_import
from graph.jobs.lease_renewal import LeaseLost
from graph.operations.transaction import commit_and_notify, session_for
from graph.rules.events import hooks
from graph.rules.git import ref_updates
from graph.rules.projects import projects
from storage import tables
from storage.database.errors import is_unavailable
from storage.disk_full import is_disk_full
from storage.git.cancellation import Cancellation
from storage.git.importing.remote_import import RemoteRepository, import_remote
from storage.git.repositories import StagedRepository
from storage.git.repository import NotARepository
from storage.git.subprocesses.git_command import GitCommandError
from storage.secrets import UndecryptableToken
from storage.tables import ImportState, imports
from storage.tables.imports import UNFINISHED

MAX_CONCURRENT_IMPORTS = 2
"""Maximum of imports that one process runs at once."""
LEASE_DURATION = timedelta(seconds=60)
REPORT_SECONDS = 2.0
"""Seconds between two reports of the progress, which also renew the lease."""
POLL_SECONDS = 20.0
MAX_ERROR_CHARACTERS = 500

log = structlog.get_logger("graph")


async def validate_url(context: Context, url: str | None) -> HookUrl | None:
    """The address to import from, apart from its credentials. Raises Invalid for one that the service may not connect to.

    Call it before the first statement of the operation, because a slow name server would leave the transaction open.
    """
    return await hooks.validate_url(context, url, "importUrl") if url and url.strip() else None


async def queue_import(context: Context, project: tables.Project, target: HookUrl) -> None:
    """Queue an import into the project, which the caller has locked or inserted. Raises Invalid unless it is empty and no import runs."""
    if await projects.has_refs(context, project.id):
        raise Invalid("importUrl", "can be set only while the repository is empty")
    row = await context.first(imports.for_update(tables.ProjectImport, project.id))
    if row is not None and row.state in UNFINISHED:
        raise Invalid("importUrl", "cannot be set while an import runs")
    moment = context.now()
    if row is None:
        row = await context.add(tables.ProjectImport(project_id=project.id, url=target.url, created_at=moment))
    credentials = target.credentials
    row.url, row.user_id = target.url, context.viewer.id
    row.sealed_credentials = context.services.cipher.encrypt(credentials) if credentials is not None else None
    row.state, row.processed, row.created_at, row.updated_at = ImportState.QUEUED, 0, moment, moment
    row.phase = row.total = row.error = row.lease_until = row.finished_at = None
    context.after_commit.append(context.services.project_import_wakeup.notify)


async def run_forever(services: Services) -> None:
    """Run pending imports, and wait for new ones, until canceled. Raises what `run_pending` raises, after all imports have ended."""
    while True:
        ended = await asyncio.gather(*(run_pending(services) for _ in range(MAX_CONCURRENT_IMPORTS)), return_exceptions=True)
        if (error := next(filter(None, ended), None)) is not None:
            raise error
        await services.project_import_wakeup.wait(POLL_SECONDS)


async def run_pending(services: Services) -> None:
    """Run all imports without a lease, one after the other. Raises when the database is unavailable; the lease then expires."""
    while (job := await _lease_next(services)) is not None:
        try:
            await _run(services, job)
        except LeaseLost:
            log.info("import lease lost", project_id=job.project_id)
        except _ImportFailed as error:
            log.warning("import failed", project_id=job.project_id, error=str(error))
            await _finish(services, job, str(error))
        except Exception as error:
            if is_unavailable(error):
                raise
            # It would fail in the same way each time that its lease expires.
            log.error("import failed", project_id=job.project_id, exc_info=error)
            await _finish(services, job, UNEXPECTED_MESSAGE)


class _ImportFailed(Exception):
    """The import cannot succeed; the message says why and what to do."""


@dataclass
class _ImportJob:
    """An import leased by this process. `progress` is what git reported last: a phase, the completed steps and their total."""

    id: int
    project_id: int
    url: HookUrl
    lease_until: datetime
    progress: tuple[str, int, int] | None = None


async def _lease_next(services: Services) -> _ImportJob | None:
    if not await has_unleased_import(services, tables.ProjectImport):
        return None
    async with session_for(services.database, writing=True) as session:
        context = Context(services, session, None, "import")
        row = await context.first(imports.next_unleased_for_update(tables.ProjectImport, context.now()))
        if row is None:
            return None
        row.state, row.lease_until = ImportState.RUNNING, context.now() + LEASE_DURATION
        sealed, job = row.sealed_credentials, _ImportJob(row.id, row.project_id, HookUrl(row.url, None), row.lease_until)
        await commit_and_notify(context)
    try:
        credentials = services.cipher.decrypt(sealed) if sealed is not None else None
    except UndecryptableToken:
        await _finish(services, job, "The credentials cannot be decrypted with this instance's key. Start the import again.")
        return await _lease_next(services)
    job.url = HookUrl(job.url.url, credentials)
    return job


async def _run(services: Services, job: _ImportJob) -> None:
    """Fetch the repository and install it. Raises _ImportFailed, LeaseLost."""
    url = httpx.URL(job.url.url)
    try:
        addresses = await services.outbox.sender.guard.addresses(url)
    except (ForbiddenAddress, UnresolvableHost) as error:
        raise _ImportFailed(str(error)) from None
    remote = RemoteRepository(job.url.url, url.raw_host.decode("ascii").strip("[]"), port_of(url), addresses, job.url.credentials)
    folder = services.repositories.new_staging_folder()
    cancellation = Cancellation()
    report = partial(_report, services, job)
    publishing: asyncio.Future[StagedRepository] | None = None

    def report_progress(phase: str, done: int, total: int) -> None:
        job.progress = phase, done, total

    def fetch() -> None:
        with cancellation.activate():
            import_remote(remote, folder, report_progress)

    fetching = asyncio.ensure_future(asyncio.to_thread(fetch))
    try:
        await lease_renewal.renew_until_done(fetching, report, REPORT_SECONDS)
        publishing = asyncio.ensure_future(services.repositories.publish_staged(folder))
        await _install(services, job, await lease_renewal.renew_until_done(publishing, report, REPORT_SECONDS))
    except (GitCommandError, NotARepository) as error:
        raise _ImportFailed(f"The repository cannot be imported: {_shorten(error)}") from error
    except OSError as error:
        reason = "The disk of the service is full." if is_disk_full(error) else "The repository cannot be stored."
        raise _ImportFailed(f"{reason} Start the import again later.") from error
    finally:
        cancellation.cancel()
        await lease_renewal.wait_for_end(fetching)
        if publishing is not None:
            await lease_renewal.end(publishing)
        await asyncio.to_thread(services.repositories.discard, folder)


def _shorten(error: Exception) -> str:
    """The last lines of git's message, which has no credentials."""
    return str(error)[-MAX_ERROR_CHARACTERS:]


async def _report(services: Services, job: _ImportJob) -> None:
    """Write the progress and renew the lease. Raises LeaseLost."""
    async with session_for(services.database, writing=True) as session:
        context = Context(services, session, None, "import")
        row = await _leased_row(context, job)
        row.lease_until = job.lease_until = context.now() + LEASE_DURATION
        if job.progress is not None:
            row.phase, row.processed, row.total = job.progress
        row.updated_at = context.now()
        await commit_and_notify(context)


async def _install(services: Services, job: _ImportJob, staged: StagedRepository) -> None:
    """Give the repository to the project. Raises _ImportFailed if something was pushed meanwhile, LeaseLost."""
    async with session_for(services.database, writing=True) as session:
        context = Context(services, session, None, "import")
        row = await _leased_row(context, job)
        project = await projects.lock_project(context, await _project_of(context, job))
        if await projects.has_refs(context, project.id):
            raise _ImportFailed("Something was pushed while the import ran. Delete the branches and tags and start the import again.")
        await projects.fill_repository(context, project, staged)
        await ref_updates.protect_default_branch(context, project)
        project.last_activity_at = context.now()
        row.state, row.lease_until, row.error = ImportState.FINISHED, None, None
        row.sealed_credentials, row.finished_at, row.updated_at = None, context.now(), context.now()
        await commit_and_notify(context)


async def _finish(services: Services, job: _ImportJob, error: str) -> None:
    """Record the failure of an import."""
    async with session_for(services.database, writing=True) as session:
        context = Context(services, session, None, "import")
        row = await context.first(imports.leased_for_update(tables.ProjectImport, job.id, job.lease_until))
        if row is not None:
            row.state, row.error, row.lease_until = ImportState.FAILED, error, None
            row.sealed_credentials, row.finished_at, row.updated_at = None, context.now(), context.now()
            await commit_and_notify(context)


async def _leased_row(context: Context, job: _ImportJob) -> tables.ProjectImport:
    row = await context.first(imports.leased_for_update(tables.ProjectImport, job.id, job.lease_until))
    if row is None:
        raise LeaseLost
    return row


async def _project_of(context: Context, job: _ImportJob) -> tables.Project:
    project = await context.rows_by_id(tables.Project).get(job.project_id)
    if project is None:
        raise LeaseLost
    return project
