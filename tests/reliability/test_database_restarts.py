"""PostgreSQL stops under load, and comes back or is replaced by its standby.

The service answers 503 meanwhile, continues without intervention, and loses no acknowledged write (R9).
"""

import asyncio
import contextlib
import json
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import make_url, select
from sqlmodel import col

from storage import migrations, tables
from storage.database.engine import Database
from tests.make import DataFactory
from tests.support.database.databases import TemporaryServer, durable_server, free_port
from tests.support.reliability_promises import promise, scaled_count
from tests.support.servers.server_process import WriteLog, create_writers, run_for_each, run_server

STOPS = scaled_count(10, 2)
WRITERS = 8
UP_SECONDS = 7.0
DOWN_SECONDS = 3.0
MAX_SECONDS = 5.0
"""Of an answer, and of the time until a write succeeds again."""


PROMOTIONS = 2


@pytest.fixture
def own_postgres() -> Iterator[TemporaryServer]:
    """The server of one test, which may stop it."""
    with durable_server() as server:
        migrations.upgrade(server.url)
        yield server


@pytest.fixture
def standby(own_postgres: TemporaryServer) -> TemporaryServer:
    return own_postgres.create_standby(free_port())


@pytest.fixture
def database_url(own_postgres: TemporaryServer, request: pytest.FixtureRequest) -> str:
    """The URL of the server; with a standby that of both, of which the service uses the primary one."""
    url = make_url(own_postgres.url)
    if "standby" in request.fixturenames:
        hosts = [f"127.0.0.1:{server.port}" for server in (own_postgres, request.getfixturevalue("standby"))]
        url = url.set(host=None, port=None, query={"host": hosts, "target_session_attrs": "primary"})
    return url.render_as_string()


@dataclass
class WritingUsers:
    """Users who create issues all the time, and what they were answered."""

    project: tables.Project
    log: WriteLog
    writing: "asyncio.Task[None]"
    recoveries: list[float] = field(default_factory=list)

    async def wait_for_write(self) -> None:
        """Waits until a write succeeds that is acknowledged from now on, and records the seconds."""
        started = time.monotonic()
        while max(self.log.acknowledged_at.values()) < started:
            assert not self.writing.done(), self.writing.exception()
            assert time.monotonic() - started < MAX_SECONDS
            await asyncio.sleep(0.02)
        self.recoveries.append(min(at for at in self.log.acknowledged_at.values() if at >= started) - started)

    def describe(self) -> str:
        log = self.log
        return (
            f"{len(log.iids)} acknowledged, 0 lost; {log.statuses[503]} answers 503; slowest answer {max(log.seconds):.1f} s;"
            f" a write succeeded at most {max(self.recoveries):.2f} s after PostgreSQL accepted connections"
        )

    async def check(self, database_url: str) -> None:
        """Every acknowledged issue is stored, none twice; the other answers were 503 with Retry-After, in time.

        One answer is 500: that to an issue which was stored, but which could not be read any more, since 503 invites to repeat the request.
        """
        database = Database(database_url)
        async with database.read_session() as session:
            statement = select(col(tables.Issue.title), col(tables.Issue.iid)).where(col(tables.Issue.project_id) == self.project.id)
            rows = (await session.execute(statement)).all()
        await database.close()
        stored = dict(map(tuple, rows))
        assert {title for title, iid in self.log.iids.items() if stored.get(title) != iid} == set()
        assert sorted(stored.values()) == list(range(1, len(rows) + 1))
        assert set(self.log.statuses) - {500} == {503}
        unreadable = {json.loads(response.request.content)["title"] for response in self.log.refusals if response.status_code == 500}
        assert unreadable - stored.keys() == set()
        refused = [response for response in self.log.refusals if response.status_code == 503]
        assert {1 <= int(response.headers["Retry-After"]) <= 5 for response in refused} == {True}
        assert max(self.log.seconds) < MAX_SECONDS


@asynccontextmanager
async def writing_users(make: DataFactory, database_url: str, folder: Path) -> AsyncIterator[WritingUsers]:
    """Users write to one server process, which survives the block, until its end."""
    project, users = await create_writers(make, WRITERS)
    log, is_done = WriteLog(), asyncio.Event()
    with run_server(folder, database_url) as server:
        async with server.client() as client:

            async def write(user: tables.User) -> None:
                number = 0
                while not is_done.is_set():
                    assert await log.create_issue(client, project.id, user, f"{user.username} {number}"), log.unanswered
                    number += 1
                    await asyncio.sleep(0.01)

            writing = asyncio.create_task(run_for_each(users, write))
            try:
                yield WritingUsers(project, log, writing)
            finally:
                is_done.set()
                await asyncio.wait([writing])
            writing.result()
        assert (await server.stop())[0] == 0


@promise("R9")
async def test_stops_under_load(
    make: DataFactory, own_postgres: TemporaryServer, database_url: str, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    async with writing_users(make, database_url, tmp_path) as users:
        for _ in range(STOPS):
            await asyncio.sleep(UP_SECONDS)
            await asyncio.to_thread(own_postgres.stop)
            await asyncio.sleep(DOWN_SECONDS)
            await asyncio.to_thread(own_postgres.start)
            await users.wait_for_write()
    figure(f"{STOPS} stops: {users.describe()}")
    await users.check(database_url)


@promise("R9")
async def test_promotions_under_load(
    make: DataFactory,
    own_postgres: TemporaryServer,
    standby: TemporaryServer,
    database_url: str,
    tmp_path: Path,
    figure: Callable[[str], None],
) -> None:
    """The primary dies and its standby is promoted; a new standby takes the place of the dead server."""
    primary = own_postgres
    try:
        async with writing_users(make, database_url, tmp_path) as users:
            for number in range(PROMOTIONS):
                if number:
                    primary, standby = standby, await asyncio.to_thread(standby.create_standby, primary.port)
                await asyncio.sleep(UP_SECONDS)
                await asyncio.to_thread(primary.stop)
                await asyncio.sleep(DOWN_SECONDS)
                await asyncio.to_thread(standby.promote)
                await users.wait_for_write()
        figure(f"{PROMOTIONS} promotions: {users.describe()}")
        await users.check(database_url)
    finally:
        for server in (primary, standby):
            with contextlib.suppress(subprocess.CalledProcessError):
                server.stop()
