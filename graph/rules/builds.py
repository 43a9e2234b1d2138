"""Builds: how their status changes, and what follows from it (section States and transitions; DECISIONS 11).

A retry keeps the id. The row becomes the next attempt, and the finished run goes on as a row of its own, which has the artifact and
the trace; lists and counts leave it out.
"""

import math
from datetime import datetime
from typing import Any

from sqlalchemy import delete, update
from sqlmodel import col

from graph.connections import Listing, Order, Page, Window, paged
from graph.context import Context
from graph.errors import Forbidden, Invalid, NotAllowed, NotFound, Required
from graph.rules import building, changes, finding, naming, objects, settings, trace_masking
from graph.rules.ci import pipelines
from graph.rules.commits import in_repository
from graph.rules.policy import visible_projects
from graph.rules.states import BECOMING, BUILD, BuildAction
from storage import tables
from storage.git.repository import Repository
from storage.tables import CheckStatus, builds, merge_requests
from storage.tables.commit_statuses import FINISHED

DEFAULT_STAGE = "test"
NOT_RETRYABLE = "Build is not retryable"
NOT_ERASABLE = "Build is not erasable!"

NEVER_COPIED = frozenset(("id", "current_id", "queue", "token_digest", "sealed_token", "sealed_trace_end", "lease_until"))
"""Columns that a finished run does not take along when the next attempt begins."""


async def hold(context: Context, build_id: int) -> tables.Build:
    """The build as it is now, for a change that no other may cross. Raises NotFound when it was removed meanwhile."""
    held = await context.first(builds.held(build_id))
    if held is None:
        raise NotFound("Build")
    return held


async def change(context: Context, build: tables.Build, to: CheckStatus, *, at: datetime | None = None) -> tables.Build | None:
    """Brings a build to another status: the one place for it, but for `retry`.

    Gives the build, held until the transaction ends; None where it cannot become that, as when it has ended meanwhile, and then
    nothing changes. `at` is when it happened, by default now. What never ran has an end and no start. Raises NotFound.
    """
    row = await hold(context, build.id)
    if row.current_id is not None or to is CheckStatus.PENDING or BUILD.get((row.status, BECOMING[to])) is not to:
        return None
    was, row.status = row.status, to
    if to is CheckStatus.RUNNING:
        row.started_at = at or context.now()
    else:
        row.finished_at = at or context.now()
        row.lease_until = None
        await trace_masking.flush(context, row)
    await after_change(context, row, was)
    return row


async def after_change(context: Context, build: tables.Build, was: CheckStatus | None) -> None:
    """What follows when a build has come or its status has changed; `was` is None for a new one."""
    build.updated_at = context.now()
    await context.session.flush()
    await changes.of_builds(context, [(build.id, build.project_id, build.ref)], was, build.status)
    await building.changed(context, build.project_id, (build.sha, build.ref))
    await pipelines.advance(context, build)
    if build.status is CheckStatus.PENDING and build.queue is not None:
        context.after_commit.append(context.services.line.ring)


async def create(context: Context, build: tables.Build) -> tables.Build:
    """Writes a new build, whatever its status. Raises IntegrityError where its project is gone."""
    await context.add(build)
    await after_change(context, build, None)
    return build


async def within(context: Context, project: tables.Project, build_id: int) -> tables.Build:
    """A build of the project by its id, which an attempt that was superseded has not. Raises NotFound."""
    return await finding.within(context, tables.Build, project, builds.is_current(), database_id=build_id)


