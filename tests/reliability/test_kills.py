"""SIGKILL under load: no acknowledged write is lost, doubled or half-written (R1, R2, R3, R4, R12)."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from sqlalchemy import func, select
from sqlmodel import col

from graph.events.delivery_worker import MAX_CONCURRENT_PER_HOST
from storage import integrity, tables
from storage.database.engine import Database
from storage.tables import DeliveryState
from tests.make import DataFactory
from tests.support.reliability_promises import SEEDS, promise, scaled_count
from tests.support.servers.server_process import ServerProcess, WriteLog, create_writers, run_for_each, run_server
from tests.support.servers.webhook_receiver import ReceivedRequest, WebhookReceiver
from tests.support.waiting import wait_for_killed_clients

KILLS = scaled_count(50)
HOOK_KILLS = scaled_count(20)
WRITERS = 8
DELIVERED_SECONDS = 90.0
"""After the last restart."""


async def until_killed(
    server: ServerProcess, project: tables.Project, users: list[tables.User], written: WriteLog, turn: int, pause: float
) -> None:
    """Every user writes, pausing between, until there is no answer."""
    async with server.client() as client:

        async def write(user: tables.User) -> None:
            number = 0
            while await written.create_issue(client, project.id, user, f"{turn} {user.username} {number}"):
                number += 1
                await asyncio.sleep(pause)

        await run_for_each(users, write)


async def kill_after(server: ServerProcess, seconds: float) -> None:
    await asyncio.sleep(seconds)
    server.kill()


async def whole(database: Database, written: WriteLog, project: tables.Project) -> int:
    """Holds what is stored against what was acknowledged; the number of issues."""
    assert await integrity.find_broken_pages(database) == []
    assert await integrity.find_broken_references(database) == []
    labels = select(func.count()).where(col(tables.IssueLabel.issue_id) == col(tables.Issue.id)).scalar_subquery()
    statement = select(col(tables.Issue.title), col(tables.Issue.iid), labels).where(col(tables.Issue.project_id) == project.id)
    async with database.read_session() as session:
        rows = (await session.execute(statement)).all()
    stored = {title: iid for title, iid, _ in rows}
    assert len(stored) == len(rows), "an issue was opened twice"
    lost = {title for title, iid in written.iids.items() if stored.get(title) != iid}
    assert not lost, f"acknowledged, and not there: {lost}"
    assert sorted(stored.values()) == list(range(1, len(rows) + 1))
    assert {count for _, _, count in rows} <= {2}, "an issue without its labels"
    return len(rows)


@promise("R1", "R2", "R3")
@pytest.mark.parametrize("seed", SEEDS)
async def test_writers(
    make: DataFactory, database: Database, tmp_path: Path, database_url: str, seed: int, figure: Callable[[str], None]
) -> None:
    project, users = await create_writers(make, WRITERS)
    chance, written, starts, stored = random.Random(seed), WriteLog(), [], 0
    for turn in range(KILLS):
        with run_server(tmp_path, database_url) as server:
            starts.append(server.seconds)
            async with asyncio.TaskGroup() as group:
                group.create_task(until_killed(server, project, users, written, turn, 0))
                group.create_task(kill_after(server, chance.uniform(0.2, 2)))
        # PostgreSQL may still be at the commit that nobody waits for any more.
        await wait_for_killed_clients(database)
        stored = await whole(database, written, project)
    with run_server(tmp_path, database_url) as server:
        async with server.client() as client:
            assert await written.create_issue(client, project.id, users[0], "after all kills")
        assert (await server.stop())[0] == 0
    assert await whole(database, written, project) == stored + 1 == written.iids["after all kills"]

    assert written.statuses == {}
    figure(
        f"{KILLS} kills: {len(written.iids)} acknowledged, 0 lost, 0 doubled, {sum(written.unanswered.values())} unanswered, "
        f"{stored + 1 - len(written.iids)} of them kept; start at most {max(starts):.1f} s"
    )
    assert max(starts) < 10


@promise("R1")
@pytest.mark.parametrize("seed", SEEDS)
async def test_notes(
    make: DataFactory, database: Database, tmp_path: Path, database_url: str, seed: int, figure: Callable[[str], None]
) -> None:
    """Rows that the commit itself writes; on SQLite one commit keeps those of several callers."""
    project, users = await create_writers(make, WRITERS)
    issue = await make.issue(project)
    chance, written = random.Random(seed), WriteLog()
    for turn in range(KILLS):
        with run_server(tmp_path, database_url) as server:
            async with server.client() as client, asyncio.TaskGroup() as group:

                async def write(user: tables.User, client: httpx.AsyncClient = client, turn: int = turn) -> None:
                    number = 0
                    while await written.create_note(client, issue, user, f"{turn} {user.username} {number}"):
                        number += 1

                group.create_task(run_for_each(users, write))
                group.create_task(kill_after(server, chance.uniform(0.2, 2)))
        await wait_for_killed_clients(database)
        assert await integrity.find_broken_pages(database) == []
        assert await integrity.find_broken_references(database) == []
        async with database.read_session() as session:
            rows = (await session.execute(select(col(tables.Note.body), col(tables.Note.id)))).all()
        stored = dict(map(tuple, rows))
        assert len(stored) == len(rows), "a note was written twice"
        lost = {body for body, id in written.iids.items() if stored.get(body) != id}
        assert not lost, f"acknowledged, and not there: {lost}"

    assert written.statuses == {}
    figure(f"{KILLS} kills: {len(written.iids)} acknowledged, 0 lost, 0 doubled, {sum(written.unanswered.values())} unanswered")


class FlakyReceiver(WebhookReceiver):
    """Refuses a fifth of all requests with 500, but the same message at most twice, so that the schedule brings it in time."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._chance = random.Random(seed)
        self.refused: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()
        self.ids: dict[str, set[str]] = {}

    def status_for(self, request: ReceivedRequest) -> int:
        key = request.headers["webhook-id"]
        self.ids.setdefault(request.json["object_attributes"]["title"], set()).add(key)
        if self.refused[key] < 2 and self._chance.random() < 0.2:
            self.refused[key] += 1
            return 500
        self.taken[key] += 1
        return 200


