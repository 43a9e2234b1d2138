"""Many concurrent writers: none is refused without need, and no write is lost (R4, R10)."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import text

from storage import tables
from storage.database.engine import Database
from tests.make import DataFactory, token_of
from tests.support.reliability_promises import promise, scaled_count
from tests.support.servers.server_process import WriteLog, create_writers, run_for_each, run_server

WRITERS, ISSUES_PER_WRITER = 32, 100
SECONDS = float(scaled_count(60, 20))
"""How long the writers go on."""
LOCK_SECONDS = 7.0
"""Seconds for which another process keeps all writers out: longer than one waits for its turn."""


@promise("R4")
async def test_numbers_leave_no_gap(make: DataFactory, tmp_path: Path, database_url: str, figure: Callable[[str], None]) -> None:
    project, users = await create_writers(make, WRITERS)
    written = WriteLog()
    with run_server(tmp_path, database_url) as server:
        async with server.client() as client:

            async def write(user: tables.User) -> None:
                for number in range(ISSUES_PER_WRITER):
                    await written.create_issue(client, project.id, user, f"{user.username} {number}")

            started = time.monotonic()
            await run_for_each(users, write)
            seconds = time.monotonic() - started
        assert (await server.stop())[0] == 0
    rate = WRITERS * ISSUES_PER_WRITER / seconds
    p50, p99 = written.percentile(0.5) * 1000, written.percentile(0.99) * 1000
    figure(
        f"{WRITERS} x {ISSUES_PER_WRITER} issues in {seconds:.1f} s ({rate:.0f}/s), p50 {p50:.0f} ms, p99 {p99:.0f} ms; "
        f"start {server.seconds:.1f} s"
    )

    assert (written.statuses, written.unanswered) == ({}, {})
    assert sorted(written.iids.values()) == list(range(1, WRITERS * ISSUES_PER_WRITER + 1))
    assert await make.count(tables.Issue) == WRITERS * ISSUES_PER_WRITER
    assert p99 < 1000


@promise("R10")
async def test_writers_queue(
    make: DataFactory, database: Database, tmp_path: Path, database_url: str, figure: Callable[[str], None]
) -> None:
    """A writer that waits too long gets 503 with Retry-After; readers never wait."""
    project, users = await create_writers(make, WRITERS)
    written, reads = WriteLog(), []
    with run_server(tmp_path, database_url) as server:
        async with server.client() as client:
            end = time.monotonic() + SECONDS

            async def write(user: tables.User) -> None:
                number = 0
                while time.monotonic() < end:
                    number += 1
                    assert await written.create_issue(client, project.id, user, f"{user.username} {number}")

            async def read() -> None:
                while time.monotonic() < end:
                    started = time.monotonic()
                    headers = {"PRIVATE-TOKEN": token_of(users[0])}
                    response = await client.get(f"/projects/{project.id}/issues?per_page=5", headers=headers)
                    assert response.status_code == 200
                    reads.append(time.monotonic() - started)
                    await asyncio.sleep(0.2)

            async def hold() -> None:
                await asyncio.sleep(SECONDS / 4)
                async with database.write_session() as session:
                    keeps_out = "SELECT 1" if database.dialect == "sqlite" else "LOCK TABLE issues IN EXCLUSIVE MODE"
                    await session.execute(text(keeps_out))
                    await asyncio.sleep(LOCK_SECONDS)

            async with asyncio.TaskGroup() as group:
                for work in (run_for_each(users, write), read(), hold()):
                    group.create_task(work)
        failures = server.log_entries(level="error")
    figure(
        f"{len(written.iids)} issues in {SECONDS:.0f} s, {LOCK_SECONDS:.0f} of them held; answered otherwise: {dict(written.statuses)}; "
        f"longest wait {max(written.seconds):.1f} s; longest read {max(reads):.2f} s"
    )

    assert failures == []
    assert set(written.statuses) <= {503}
    assert all(1 <= int(response.headers["Retry-After"]) <= 5 for response in written.refusals)
    assert all("locked" not in response.text for response in written.refusals)
    assert max(reads) < 2
    assert sorted(written.iids.values()) == list(range(1, len(written.iids) + 1))
    assert await make.count(tables.Issue) == len(written.iids)
