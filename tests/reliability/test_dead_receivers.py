"""Hooks whose receivers never answer do not delay others (R14)."""

import asyncio
import statistics
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from storage import tables
from tests.make import DataFactory, token_of
from tests.support.reliability_promises import promise, scaled_count
from tests.support.servers.server_process import ServerProcess, WriteLog, create_writers, run_server
from tests.support.servers.webhook_receiver import ReceivedRequest, WebhookReceiver

HOOKS = scaled_count(100, 10)
UNRESPONSIVE_HOSTS = 10
"""The hooks are spread over this number of receivers, each of which is a host of its own."""
ROUNDS = scaled_count(10, 3)
"""Of each kind, in turn: with dead hooks and without, so that what else the machine does hits both alike."""
ROUND_SECONDS = 3.0
MAX_RATIO = 1.2
DELIVERED_SECONDS = 5.0
MAX_SOCKETS_PER_HOST = 4


async def measure(server: ServerProcess, project: tables.Project, user: tables.User, written: WriteLog, name: str) -> list[float]:
    """Seconds of reads for a while, beside which a write every tenth of a second causes deliveries."""
    seconds: list[float] = []
    end = time.monotonic() + ROUND_SECONDS
    async with server.client() as client:

        async def write() -> None:
            number = 0
            while time.monotonic() < end:
                assert await written.create_issue(client, project.id, user, f"{name} {number}")
                number += 1
                await asyncio.sleep(0.1)

        async def read() -> None:
            headers = {"PRIVATE-TOKEN": token_of(user)}
            while time.monotonic() < end:
                started = time.monotonic()
                response = await client.get(f"/projects/{project.id}/issues", headers=headers)
                assert response.status_code == 200
                seconds.append(time.monotonic() - started)

        await asyncio.gather(write(), read(), read())
    return seconds


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)]


async def set_hooks_enabled(hooks: list[tables.Hook], make: DataFactory, *, on: bool) -> None:
    async with make.services.database.write_session() as session:
        for hook in hooks:
            found = await session.get(tables.Hook, hook.id)
            assert found is not None
            found.issues_events = on
        await session.commit()


class TimedReceiver(WebhookReceiver):
    """Notes when each issue was delivered."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived: dict[str, float] = {}

    def status_for(self, request: ReceivedRequest) -> int:
        self.arrived.setdefault(request.json["object_attributes"]["title"], time.monotonic())
        return 200


@promise("R14")
async def test_dead_receivers(make: DataFactory, tmp_path: Path, database_url: str, figure: Callable[[str], None]) -> None:
    project, users = await create_writers(make, 1)
    written = WriteLog()
    dead = [WebhookReceiver(silent=True) for _ in range(UNRESPONSIVE_HOSTS)]
    async with TimedReceiver() as alive, AsyncExitStack() as stack:
        for receiver in dead:
            await stack.enter_async_context(receiver)
        hooks = [tables.Hook(url=dead[number % UNRESPONSIVE_HOSTS].url, issues_events=False, push_events=False) for number in range(HOOKS)]
        await make.save(tables.Hook(url=alive.url, issues_events=True, push_events=False), *hooks)
        with_dead, without = [], []
        with run_server(tmp_path, database_url) as server:
            await measure(server, project, users[0], written, "warm")
            for number in range(ROUNDS):
                for on, found in ((False, without), (True, with_dead)):
                    await set_hooks_enabled(hooks, make, on=on)
                    # A change of hooks from elsewhere is seen within a second.
                    await asyncio.sleep(1.5)
                    name = f"{number} {'dead' if on else 'alone'}"
                    found.append(await measure(server, project, users[0], written, name))
            last = await wait_until_delivered(alive, written)
            sockets = [receiver.max_connected for receiver in dead]
            assert server.log_entries(level="error") == []
            code, seconds = await server.stop()
            assert code == 0
    ratio = statistics.median(map(p99, with_dead)) / statistics.median(map(p99, without))
    figure(
        f"{HOOKS} dead hooks on {UNRESPONSIVE_HOSTS} hosts: p99 of reads {statistics.median(map(p99, without)) * 1000:.1f} ms without, "
        f"{statistics.median(map(p99, with_dead)) * 1000:.1f} ms with them ({ratio:.2f} times); slowest delivery elsewhere {last:.1f} s; "
        f"at most {max(sockets)} sockets to a host; exit after {seconds:.1f} s"
    )
    assert min(sockets) > 0, "nothing was sent to the dead receivers"
    assert max(sockets) <= MAX_SOCKETS_PER_HOST
    assert last <= DELIVERED_SECONDS
    assert ratio <= MAX_RATIO


async def wait_until_delivered(alive: TimedReceiver, written: WriteLog) -> float:
    """Waits until every acknowledged issue was delivered; the seconds of the slowest, from the answer of the API."""
    deadline = time.monotonic() + DELIVERED_SECONDS
    while not set(written.iids) <= set(alive.arrived):
        assert time.monotonic() < deadline, sorted(set(written.iids) - set(alive.arrived))[:3]
        await asyncio.sleep(0.05)
    return max(alive.arrived[title] - written.acknowledged_at[title] for title in written.iids)