async def attempts(context: Context, build: tables.Build, window: Window) -> Page:
    """A page of the attempts of a build, the newest first, whichever of them is asked: the same statements whatever the number of
    builds."""
    listing = Listing(tables.Build, Order(tables.Build.attempt, descending=True))
    bounds, order = listing.bounds(window), listing.ordering(window)

    async def fetch(ids: list[int]) -> dict[int, list[tables.Build]]:
        found: dict[int, list[tables.Build]] = {}
        for row in await context.all(builds.attempts(ids, bounds, order, window.offset, window.size + 1)):
            found.setdefault(row.current_id or row.id, []).append(row)
        return found

    async def fetch_counts(ids: list[int]) -> dict[int, int]:
        return dict(map(tuple, await context.tuples(builds.count_attempts(ids))))

    key = build.current_id or build.id

    async def count() -> int:
        return await context.loader("attempts counted", fetch_counts).get(key) or 0

    return paged(await context.loader(("attempts", window), fetch).get(key) or [], window, listing.cursor, count)


async def merge_request(context: Context, build: tables.Build) -> tables.MergeRequest | None:
    """The newest open merge request whose newest commit was built, of those that the viewer sees."""
    seen = [*visible_projects(context), col(tables.Project.merge_requests_enabled)]

    async def fetch(heads: list[tuple[int, str, str]]) -> dict[tuple[int, str, str], tables.MergeRequest]:
        rows = await context.all(merge_requests.open_with_heads(heads, *seen))
        return {(row.source_project_id, row.head_oid or "", row.source_branch): row for row in rows}

    if build.tag:
        return None
    found: tables.MergeRequest | None = await context.loader("open by head", fetch).get((build.project_id, build.sha, build.ref))
    return found


def duration(build: tables.Build, moment: datetime) -> float | None:
    """Seconds that it ran, or has run at the moment. A clock that was set back makes no negative time."""
    if build.started_at is None:
        return None
    return max(((build.finished_at or moment) - build.started_at).total_seconds(), 0.0)


def queued(build: tables.Build, moment: datetime) -> float:
    """Seconds that it waited until it ran or ended, or has waited at the moment."""
    return max(((build.started_at or build.finished_at or moment) - build.created_at).total_seconds(), 0.0)


def is_retryable(build: tables.Build) -> bool:
    return build.current_id is None and (build.status, BuildAction.RETRY) in BUILD


def is_cancelable(build: tables.Build) -> bool:
    return build.current_id is None and (build.status, BuildAction.CANCEL) in BUILD


def is_erasable(build: tables.Build) -> bool:
    """Whether it has ended and was not erased since; an earlier attempt has ended too."""
    return build.status in FINISHED and build.erased_at is None


async def cancel(context: Context, build: tables.Build) -> tables.Build:
    """A finished build stays as it is. Raises NotFound."""
    return await change(context, build, CheckStatus.CANCELED) or await hold(context, build.id)


async def retry(context: Context, build: tables.Build) -> tables.Build:
    """Makes the next attempt of a finished build; those of later stages stay as they are. Raises Forbidden, NotFound."""
    row = await hold(context, build.id)
    if not is_retryable(row):
        raise Forbidden(NOT_RETRYABLE)
    columns = {key: getattr(row, key) for key in tables.Build.model_fields if key not in NEVER_COPIED}
    past = await context.add(tables.Build(**columns, current_id=row.id))
    for table in (tables.Artifact, tables.TracePart):
        await context.session.execute(update(table).where(col(table.build_id) == row.id).values(build_id=past.id))
    was = row.status
    row.attempt += 1
    row.status = CheckStatus.PENDING
    row.created_at = context.now()
    row.started_at = row.finished_at = row.coverage = row.runner_id = None
    row.token_digest = row.sealed_token = row.sealed_trace_end = row.lease_until = None
    row.erased_at = row.erased_by_id = None
    row.trace_size = 0
    await after_change(context, row, was)
    return row


async def erase(context: Context, build: tables.Build) -> tables.Build:
    """Takes the trace and the artifact of a finished build away; its status stays. Raises Forbidden, NotFound."""
    row = await hold(context, build.id)
    if not is_erasable(row):
        raise Forbidden(NOT_ERASABLE)
    await objects.erase_with_builds(context, [row.id])
    for table in (tables.Artifact, tables.TracePart):
        await context.session.execute(delete(table).where(col(table.build_id) == row.id))
    row.trace_size = 0
    row.erased_at, row.erased_by_id = context.now(), context.viewer.id
    return row


