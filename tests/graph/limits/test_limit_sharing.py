"""Limits that hold for all server processes of an instance."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from graph.context import Services
from graph.errors import LimitExceeded
from graph.jobs.limit_sharing import MAX_COUNTS, LimitSharing
from graph.operations.rate_limits import WINDOW_SECONDS, CostQuote, RateLimiter
from graph.rules.accounts.failure_limiter import FailureLimiter
from storage.database.pg_notify import MAX_PAYLOAD_BYTES, Notifications
from tests.support.servers.streams import background_tasks
from tests.support.waiting import wait_until

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
EMPTY_COUNTS = {"process": "another", "failures": [], "points": []}


class ServerProcess:
    """The limits of one server process: ten failed sign-ins a minute, and a hundred points an hour."""

    def __init__(self, services: Services) -> None:
        self.services = replace(
            services,
            sign_in_failures=FailureLimiter(max_failures=10),
            rate_limiter=RateLimiter(100, clock=lambda: self.seconds),
            clock=lambda: NOW,
        )
        self.seconds = 5000.0
        self.sharing = LimitSharing(self.services)
        self.notifications = Notifications(services.database, {self.sharing.channel: self.sharing.receive})

    async def fail(self, login: str | int) -> None:
        async with self.services.sign_in_failures.attempt(login) as record_failure:
            record_failure()

    async def is_rejected(self, login: str | int) -> bool:
        try:
            async with self.services.sign_in_failures.attempt(login):
                return False
        except LimitExceeded:
            return True

    def take_payloads(self) -> list[str]:
        return [self.sharing._make_payload(batch) for batch in self.sharing._take_batches()]

    def failures(self) -> int:
        """The failures of all names."""
        return sum(len(history.failed_at) for history in self.services.sign_in_failures._histories.values())

    def charge(self, viewer_id: int, points: int = 0) -> CostQuote:
        """Charges the points, at least one; the quote has the usage."""
        quote = CostQuote(points * 100, lambda _: "")
        self.services.rate_limiter.charge(viewer_id, quote, NOW)
        return quote

    def used(self, viewer_id: int) -> int:
        window = self.services.rate_limiter._windows.get(viewer_id)
        return window.used if window is not None else 0


@pytest.fixture
async def processes(services: Services) -> AsyncIterator[list[ServerProcess]]:
    """Three server processes of one instance, connected to its database."""
    found = [ServerProcess(services) for _ in range(3)]
    async with AsyncExitStack() as stack:
        for each in found:
            await stack.enter_async_context(background_tasks(each.notifications.run(), each.sharing.run(each.notifications)))
        if services.database.dialect == "postgresql":
            await wait_until(lambda: all(each.notifications.is_connected for each in found))
        yield found


def payload(**counts: object) -> str:
    return json.dumps({**EMPTY_COUNTS, **counts})


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
class TestSeveralProcesses:
    async def test_failed_sign_ins_are_counted_together(self, processes: list[ServerProcess]) -> None:
        for number in range(10):
            await processes[number % 2].fail("ada")

        await wait_until(lambda: [each.failures() for each in processes] == [10, 10, 10])

        assert [await each.is_rejected("ada") for each in processes] == [True, True, True]
        assert [await each.is_rejected("grace") for each in processes] == [False, False, False]

    async def test_points_are_counted_together(self, processes: list[ServerProcess]) -> None:
        first, second, third = processes
        first.charge(1, 60)
        second.charge(1, 30)
        second.charge(2, 5)

        await wait_until(lambda: [each.used(1) for each in processes] == [90, 90, 90])

        assert [each.used(2) for each in processes] == [5, 5, 5]
        with pytest.raises(LimitExceeded):
            third.charge(1, 11)
        usage = third.charge(1, 10).usage
        assert usage is not None
        assert (usage.used, usage.remaining) == (100, 0)

    async def test_a_window_begins_everywhere_with_the_first_operation(self, processes: list[ServerProcess]) -> None:
        first, second, _ = processes
        first.charge(1, 10)
        first.seconds += 600
        first.charge(1, 10)

        await wait_until(lambda: second.used(1) == 20)

        assert second.services.rate_limiter.window_age(1) == 600.0
        usage = second.charge(1).usage
        assert usage is not None
        assert usage.resets_at == NOW + timedelta(seconds=WINDOW_SECONDS - 600)

    async def test_counts_wait_for_a_lost_connection(self, processes: list[ServerProcess]) -> None:
        first, second, _ = processes
        first.notifications._connection.terminate()
        await wait_until(lambda: not first.notifications.is_connected)
        await first.fail("ada")
        first.charge(1, 10)

        await wait_until(lambda: (second.used(1), second.failures()) == (10, 1))

    async def test_counts_that_were_not_sent_are_sent_later(self, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
        """The first notification is sent, the second one is not."""
        process, other = ServerProcess(services), ServerProcess(services)
        process.charge(1, 10)
        for number in range(2 * MAX_COUNTS + 1):
            await process.fail(number)
        sent: list[str] = []

        async def notify(channel: str, payload: str) -> bool:
            if len(sent) != 1 or is_connected:
                sent.append(payload)
                return True
            return False

        monkeypatch.setattr(process.notifications, "notify", notify)
        is_connected = False
        await process.sharing._send(process.notifications)
        assert len(sent) == 1
        process.charge(2, 5)
        is_connected = True
        await process.sharing._send(process.notifications)

        for each in sent:
            other.sharing.receive(each)
        assert (other.failures(), other.used(1), other.used(2)) == (2 * MAX_COUNTS + 1, 10, 5)
        assert process.take_payloads() == []

    async def test_many_counts_are_split_by_the_limit_of_a_payload(self, processes: list[ServerProcess]) -> None:
        first, second, _ = processes
        viewers = range(2**31 - 1, 2**31 - 1 - 2 * MAX_COUNTS - 1, -1)
        for viewer_id in viewers:
            first.charge(viewer_id, 100)
        for number in range(MAX_COUNTS):
            await first.fail(number)
        first.seconds += WINDOW_SECONDS - 1

        payloads = first.take_payloads()

        assert len(payloads) == 3
        assert max(map(len, payloads)) < MAX_PAYLOAD_BYTES
        for each in payloads:
            second.sharing.receive(each)
        assert [second.used(viewer_id) for viewer_id in viewers] == [100] * len(viewers)
        assert len(second.services.sign_in_failures) == MAX_COUNTS


class TestOneProcess:
    @pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
    async def test_collects_nothing_on_sqlite(self, processes: list[ServerProcess]) -> None:
        first = processes[0]
        await first.fail("ada")
        first.charge(1, 10)

        assert first.take_payloads() == []
        await asyncio.wait_for(first.sharing.run(first.notifications), 1)

    @pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
    async def test_a_notification_has_no_login_in_it(self, services: Services) -> None:
        process = ServerProcess(services)
        await process.fail("my password")

        (sent,) = process.take_payloads()

        assert "password" not in sent
        process.sharing.receive(sent)
        assert process.failures() == 1

    @pytest.mark.parametrize(
        "invalid",
        [
            "{",
            "[]",
            "7",
            "{}",
            payload(failures=[["unknown", "ab"]]),
            payload(points=[["x", 1, 0]]),
            payload(points=[[1, float("inf"), 0]]),
        ],
    )
    async def test_ignores_what_is_not_valid(self, services: Services, invalid: str) -> None:
        process = ServerProcess(services)

        process.sharing.receive(invalid)
        process.sharing.receive(payload(points=[[1, 3, 0.5]]))

        assert process.used(1) == 3
