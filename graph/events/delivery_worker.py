"""Delivers events: claim what is due, POST it, record the outcome, try again later.

At least once: an attempt counts when its outcome is recorded, so what a killed process was at is done again once its claim has run out.
Nobody waits for a slow receiver. Attempts run side by side, few to one host; a hook whose last attempt failed, or that has not yet
taken anything, has one at a time. The order of events is not kept.
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
from graph.events.webhook_sender import TIMEOUT_SECONDS, DeliveryResult, WebhookMessage
from graph.operations.transaction import write_transaction
from storage.database.engine import DatabaseSession
from storage.secrets import TokenCipher, UndecryptableToken
from storage.tables import Delivery, DeliveryState, Event, Hook, deliveries, events, hooks

RETRY_DELAYS_SECONDS = (0.0, 5.0, 20.0, 60.0, 5 * 60.0, 30 * 60.0, 2 * 3600.0, 5 * 3600.0, 10 * 3600.0, 24 * 3600.0)
"""Seconds before each attempt, the first counted from the event, the others from the attempt before (docs/decisions.md 31)."""
JITTER = 0.1
MAX_RETRY_AFTER_SECONDS = 24 * 3600.0
"""Seconds; what a receiver asks for beyond is not believed."""
DISABLE_AFTER = timedelta(days=5)
RETENTION = timedelta(days=30)
"""How long the delivery log goes back."""
MAX_CONCURRENT_DELIVERIES = 512
MAX_CONCURRENT_PER_HOST = 4
LEASE = timedelta(seconds=TIMEOUT_SECONDS + 10)
POLL_SECONDS = 1.0
"""How soon is seen what another process left behind; what this one publishes is seen at once."""
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
    """Seconds from the failure of the last of so many attempts to the next one; None when there is none."""
    if result.is_gone or attempts >= len(RETRY_DELAYS_SECONDS):
        return None
    delay = RETRY_DELAYS_SECONDS[attempts] * jitter(1 - JITTER, 1 + JITTER)
    return max(delay, min(result.retry_after or 0.0, MAX_RETRY_AFTER_SECONDS))


def make_message(cipher: TokenCipher, hook: Hook, webhook_id: str, payload: Any) -> WebhookMessage:
    """Raises UndecryptableToken when the hook's secrets were encrypted with another key."""
    return WebhookMessage(
        url=hook.url,
        webhook_id=webhook_id,
        body=orjson.dumps(payload),
        verify=hook.enable_ssl_verification,
        credentials=cipher.decrypt(hook.sealed_credentials) if hook.sealed_credentials else None,
        secret=cipher.decrypt(hook.sealed_secret) if hook.sealed_secret else None,
    )


def attempt_columns(job: DeliveryJob, result: DeliveryResult, moment: datetime, jitter: Callable[[float, float], float]) -> dict[str, Any]:
    """The columns of a delivery after an attempt."""
    attempts = job.delivery.attempts + 1
    if result.is_ok:
        values: tuple[Any, ...] = (DeliveryState.DELIVERED, attempts, None, result.code, None, moment)
    else:
        # To a disabled hook a delivery goes only by hand, and then once.
        delay = None if job.hook.disabled_at is not None else retry_delay(attempts, result, jitter)
        state = DeliveryState.FAILED if delay is None else DeliveryState.PENDING
        values = (state, attempts, None if delay is None else moment + timedelta(seconds=delay), result.code, result.error, None)
    return dict(zip(deliveries.OUTCOME_COLUMNS, values, strict=True))


