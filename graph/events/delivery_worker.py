"""Delivers events to webhooks: claims due deliveries, sends them by POST, records the results, and retries failed ones later.

Delivery is at-least-once: an attempt counts when its result is recorded, so the attempts of a killed process are repeated when its claims
expire. A slow receiver does not delay others. Attempts run concurrently, a few per host; a hook whose last attempt failed, or that has not
succeeded yet, has one at a time. The order of events is not preserved.
"""

import asyncio
import contextlib
import os
import random
import secrets
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import httpx
import orjson
import structlog

from graph.context import Services
from graph.events.address_guard import port_of
from graph.events.webhook_sender import SYSTEM_HOOK, TIMEOUT_SECONDS, DeliveryResult, WebhookMessage
from graph.operations.transaction import write_transaction
from storage.database.engine import DatabaseSession
from storage.secrets import TokenCipher, UndecryptableToken
from storage.tables import Delivery, DeliveryState, Event, Hook
from storage.tables.events import deliveries, events, hooks

RETRY_DELAYS_SECONDS = (0.0, 5.0, 20.0, 60.0, 5 * 60.0, 30 * 60.0, 2 * 3600.0, 5 * 3600.0, 10 * 3600.0, 24 * 3600.0)
"""Seconds before each attempt, the first after the event, the others after the previous attempt (docs/decisions.md 31)."""
JITTER = 0.1
MAX_RETRY_AFTER_SECONDS = 24 * 3600.0
"""Maximum of a receiver's Retry-After that is honored."""
DISABLE_AFTER = timedelta(days=5)
RETENTION = timedelta(days=30)
"""Events are deleted after this time, with their deliveries."""
MAX_CONCURRENT_DELIVERIES = 512
MAX_CONCURRENT_PER_HOST = 4
LEASE = timedelta(seconds=TIMEOUT_SECONDS + 10)
POLL_SECONDS = 1.0
"""Poll interval for deliveries of other processes; deliveries of this process wake the worker immediately."""
STOP_SECONDS = 0.3
MAX_HOOKS_PER_STATEMENT = 50
SWEEP_BATCH_SIZE = 1000

Origin = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class DeliveryJob:
    delivery: Delivery
    hook: Hook
    event: Event
    origin: Origin


@dataclass(frozen=True, slots=True)
class FinishedAttempt:
    job: DeliveryJob
    result: DeliveryResult
    moment: datetime


def retry_delay(attempts: int, result: DeliveryResult, jitter: Callable[[float, float], float] = random.uniform) -> float | None:
    """Returns the seconds until the next attempt after `attempts` failed ones; None if there is no further attempt."""
    if result.is_gone or attempts >= len(RETRY_DELAYS_SECONDS):
        return None
    delay = RETRY_DELAYS_SECONDS[attempts] * jitter(1 - JITTER, 1 + JITTER)
    return max(delay, min(result.retry_after or 0.0, MAX_RETRY_AFTER_SECONDS))


def make_message(cipher: TokenCipher, hook: Hook, webhook_id: str, event_name: str, payload: Any) -> WebhookMessage:
    """Makes the message of a delivery. Raises UndecryptableToken if the hook's secrets were encrypted with another key."""
    return WebhookMessage(
        url=hook.url,
        webhook_id=webhook_id,
        body=orjson.dumps(payload),
        verify=hook.enable_ssl_verification,
        credentials=cipher.decrypt(hook.sealed_credentials) if hook.sealed_credentials else None,
        secret=cipher.decrypt(hook.sealed_secret) if hook.sealed_secret else None,
        token=cipher.decrypt(hook.sealed_token) if hook.sealed_token else None,
        # The hooks of projects name the event: "Tag Push Hook".
        kind=SYSTEM_HOOK if hook.project_id is None else f"{event_name.replace('_', ' ').title()} Hook",
    )


def attempt_columns(job: DeliveryJob, result: DeliveryResult, moment: datetime, jitter: Callable[[float, float], float]) -> dict[str, Any]:
    """Returns the columns of a delivery after an attempt."""
    attempts = job.delivery.attempts + 1
    if result.is_ok:
        values: tuple[Any, ...] = (DeliveryState.DELIVERED, attempts, None, result.code, None, moment)
    else:
        # To a disabled hook only manual redeliveries are sent, without retries.
        delay = None if job.hook.disabled_at is not None else retry_delay(attempts, result, jitter)
        state = DeliveryState.FAILED if delay is None else DeliveryState.PENDING
        values = (state, attempts, None if delay is None else moment + timedelta(seconds=delay), result.code, result.error, None)
    return dict(zip(deliveries.OUTCOME_COLUMNS, values, strict=True))


