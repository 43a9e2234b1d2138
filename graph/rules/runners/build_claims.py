"""Claims: runners take the builds that wait in queues.

A runner claims the oldest build that it may run. A shared runner serves every project, any other runner the projects assigned to it;
all tags of the build must be among the runner's tags. While a project is archived or its builds are disabled, its builds are removed
from their queues, so that claims do not have to skip them; they are queued again when builds are enabled. Builds of a project that
refuses shared runners wait in queues that shared runners skip.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from graph.context import Context, RunnerIdentity, Services
from graph.errors import Forbidden, Unavailable
from graph.operations.disconnects import watch_disconnect
from graph.operations.transaction import write_transaction
from graph.rules import validation
from graph.rules.builds import builds, variables
from graph.rules.runners import runner_tokens
from graph.rules.runners.build_queues import accepted_queues, accepts_queue, queue_name, queue_prefix
from storage import tables
from storage.secrets import digest_token
from storage.tables import CheckStatus
from storage.tables.builds import builds as build_statements
from storage.tables.builds import runners

MAX_WAIT_SECONDS = 20
"""Maximum seconds that a claim waits for a build."""
MAX_CLAIM_ATTEMPTS = 20
"""Builds that one claim tries before it gives up.

An attempt fails if another claim takes the build first, or if its project no longer has builds.
"""
BATCH_SIZE = 100
"""Builds whose queue one statement changes."""


@dataclass(frozen=True, slots=True)
class RunnerDetails:
    """What a runner reports about itself; None for what it does not report."""

    name: str | None = None
    version: str | None = None
    revision: str | None = None
    platform: str | None = None
    architecture: str | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "RunnerDetails":
        """The details among the values of an input."""
        return cls(**{field: values.get(field) for field in cls.__slots__})

    def to_columns(self) -> dict[str, str | None]:
        values = {field: getattr(self, field) for field in self.__slots__}
        return {
            field: validation.validate_string(field, value.strip())[: validation.MAX_NAME_LENGTH]
            for field, value in values.items()
            if value is not None
        }


async def claim_build(
    context: Context, runner_identity: RunnerIdentity, details: RunnerDetails, seconds: float
) -> tuple[tables.Build, str] | None:
    """Assign the oldest build that the runner may run, with a new token for it.

    Wait up to `seconds` for one. Raises Forbidden for the token of a build.
    """
    if runner_identity.build is not None:
        raise Forbidden("The token of a build cannot claim builds. Use the runner's token.")
    runner_queue, loop = context.services.runner_queue, asyncio.get_running_loop()
    columns = details.to_columns()
    deadline = loop.time() + max(0.0, min(seconds, MAX_WAIT_SECONDS))
    found: tuple[tables.Build, str] | None = None
    has_waited = False
    async with watch_disconnect() as is_disconnected:
        # A build assigned to a disconnected runner would not start again before its lease expires.
        while runner_identity.runner.active and not is_disconnected():
            notification_count = runner_queue.notification_count
            async with runner_queue.lock:
                found = await _claim_next(context, runner_identity.runner, has_waited=has_waited)
            remaining = deadline - loop.time()
            if found is not None or remaining <= 0 or not runner_queue.can_wait():
                break
            await runner_queue.wait(notification_count, remaining)
            has_waited = True
        if found is not None and is_disconnected():
            # Nobody would receive the build; the transaction, which is not committed, leaves it in its queue.
            raise Unavailable("The runner has disconnected.")
    await _record_contact(context, runner_identity.runner, columns)
    return found


async def _claim_next(context: Context, runner: tables.Runner, *, has_waited: bool) -> tuple[tables.Build, str] | None:
    """Assign the next build to the runner. Unsuccessful attempts leave no transaction open, in which the claim would wait for a build."""
    runner_queue = context.services.runner_queue
    exhausted: set[tuple[str, int | None]] = set()
    for _ in range(MAX_CLAIM_ATTEMPTS):
        candidate = await _find_queue(context, runner, exhausted)
        if candidate is None:
            return None
        if has_waited:
            # It may have been paused, or have lost tags, since it authenticated.
            async with context.read_only() as reader:
                current = await reader.first(runners.by_id(runner.id))
            if current is None or not current.active:
                return None
            runner, has_waited = current, False
            continue
        queue, project_id = candidate
        build: tables.Build | None = await context.session.scalar(runners.next_for_update(queue, project_id))
        if build is None:
            # Other transactions have taken its builds, or have locked them, perhaps for longer than this claim lasts.
            exhausted.add(candidate)
            await _refresh_queue(context, queue)
            continue
        build_id = build.id
        project = await context.session.get(tables.Project, build.project_id)
        queue_now = queue_name(project, build.tags)
        if queue_now is None or not accepts_queue(queue_now, runner):
            # The build was queued while the project's builds or shared runners were being disabled.
            await context.session.close()
            await _correct_queue(context.services, build_id)
            await _refresh_queue(context, queue)
            continue
        claimed = await builds.change_status(context, build, CheckStatus.RUNNING)
        if claimed is None:
            exhausted.add(candidate)
            await _refresh_queue(context, queue)
            continue
        token = runner_tokens.generate_build_token(claimed.id)
        claimed.runner_id, claimed.token_digest = runner.id, digest_token(token)
        claimed.sealed_token = context.services.cipher.encrypt(token)
        claimed.lease_until = context.now() + timedelta(seconds=context.services.build_lease)
        await variables.store_build_variables(context, claimed)
        await context.session.flush()
        runner_queue.set_oldest_build(queue, await context.value(runners.oldest_id(queue)))
        return claimed, token
    return None


async def _refresh_queue(context: Context, queue: str) -> None:
    """Correct the cached oldest build of a queue after an attempt that has assigned none, and end its transaction."""
    context.services.runner_queue.set_oldest_build(queue, await context.value(runners.oldest_id(queue)))
    await context.session.close()


async def _correct_queue(services: Services, build_id: int) -> None:
    """Put a waiting build into the queue that its project has now, or into none, in a transaction of its own."""
    async with write_transaction(services.database) as session:
        build: tables.Build | None = await session.scalar(build_statements.for_update(build_id))
        if build is not None and build.status is CheckStatus.PENDING and build.queue is not None:
            # Read after the lock, for which a change of the project that has cleared its queues may have made this wait.
            build.queue = queue_name(await session.get(tables.Project, build.project_id), build.tags)


async def _find_queue(
    context: Context, runner: tables.Runner, exhausted: Collection[tuple[str, int | None]]
) -> tuple[str, int | None] | None:
    """The queue that has the oldest build the runner may run, with the project if the runner is not shared.

    Those that are `exhausted`, in which this claim has found nothing, are left out.
    """

    async def load_queues() -> Mapping[str, int]:
        """All queues, of all projects: the runner's may be the last ones. More than MAX_QUEUES take more statements."""
        found: dict[str, int] = {}
        last = ""
        async with context.read_only() as reader:
            while True:
                page: list[tuple[str, int]] = [(queue, oldest) for queue, oldest in await reader.tuples(runners.oldest_of_queues(last))]
                found.update(page)
                if len(page) < runners.MAX_QUEUES:
                    return found
                last = page[-1][0]

    queues = await context.services.runner_queue.oldest_builds(load_queues)
    acceptable = accepted_queues(queues, runner)
    if runner.shared:
        remaining = ((oldest, queue) for queue, oldest in acceptable.items() if (queue, None) not in exhausted)
        first = min(remaining, default=None)
        return (first[1], None) if first is not None else None
    if not acceptable:
        return None
    async with context.read_only() as reader:
        own_queues = [tuple(row) for row in await reader.tuples(runners.oldest_of_own_queues(runner.id))]
    found = min(
        (
            (oldest, queue, project_id)
            for queue, project_id, oldest in own_queues
            if accepts_queue(queue, runner) and (queue, project_id) not in exhausted
        ),
        default=None,
    )
    return (found[1], found[2]) if found is not None else None


async def _record_contact(context: Context, runner: tables.Runner, columns: dict[str, str | None]) -> None:
    """Record when the runner last called, to the minute, and what it reports about itself."""
    changed = {field: value for field, value in columns.items() if value != getattr(runner, field)}
    if changed or runner_tokens.is_contact_due(context, runner):
        await context.session.execute(runners.record_contact(runner.id, context.now(), changed))


async def update_build_queues(context: Context, project: tables.Project, old_prefix: str | None) -> None:
    """Update the queues after a project's builds or shared runners were switched on or off, or its archived state changed.

    `old_prefix` is the result of `queue_prefix` before the change.
    """
    prefix = queue_prefix(project)
    if prefix == old_prefix:
        return
    if prefix is None:
        await context.session.execute(runners.clear_queues(project.id))
        return
    queues: dict[str, list[int]] = {}
    for build_id, tags in await context.tuples(runners.unfinished_of(project.id)):
        queues.setdefault(queue_name(project, tags) or "", []).append(build_id)
    for queue, ids in queues.items():
        for start in range(0, len(ids), BATCH_SIZE):
            await context.session.execute(runners.set_queue(queue, ids[start : start + BATCH_SIZE]))
    context.on_commit.append(context.services.runner_queue.notify)
