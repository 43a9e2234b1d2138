"""Runs a job again and again in one server process of the instance, whichever is free when the job is due.

A lease in the database decides which one. The process renews it while the job runs, so a process that is killed delays the next run by
LEASE_SECONDS at most. Leases compare the times of hosts, which follow the clock of the database: a job must tolerate that two processes
run it if a clock has just been changed.
A clock that is ahead, or was set back, does not stop the job: each process also measures how long the lease has not changed.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import monotonic

import structlog

from graph.context import Services
from graph.operations.transaction import write_transaction
from storage.tables import job_leases
from storage.tables.job_leases import LeaseState

LEASE_SECONDS = 60.0
RENEW_SECONDS = LEASE_SECONDS / 3
MAX_WAIT_SECONDS = 60.0
MIN_WAIT_SECONDS = 0.01

log = structlog.get_logger("jobs")

Job = Callable[[], Awaitable[float | None]]
"""Returns None after it succeeded, or the seconds until the next run after it failed."""


class ExclusiveJob:
    """A job that all server processes offer to run. `interval` is the time in seconds between the starts of two runs that succeed."""

    def __init__(self, services: Services, name: str, interval: float, job: Job) -> None:
        self._services = services
        self._name = name
        self._interval = timedelta(seconds=interval)
        self._job = job
        self._holder = secrets.token_hex(16)
        self._abandoned_seconds = max(interval, LEASE_SECONDS)
        """A lease that has not changed for so long is due, whatever the clocks of its holder and of this process show."""
        self._lease: LeaseState | None = None
        """As it was read last."""
        self._unchanged_since = 0.0

    async def run_forever(self) -> None:
        """Runs the job whenever it is due and no other process runs it, until canceled. Raises what the job and the database raise."""
        while True:
            await self.run_if_due()
            await asyncio.sleep(await self._seconds_until_due())

    async def run_if_due(self) -> bool:
        """Runs the job, unless another process runs it or has run it in this interval. Returns whether it ran to its end."""
        started = self._services.clock()
        lease = timedelta(seconds=LEASE_SECONDS)
        acquire = job_leases.acquire(
            self._services.database.dialect,
            self._name,
            self._holder,
            moment=started,
            expires_at=started + lease,
            completed_before=started - self._interval,
            abandoned=self._lease if self._seconds_until_abandoned() <= 0 else None,
        )
        if not await self._change(acquire):
            return False
        running = asyncio.ensure_future(self._job())
        retry_seconds: float | None = 0.0
        try:
            while not (await asyncio.wait({running}, timeout=RENEW_SECONDS))[0]:
                if not await self._change(job_leases.extend(self._name, self._holder, self._services.clock() + lease)):
                    log.warning("lease of a job lost", job=self._name)
                    return False
            retry_seconds = running.result()
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await running
            # After a cancellation too, so that another process need not wait until the lease ends.
            moment = self._services.clock()
            if retry_seconds is None:
                await self._change(job_leases.complete(self._name, self._holder, started, moment))
            else:
                await self._change(job_leases.extend(self._name, self._holder, moment + timedelta(seconds=retry_seconds)))
        return True

    async def _seconds_until_due(self) -> float:
        async with self._services.database.read_session() as session:
            rows = await session.read(job_leases.find(self._name))
        moment = due = self._services.clock()
        for (lease,) in rows:
            due = max(lease.expires_at, lease.completed_at + self._interval if lease.completed_at is not None else moment)
            state = LeaseState(lease.holder, lease.expires_at, lease.completed_at)
            if state != self._lease:
                self._lease, self._unchanged_since = state, monotonic()
        seconds = min((due - moment).total_seconds(), self._seconds_until_abandoned())
        return min(max(seconds, MIN_WAIT_SECONDS), MAX_WAIT_SECONDS)

    def _seconds_until_abandoned(self) -> float:
        if self._lease is None:
            return self._abandoned_seconds
        return self._unchanged_since + self._abandoned_seconds - monotonic()

    async def _change(self, statement: object) -> bool:
        async with write_transaction(self._services.database) as session:
            result = await session.execute(statement)
        return bool(result.rowcount)
