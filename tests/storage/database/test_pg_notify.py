"""Notifications of one server process, which several of its background jobs send on one connection."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from storage.database.engine import Database
from storage.database.pg_notify import Notifications
from tests.support.servers.streams import background_tasks
from tests.support.waiting import wait_until

CHANNELS = ("forgefront_builds", "forgefront_changes", "forgefront_traces", "forgefront_limits")

pytestmark = pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)


class ListeningProcess:
    """A process that listens on some channels, and records what it receives, except that it is connected."""

    def __init__(self, database: Database) -> None:
        self.received: list[tuple[str, str]] = []
        self.notifications = Notifications(database, {channel: self._record(channel) for channel in CHANNELS})

    def _record(self, channel: str) -> Any:
        return lambda payload: self.received.append((channel, payload)) if payload else None


@pytest.fixture
async def process(database: Database) -> AsyncIterator[ListeningProcess]:
    found = ListeningProcess(database)
    async with background_tasks(found.notifications.run()):
        await wait_until(lambda: found.notifications.is_connected)
        yield found


async def test_concurrent_notifications_are_all_sent(process: ListeningProcess) -> None:
    """One commit wakes several background jobs, each of which notifies the other processes."""
    assert await asyncio.gather(*(process.notifications.notify(channel, "x") for channel in CHANNELS)) == [True] * len(CHANNELS)

    await wait_until(lambda: len(process.received) == len(CHANNELS))
    assert sorted(process.received) == [(channel, "x") for channel in sorted(CHANNELS)]


async def test_what_is_not_sent_is_reported(database: Database, process: ListeningProcess) -> None:
    assert not await Notifications(database, {}).notify(CHANNELS[0], "not connected")
    assert not await process.notifications.notify(CHANNELS[0], "x" * 8_000)
    process.notifications._connection.terminate()
    assert not await process.notifications.notify(CHANNELS[0], "lost")

    await wait_until(lambda: not process.notifications.is_connected)
    await wait_until(lambda: process.notifications.is_connected)
    assert await process.notifications.notify(CHANNELS[0], "sent")
    await wait_until(lambda: process.received == [(CHANNELS[0], "sent")])


async def test_senders_do_not_wait_one_after_another_for_a_server_that_does_not_answer(process: ListeningProcess) -> None:
    statements: list[str] = []

    class SilentConnection:
        async def execute(self, *arguments: str, **_: float) -> None:
            statements.append(arguments[-1])
            raise TimeoutError

    process.notifications._connection = SilentConnection()
    assert await asyncio.gather(*(process.notifications.notify(channel, channel) for channel in CHANNELS)) == [False] * len(CHANNELS)
    assert statements == [CHANNELS[0]]

    await wait_until(lambda: process.notifications.is_connected)
    assert await process.notifications.notify(CHANNELS[0], "again")
