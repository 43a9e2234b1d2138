"""Jobs that one server process of the instance runs at a time."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select
from sqlmodel import col

from graph.context import Services
from graph.jobs import exclusive_job
from graph.jobs.exclusive_job import ExclusiveJob
from storage import tables
from storage.tables import job_leases
from tests.make import DataFactory
from tests.support.waiting import wait_until


class TestExclusiveJob:
    @pytest.fixture(autouse=True)
    def set_clock(self, services: Services) -> None:
        self.moment = datetime(2026, 3, 1, tzinfo=UTC)
        self.services = replace(services, clock=lambda: self.moment)
        self.runs = 0
        self.outcome: float | None = None

    async def run(self) -> float | None:
        self.runs += 1
        return self.outcome

    def processes(self, interval: float = 600.0) -> tuple[ExclusiveJob, ExclusiveJob]:
        return (ExclusiveJob(self.services, "count", interval, self.run), ExclusiveJob(self.services, "count", interval, self.run))

    async def wait_until_renewed(self) -> None:
        """Waits until the lease lasts for a minute from now."""
        while True:
            async with self.services.database.read_session() as session:
                ((lease,),) = await session.read(job_leases.find("count"))
            if lease.expires_at >= self.moment + timedelta(seconds=60):
                return
            await asyncio.sleep(0.01)

    async def test_runs_once_for_all_processes(self, make: DataFactory) -> None:
        one, two = self.processes()
        ran = await asyncio.gather(one.run_if_due(), two.run_if_due())
        assert (sorted(ran), self.runs) == ([False, True], 1)
        self.moment += timedelta(seconds=599)
        assert not await one.run_if_due() and not await two.run_if_due()
        self.moment += timedelta(seconds=1)
        assert await two.run_if_due() and not await one.run_if_due()
        # A shorter interval counts at once, and a job of another name has a lease of its own.
        self.moment += timedelta(seconds=20)
        assert await self.processes(20.0)[0].run_if_due()
        assert await ExclusiveJob(self.services, "other", 600.0, self.run).run_if_due()
        # A failed run is repeated after the seconds that it returned.
        self.moment, self.outcome = self.moment + timedelta(seconds=600), 30.0
        assert await one.run_if_due() and not await two.run_if_due()
        self.moment, self.outcome = self.moment + timedelta(seconds=30), None
        assert await two.run_if_due() and not await one.run_if_due()
        assert self.runs == 6
        names = select(col(tables.JobLease.name)).order_by(col(tables.JobLease.name))
        async with make.services.database.read_session() as session:
            assert [name for (name,) in await session.read(names)] == ["count", "other"]

    async def test_is_taken_over_from_a_dead_process_and_not_from_a_living_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(exclusive_job, "RENEW_SECONDS", 0.01)
        began, end = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            began.set()
            await end.wait()

        slow, other = ExclusiveJob(self.services, "count", 600.0, wait), self.processes()[1]
        running = asyncio.create_task(slow.run_if_due())
        await began.wait()
        self.moment += timedelta(seconds=59)
        assert not await other.run_if_due()
        await self.wait_until_renewed()
        self.moment += timedelta(seconds=59)
        assert not await other.run_if_due()
        # Cancellation, as at a shutdown, gives the lease back; the run has not succeeded.
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await other.run_if_due()

        # A process that renews nothing for a minute has lost its lease: its run ends and changes nothing.
        monkeypatch.setattr(exclusive_job, "RENEW_SECONDS", 0.3)
        self.moment += timedelta(seconds=600)
        began.clear()
        running = asyncio.create_task(slow.run_if_due())
        await began.wait()
        self.moment += timedelta(seconds=61)
        assert await other.run_if_due()
        assert await running is False
        assert not await other.run_if_due()
        assert self.runs == 2

    @pytest.mark.parametrize("is_completed", [True, False])
    async def test_a_clock_that_was_set_back_delays_it_by_one_interval(self, monkeypatch: pytest.MonkeyPatch, is_completed: bool) -> None:
        ticks = 0.0
        monkeypatch.setattr(exclusive_job, "monotonic", lambda: ticks)
        dead, other = self.processes(60.0)
        self.outcome = None if is_completed else 60.0
        assert await dead.run_if_due()
        self.outcome = None
        self.moment -= timedelta(hours=1)
        assert not await other.run_if_due()
        assert await other._seconds_until_due() == 60.0
        ticks = 59.0
        assert await other._seconds_until_due() == pytest.approx(1.0)
        assert not await other.run_if_due()
        ticks = 60.0
        assert await other.run_if_due()
        # It waits by its own clock now, as does the process that returns.
        assert await other._seconds_until_due() == 60.0
        assert not await other.run_if_due() and not await dead.run_if_due()
        self.moment += timedelta(seconds=60)
        assert await dead.run_if_due()

    async def test_that_is_renewed_is_not_abandoned(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ticks = 0.0
        monkeypatch.setattr(exclusive_job, "monotonic", lambda: ticks)
        monkeypatch.setattr(exclusive_job, "RENEW_SECONDS", 0.01)
        slow_has_begun = asyncio.Event()

        async def wait() -> None:
            slow_has_begun.set()
            await asyncio.Event().wait()

        slow = ExclusiveJob(self.services, "count", 60.0, wait)
        # The clock of the other host is an hour behind.
        other = ExclusiveJob(replace(self.services, clock=lambda: self.moment - timedelta(hours=1)), "count", 60.0, self.run)
        running = asyncio.create_task(slow.run_if_due())
        await slow_has_begun.wait()
        for _ in range(3):
            self.moment += timedelta(seconds=20)
            await self.wait_until_renewed()
            await other._seconds_until_due()
            ticks += 59.0
            assert not await other.run_if_due()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    async def test_that_raises_can_run_at_once_elsewhere(self) -> None:
        async def fail() -> None:
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            await ExclusiveJob(self.services, "count", 600.0, fail).run_if_due()
        assert await self.processes()[1].run_if_due()

    async def test_runs_again_and_again(self) -> None:
        self.services = replace(self.services, clock=lambda: datetime.now(UTC))
        tasks = [asyncio.create_task(job.run_forever()) for job in self.processes(0.05)]
        started = asyncio.get_running_loop().time()
        await wait_until(lambda: self.runs >= 4)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert self.runs <= 2 + (asyncio.get_running_loop().time() - started) / 0.05