@promise("R12")
@pytest.mark.parametrize("seed", SEEDS)
async def test_hooks(
    make: DataFactory, database: Database, tmp_path: Path, database_url: str, seed: int, figure: Callable[[str], None]
) -> None:
    project, users = await create_writers(make, 4)
    chance, written = random.Random(seed), WriteLog()

    async def left() -> int:
        pending = col(tables.Delivery.state) == DeliveryState.PENDING
        async with database.read_session() as session:
            return int(await session.scalar(select(func.count()).select_from(tables.Delivery).where(pending)))

    async with FlakyReceiver(seed) as receiver:
        await make.save(tables.Hook(url=receiver.url, issues_events=True, push_events=False))
        for turn in range(HOOK_KILLS):
            with run_server(tmp_path, database_url) as server:
                async with asyncio.TaskGroup() as group:
                    group.create_task(until_killed(server, project, users, written, turn, 0.1))
                    group.create_task(kill_after(server, chance.uniform(1, 5)))
        waiting = await left()
        with run_server(tmp_path, database_url) as server:
            started = time.monotonic()
            while await left():
                assert time.monotonic() - started < DELIVERED_SECONDS
                await asyncio.sleep(0.5)
            seconds = time.monotonic() - started
            assert (await server.stop())[0] == 0

    doubled = sum(count - 1 for count in receiver.taken.values())
    share = f"{doubled / len(written.iids):.1%}, {doubled / HOOK_KILLS:.1f} a kill"
    figure(
        f"{HOOK_KILLS} kills: {len(written.iids)} acknowledged, {waiting} undelivered at the last kill, all delivered "
        f"{seconds:.0f} s after the last start; {len(receiver.requests)} requests, "
        f"{sum(receiver.refused.values())} refused, {doubled} doubled ({share})"
    )
    delivered = {title for title, keys in receiver.ids.items() if any(receiver.taken[key] for key in keys)}
    assert set(written.iids) <= delivered
    assert {len(keys) for keys in receiver.ids.values()} == {1}, "a retry under another webhook-id"
    assert await make.count(tables.Event) == await make.count(tables.Issue)
    assert doubled <= MAX_CONCURRENT_PER_HOST * HOOK_KILLS