class DeliveryWorker:
    """Sends the deliveries of one process.

    `jitter(low, high)` returns a number between both; `on_attempt` is called with "delivered" or "failed".
    """

    def __init__(
        self,
        services: Services,
        *,
        jitter: Callable[[float, float], float] = random.uniform,
        on_attempt: Callable[[str], None] | None = None,
    ) -> None:
        self._services = services
        self._outbox = services.outbox
        self._database = services.database
        self._clock = services.clock
        self._jitter = jitter
        self._on_attempt = on_attempt
        self._name = f"{socket.gethostname()[:32]}:{os.getpid()}:{secrets.token_hex(4)}"
        self._running: dict[asyncio.Task[None], DeliveryJob] = {}
        self._finished: list[FinishedAttempt] = []
        self._has_claimed = False
        self._log = structlog.get_logger("hooks")

    async def run(self) -> None:
        """Delivers until it is canceled. Raises the database's errors, after which it can be run again."""
        while True:
            await self._outbox.wait(await self.run_once())

    async def run_once(self) -> float:
        """Records finished attempts and starts due ones. Returns the seconds until the next run."""
        moment = self._clock()
        # First, because a successful delivery is repeated if this process is killed before its result is recorded.
        await self._record_finished(moment)
        ids, pause = await self._find_due(moment)
        if ids:
            async with write_transaction(self._database) as session:
                jobs = await self._claim(session, ids, moment)
            for job in jobs:
                task = asyncio.create_task(self._attempt(job), name=f"delivery {job.delivery.id}")
                self._running[task] = job
                task.add_done_callback(self._on_task_done)
        return pause

    async def _record_finished(self, moment: datetime) -> None:
        """Records the finished attempts in a separate transaction; after an error they stay queued."""
        if not self._finished:
            return
        finished, self._finished = self._finished, []
        try:
            async with write_transaction(self._database) as session:
                may_enable_hooks = await self._record(session, finished, moment)
        except BaseException:
            self._finished[:0] = finished
            raise
        if may_enable_hooks:
            self._outbox.record_hook_change()

    async def close(self) -> None:
        """Waits briefly for running attempts, cancels the others, and releases their claims, so that other processes can take them."""
        if not self._has_claimed:
            return
        if self._running:
            await asyncio.wait(self._running, timeout=STOP_SECONDS)
        for task in list(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=STOP_SECONDS)
        async with write_transaction(self._database) as session:
            await self._record(session, self._finished, self._clock())
            await session.execute(deliveries.release_claims(self._name))
        self._finished = []

    async def sweep(self) -> None:
        """Deletes old events without pending deliveries."""
        before = self._clock() - RETENTION
        deleted = SWEEP_BATCH_SIZE
        while deleted == SWEEP_BATCH_SIZE:
            async with write_transaction(self._database) as session:
                deleted = (await session.execute(events.delete_old_events(before, SWEEP_BATCH_SIZE))).rowcount

    async def _find_due(self, moment: datetime) -> tuple[list[int], float]:
        """Returns the ids of the deliveries to claim, and the seconds until the next run."""
        async with self._database.read_session() as session:
            waiting = (await session.execute(deliveries.next_by_hook(moment))).all()
            next_due_at = min((following for _, following in waiting if following > moment), default=None)
            pause = POLL_SECONDS if next_due_at is None else min(POLL_SECONDS, (next_due_at - moment).total_seconds())
            shares = self._allocate([hook for hook, following in waiting if following <= moment])
            ids: list[int] = []
            hooks_with_shares = list(shares.items())
            for start in range(0, len(hooks_with_shares), MAX_HOOKS_PER_STATEMENT):
                batch = dict(hooks_with_shares[start : start + MAX_HOOKS_PER_STATEMENT])
                ids += (await session.execute(deliveries.due(batch, moment))).scalars().all()
        # More deliveries may be due; if all slots are taken, the worker runs again when an attempt ends.
        return ids, 0.0 if ids else pause

    def _allocate(self, due: list[Hook]) -> Counter[int]:
        """Returns how many deliveries each hook may start now; free slots are assigned round robin."""
        free = MAX_CONCURRENT_DELIVERIES - len(self._running)
        # A finished attempt that is not recorded yet counts as running, because it would be repeated if the process were killed now.
        unrecorded = [*self._running.values(), *(attempt.job for attempt in self._finished)]
        hosts = Counter(job.origin for job in unrecorded)
        running = Counter(job.hook.id for job in unrecorded)
        shares: Counter[int] = Counter()
        random.shuffle(due)
        limits = {
            hook.id: MAX_CONCURRENT_PER_HOST if hook.last_success_at is not None and hook.failing_since is None else 1 for hook in due
        }
        origins = {hook.id: origin_of(hook) for hook in due}
        for _ in range(MAX_CONCURRENT_PER_HOST):
            for hook in due:
                origin = origins[hook.id]
                if free > 0 and running[hook.id] + shares[hook.id] < limits[hook.id] and hosts[origin] < MAX_CONCURRENT_PER_HOST:
                    shares[hook.id] += 1
                    hosts[origin] += 1
                    free -= 1
        return shares

    async def _claim(self, session: DatabaseSession, ids: list[int], moment: datetime) -> list[DeliveryJob]:
        if not ids:
            return []
        self._has_claimed = True
        claimed = (await session.execute(deliveries.claim(ids, self._name, moment + LEASE, moment))).scalars().all()
        rows = (await session.execute(events.of_deliveries(list(claimed)))).all() if claimed else []
        return [DeliveryJob(delivery, hook, event, origin_of(hook)) for delivery, hook, event in rows]

    async def _attempt(self, job: DeliveryJob) -> None:
        try:
            message = make_message(self._services.cipher, job.hook, job.delivery.webhook_id, job.event.name, job.event.payload)
            result = await self._outbox.sender.send(message, self._clock())
        except UndecryptableToken:
            result = DeliveryResult(error="the hook's credentials cannot be decrypted with this instance's key; create the hook again")
        except Exception as error:
            self._log.error("unexpected error", delivery=job.delivery.id, exc_info=error)
            result = DeliveryResult(error=f"{type(error).__name__}; the server log contains the details")
        self._finished.append(FinishedAttempt(job, result, self._clock()))
        if self._on_attempt is not None:
            self._on_attempt("delivered" if result.is_ok else "failed")

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._outbox.notify()

    async def _record(self, session: DatabaseSession, finished: list[FinishedAttempt], moment: datetime) -> bool:
        """Records finished attempts. Returns whether a hook may have been enabled by a success."""
        if not finished:
            return False
        rows = []
        last_attempts: dict[int, FinishedAttempt] = {}
        for each in finished:
            columns = attempt_columns(each.job, each.result, each.moment, self._jitter)
            rows.append({"key": each.job.delivery.id, **{f"new_{name}": value for name, value in columns.items()}})
            last_attempts[each.job.hook.id] = each
            if columns["state"] is DeliveryState.FAILED:
                self._log.warning("delivery failed", delivery=each.job.delivery.id, hook=each.job.hook.id, error=each.result.error)
        await (await session.connection()).execute(deliveries.record_outcomes(self._name), rows)
        succeeded = [key for key, each in last_attempts.items() if each.result.is_ok]
        failed = [key for key, each in last_attempts.items() if not each.result.is_ok]
        if succeeded:
            await session.execute(hooks.record_success(succeeded, moment))
        if failed:
            await session.execute(hooks.record_failure(failed, moment))
            await self._disable(
                session, [key for key in failed if last_attempts[key].result.is_gone], "The receiver responded with 410 Gone."
            )
            await self._disable(session, failed, f"All deliveries failed for {DISABLE_AFTER.days} days.", moment - DISABLE_AFTER)
        return any(each.job.hook.disabled_at is not None for each in last_attempts.values() if each.result.is_ok)

    async def _disable(self, session: DatabaseSession, hook_ids: list[int], reason: str, failing_before: datetime | None = None) -> None:
        if not hook_ids:
            return
        statement = hooks.disable(hook_ids, self._clock(), reason, failing_before=failing_before)
        disabled = list((await session.execute(statement)).scalars().all())
        if disabled:
            await session.execute(deliveries.fail_pending(disabled, "The hook was disabled."))
            self._log.warning("hooks disabled", hooks=disabled, reason=reason)


def origin_of(hook: Hook) -> Origin:
    """Returns the origin of a hook's URL (scheme, host and port), by which concurrency is limited."""
    with contextlib.suppress(httpx.InvalidURL):
        url = httpx.URL(hook.url)
        return url.scheme, url.host, port_of(url)
    return "", hook.url, 0
