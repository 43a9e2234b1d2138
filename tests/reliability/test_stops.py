"""SIGTERM under load: running requests are answered, and the process ends in time (R20)."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import orjson

from storage import tables
from tests.make import DataFactory, token_of
from tests.support.reliability_promises import promise, scaled_count
from tests.support.servers.server_process import ServerProcess, WriteLog, create_writers, run_for_each, run_server

STOPS = scaled_count(20)


async def send_slowly(body: bytes, seconds: float) -> AsyncIterator[bytes]:
    for index in range(len(body)):
        yield body[index : index + 1]
        await asyncio.sleep(seconds / len(body))


async def write_slowly(server: ServerProcess, project: tables.Project, user: tables.User, title: str) -> int:
    """Opens an issue with a body that arrives while the server is stopping."""
    body = orjson.dumps({"title": title})
    headers = {"PRIVATE-TOKEN": token_of(user), "Content-Type": "application/json", "Content-Length": str(len(body))}
    async with server.client() as client:
        response = await client.post(f"/projects/{project.id}/issues", headers=headers, content=send_slowly(body, 3))
        return response.status_code


@promise("R20")
async def test_shutdown_completes_running_requests(
    make: DataFactory, tmp_path: Path, database_url: str, figure: Callable[[str], None]
) -> None:
    project, users = await create_writers(make, 16)
    written, ends = WriteLog(), []
    slow_ones = 0
    for turn in range(STOPS):
        with run_server(tmp_path, database_url) as server:
            before = len(written.seconds)
            async with server.client() as client:

                async def write(user: tables.User, turn: int = turn, client: object = client) -> None:
                    number = 0
                    while await written.create_issue(client, project.id, user, f"{turn} {user.username} {number}"):  # type: ignore[arg-type]
                        number += 1

                slow = [asyncio.create_task(write_slowly(server, project, user, f"{turn} {user.username} slow")) for user in users[:4]]
                running = asyncio.create_task(run_for_each(users, write))
                await asyncio.sleep(1.5)
                started = time.monotonic()
                code, seconds = await server.stop()
                ends.append(seconds)
                await running
                assert [await task for task in slow] == [200] * len(slow)
            slow_ones += len(slow)
            assert code == 0
            assert time.monotonic() - started < 20
            # Each request that the server took up got its answer: the others were refused before.
            taken_up = len(server.log_entries(event="request", method="POST"))
            assert taken_up == len(written.seconds) - before + len(slow)
    figure(
        f"R20: {STOPS} stops: {len(written.seconds)} requests and {slow_ones} slow ones answered, 0 cut, refused"
        f" {dict(written.unanswered)} {dict(written.statuses)}; end after at most {max(ends):.1f} s"
    )

    assert set(written.statuses) <= {503}
    assert await make.count(tables.Issue) == len(written.iids) + slow_ones
    assert max(ends) <= 15