class DeliveryWorker:
    """The deliveries of one process. `jitter(low, high)` gives a number between; `on_attempt` is told "delivered" or "failed"."""

    def __init__(
        self,
        services: Services,
        *,
        jitter: Callable[[float, float], float] = random.uniform,
        lease: timedelta | None = None,
        on_attempt: Callable[[str], None] | None = None,
    ) -> None:
        self._services = services
        self._outbox = services.outbox
        self._database = services.database
        self._clock = services.clock
        self._jitter = jitter
        self._lease = LEASE if lease is None else lease
        self._on_attempt = on_attempt
        self._name = f"{socket.gethostname()[:32]}:{os.getpid()}:{secrets.token_hex(4)}"
        self._running: dict[asyncio.Task[None], DeliveryJob] = {}
        self._finished: list[FinishedAttempt] = []
        self._has_claimed = False
        self._log = structlog.get_logger("hooks")

    async def run(self) -> None:
        """Delivers until it is cancelled. Raises what the database raises; it can be run again then."""
        while True:
            await self._outbox.wait(await self.run_once())

    async def run_once(self) -> float:
        """Records what has ended, starts what is due; seconds until there may be more to do."""
        moment = self._clock()
        # Before anything else: what a receiver has taken is sent again by the next process if this one is killed before it is recorded.
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
        """Records the attempts that have ended, in a transaction of their own; keeps them when that fails."""
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

    async def wait_idle(self) -> None:
        """Returns when nothing is under way and everything that ended is recorded."""
        while self._running or self._finished:
            if self._running:
                await asyncio.wait(self._running)
            await self.run_once()

    async def close(self) -> None:
        """Lets what is under way end, for a moment; hands the rest back, so that another process need not wait for the lease."""
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
        """Forgets events of long ago that are delivered or given up."""
        before = self._clock() - RETENTION
        deleted = SWEEP_BATCH_SIZE
        while deleted == SWEEP_BATCH_SIZE:
            async with write_transaction(self._database) as session:
                deleted = (await session.execute(events.delete_old_events(before, SWEEP_BATCH_SIZE))).rowcount

    async def _find_due(self, moment: datetime) -> tuple[list[int], float]:
        """The deliveries to claim now, and the seconds until the next look."""
        async with self._database.read_session() as session:
            rows = (await session.execute(deliveries.next_by_hook(moment))).all()
            waiting = [(hook, due_at) for hook, due_at in rows if due_at is not None]
            next_due_at = min((following for _, following in waiting if following > moment), default=None)
            pause = POLL_SECONDS if next_due_at is None else min(POLL_SECONDS, (next_due_at - moment).total_seconds())
            shares = self._allocate([hook for hook, following in waiting if following <= moment])
            ids: list[int] = []
            hooks_with_shares = list(shares.items())
            for start in range(0, len(hooks_with_shares), MAX_HOOKS_PER_STATEMENT):
                batch = dict(hooks_with_shares[start : start + MAX_HOOKS_PER_STATEMENT])
                ids += (await session.execute(deliveries.due(batch, moment))).scalars().all()
        # There may be more behind these; a full house is looked at again when somebody leaves it.
        return ids, 0.0 if ids else pause

    def _allocate(self, due: list[Hook]) -> Counter[int]:
        """How many deliveries each hook may start now: in turn one for each, until the places are given away."""
        free = MAX_CONCURRENT_DELIVERIES - len(self._running)
        # A finished attempt that is not yet recorded is repeated if the process is killed now: it counts as one that runs.
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
        claimed = (await session.execute(deliveries.claim(ids, self._name, moment + self._lease, moment))).scalars().all()
        rows = (await session.execute(events.of_deliveries(list(claimed)))).all() if claimed else []
        return [DeliveryJob(delivery, hook, event, origin_of(hook)) for delivery, hook, event in rows]

    async def _attempt(self, job: DeliveryJob) -> None:
        try:
            message = make_message(self._services.cipher, job.hook, job.delivery.webhook_id, job.event.payload)
            result = await self._outbox.sender.send(message, self._clock())
        except UndecryptableToken:
            result = DeliveryResult(error="the hook's credentials cannot be read with this instance's key; make the hook anew")
        except Exception as error:
            self._log.error("unexpected", delivery=job.delivery.id, exc_info=error)
            result = DeliveryResult(error=f"{type(error).__name__}; the log of the server has it")
        self._finished.append(FinishedAttempt(job, result, self._clock()))
        if self._on_attempt is not None:
            self._on_attempt("delivered" if result.is_ok else "failed")

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._outbox.notify()

    async def _record(self, session: DatabaseSession, finished: list[FinishedAttempt], moment: datetime) -> bool:
        """Writes what has ended; whether a hook may be enabled by it."""
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
                session, [key for key in failed if last_attempts[key].result.is_gone], "The receiver wants no more: it answered 410."
            )
            await self._disable(session, failed, f"Nothing was taken for {DISABLE_AFTER.days} days.", moment - DISABLE_AFTER)
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
    """What counts as one host: the scheme, name and port of the URL."""
    with contextlib.suppress(httpx.InvalidURL):
        url = httpx.URL(hook.url)
        return url.scheme, url.host, port_of(url)
    return "", hook.url, 0
