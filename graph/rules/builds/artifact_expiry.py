"""Expiry of artifacts: `artifacts: expire_in` of the CI file, and the job that deletes what has expired."""

from datetime import datetime, timedelta

import structlog
from sqlalchemy import update
from sqlmodel import col

from graph.context import Context, Services
from graph.errors import NotFound
from graph.operations.transaction import commit_and_notify, session_for
from graph.rules.builds import builds
from graph.rules.builds.stored_objects import erase_after_commit
from graph.rules.ci.durations import parse_duration
from storage import tables
from storage.tables.builds import artifacts
from storage.tables.builds import builds as statements

BATCH_SIZE = 100
"""Artifacts that one transaction deletes."""

log = structlog.get_logger("graph")


def expires_at(build: tables.Build, uploaded_at: datetime) -> datetime | None:
    """When an artifact that is uploaded now expires; None for never. The CI file decides, not the runner."""
    section = build.options.get("artifacts")
    text = section.get("expire_in") if isinstance(section, dict) else None
    seconds = parse_duration(text) if isinstance(text, str) else None
    return uploaded_at + timedelta(seconds=seconds) if seconds is not None else None


async def keep_artifacts(context: Context, build: tables.Build) -> tables.Build:
    """Store the artifact of the build without a time limit. Raises NotFound when there is none, for example because it has expired."""
    row = await builds.lock_build(context, build.id)
    artifact = await context.first(artifacts.of_builds([row.id]))
    if artifact is None:
        raise NotFound("Artifact")
    artifact.expires_at = None
    return row


async def expire_artifacts(services: Services) -> None:
    """Maintenance job: delete artifacts that have expired; at most `BATCH_SIZE` in a transaction."""
    moment, found = services.clock(), BATCH_SIZE
    while found == BATCH_SIZE:
        async with session_for(services.database, writing=False) as session:
            build_ids = sorted(key for (key,) in await session.read(artifacts.expired(moment, BATCH_SIZE)))
        found = len(build_ids)
        if not build_ids:
            return
        async with session_for(services.database, writing=True) as session:
            context = Context(services, session, None, "maintenance")
            # As an upload does: the builds first, then their artifacts.
            await context.tuples(statements.lock_all(build_ids))
            deleted = [tuple(row) for row in await session.execute(artifacts.delete_expired(build_ids, moment))]
            expired_ids = [build_id for build_id, _ in deleted]
            await session.execute(update(tables.Build).where(col(tables.Build.id).in_(expired_ids)).values(artifacts_expired_at=moment))
            erase_after_commit(context, [key for _, key in deleted])
            await commit_and_notify(context)
        log.info("artifacts expired", number=len(deleted))
