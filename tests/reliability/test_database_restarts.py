"""PostgreSQL stops and comes back under load: the server answers 503 meanwhile, goes on by itself, and loses no acknowledged write (R9)."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url, select
from sqlmodel import col

from storage import migrations, tables
from storage.database.engine import Database
from tests.make import DataFactory
from tests.support.databases import TemporaryServer, durable_server
from tests.support.reliability_promises import promise, scaled_count
from tests.support.server_process import WriteLog, create_writers, run_for_each, run_server

STOPS = scaled_count(10, 2)
WRITERS = 8
UP_SECONDS = 7.0
DOWN_SECONDS = 3.0
MAX_SECONDS = 5.0
"""Of an answer, and of the time until a write succeeds again."""


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[TemporaryServer]:
    with durable_server() as server:
        migrations.upgrade(server.url)
        yield server


@pytest.fixture
def database_url(own_postgres: TemporaryServer) -> str:
    """The database of this test, on a server that it may stop."""
    return make_url(own_postgres.url).set(drivername="postgresql+asyncpg").render_as_string()


@promise("R9")
async def test_stops_under_load(
    make: DataFactory, own_postgres: TemporaryServer, database_url: str, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    project, users = await create_writers(make, WRITERS)
    log, is_done, recoveries = WriteLog(), asyncio.Event(), []
    with run_server(tmp_path, database_url) as server:
        async with server.client() as client:

            async def write(user: tables.User) -> None:
                number = 0
                while not is_done.is_set():
                    assert await log.create_issue(client, project.id, user, f"{user.username} {number}"), log.unanswered
                    number += 1
                    await asyncio.sleep(0.01)

            writing = asyncio.create_task(run_for_each(users, write))
            for _ in range(STOPS):
                await asyncio.sleep(UP_SECONDS)
                await asyncio.to_thread(own_postgres.stop)
                await asyncio.sleep(DOWN_SECONDS)
                await asyncio.to_thread(own_postgres.start)
                started = time.monotonic()
                while max(log.acknowledged_at.values()) < started:
                    assert not writing.done(), writing.exception()
                    assert time.monotonic() - started < MAX_SECONDS
                    await asyncio.sleep(0.02)
                recoveries.append(min(at for at in log.acknowledged_at.values() if at >= started) - started)
            is_done.set()
            await writing
        assert (await server.stop())[0] == 0

    database = Database(database_url)
    async with database.read_session() as session:
        statement = select(col(tables.Issue.title), col(tables.Issue.iid)).where(col(tables.Issue.project_id) == project.id)
        rows = (await session.execute(statement)).all()
    await database.close()
    stored = dict(map(tuple, rows))
    figure(
        f"{STOPS} stops: {len(log.iids)} acknowledged, 0 lost; {log.statuses[503]} answers 503; slowest answer {max(log.seconds):.1f} s;"
        f" a write succeeded at most {max(recoveries):.2f} s after PostgreSQL accepted connections"
    )
    assert {title for title, iid in log.iids.items() if stored.get(title) != iid} == set()
    assert sorted(stored.values()) == list(range(1, len(rows) + 1))
    assert set(log.statuses) == {503}
    assert {1 <= int(response.headers["Retry-After"]) <= 5 for response in log.refusals} == {True}
    assert max(log.seconds) < MAX_SECONDS