def name(value: str) -> str:
    """Raises Required, Invalid."""
    return naming.title("name", value)


def stage(value: str | None) -> str:
    """A blank one is `test`. Raises Invalid."""
    return naming.clean("stage", (value or "").strip(), longest=naming.LONGEST_NAME) or DEFAULT_STAGE


def description(value: str | None) -> str | None:
    return naming.clean("description", value or "") or None


def target_url(value: str | None) -> str | None:
    return settings.link("targetUrl", value)


def coverage(value: float | None) -> float | None:
    """Per cent. Raises Invalid."""
    if value is not None and not (math.isfinite(value) and 0 <= value <= 100):
        raise Invalid("coverage", "must be between 0 and 100")
    return value


async def place(context: Context, project: tables.Project, sha: str, ref: str | None) -> tuple[str, str, bool] | None:
    """The full id of the commit that `sha` exactly names, the branch or tag that it is built for, and whether that is a tag.

    Without a ref `sha` must be a branch or tag. None where there is no such commit. Raises Required, Invalid, Unavailable.
    """
    named = (ref or "").strip()

    def work(repository: Repository) -> tuple[str, str, bool] | None:
        oid = repository.resolve(sha)
        if oid is None:
            return None
        wanted = naming.clean("ref", named or sha, longest=naming.LONGEST_NAME)
        branch, tag = (repository.find(f"refs/{kind}/{wanted}") is not None for kind in ("heads", "tags"))
        if not named and not branch and not tag:
            raise Required("ref")
        return oid, wanted, tag and not branch

    return await in_repository(context, project.id, work)


def times(build: tables.Build) -> None:
    """Raises Invalid where a build of this status cannot have these times."""
    if build.status is CheckStatus.PENDING and build.started_at is not None:
        raise Invalid("startedAt", "must be blank while the build is pending")
    if build.status not in FINISHED and build.finished_at is not None:
        raise Invalid("finishedAt", "must be blank until the build has ended")
    if build.started_at is not None and build.finished_at is not None and build.finished_at < build.started_at:
        raise Invalid("finishedAt", "must not be before startedAt")


async def create_outside(context: Context, build: tables.Build) -> tables.Build:
    """Writes what an outside system builds. Raises Invalid for times that cannot be."""
    moment = context.now()
    times(build)
    if build.status is CheckStatus.RUNNING:
        build.started_at = build.started_at or moment
    elif build.status in FINISHED:
        build.finished_at = build.finished_at or max(moment, build.started_at or moment)
    # What is told afterwards was made when it is said to have begun.
    build.created_at = min(each for each in (moment, build.started_at, build.finished_at) if each is not None)
    return await create(context, build)


async def update_outside(context: Context, build: tables.Build, status: CheckStatus | None, said: dict[str, Any]) -> tables.Build:
    """What an outside system says of a build: its next status, and columns that change beside it; each is as it is said.

    Raises NotFound, Invalid for times that cannot be, NotAllowed for a status that does not follow and for an earlier attempt.
    """
    row = await hold(context, build.id)
    if row.current_id is not None:
        raise NotAllowed("id", "An earlier attempt stays as it was.")
    if status is not None and status is not row.status:
        if status is CheckStatus.PENDING or BUILD.get((row.status, BECOMING[status])) is not status:
            raise NotAllowed("status", f"A build that is {row.status} does not become {status}.")
        begun = said.get("started_at") or row.started_at
        now = context.now() if begun is None else max(context.now(), begun)
        at = begun if status is CheckStatus.RUNNING else said.get("finished_at", now)
        row = await change(context, row, status, at=at) or row
    for column, value in said.items():
        setattr(row, column, value)
    times(row)
    row.updated_at = context.now()
    await building.changed(context, row.project_id, (row.sha, row.ref))
    return row
