"""Kills of the service and of runners while builds run: no build is lost, and none is finished twice (R33)."""

import asyncio
import random
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlmodel import col, select

from graph.rules.runners.status_reports import MAX_STARTS
from storage import tables
from storage.database.engine import Database
from storage.tables import CheckStatus
from storage.tables.events import changes
from tests.make import DataFactory
from tests.support.database.databases import free_port
from tests.support.reliability_promises import SEEDS, promise, scaled_count
from tests.support.servers.fork_server import ROOT, ForkedProcess
from tests.support.servers.server_process import run_server

RUNNERS = scaled_count(50)
CONCURRENT = 2
BUILDS = scaled_count(2000)
KILLS = scaled_count(60)
"""Half of them of the service, half of runners."""
LEASE_SECONDS = 15
FINISHED_SECONDS = 60.0
"""After the last kill, beside the lease."""


class RunnerPool:
    """Runner processes of one runner, which are started again when they were killed."""

    def __init__(self, url: str, token: str, folder: Path) -> None:
        self._command = ("forgefront.cli", "runner", "--url", url, "--executor", "shell", "--builds-dir", folder / "builds")
        self._token = token
        self._log = folder / "runners.log"
        self._running: list[subprocess.Popen[bytes]] = []

    def fill(self) -> None:
        """Starts the runners that do not run."""
        with self._log.open("ab") as log:
            while len(self._running) < RUNNERS:
                options = ("--concurrent", CONCURRENT, "--grace", 0)
                environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "FORGEFRONT_RUNNER_TOKEN": self._token}
                arguments = [*map(str, (*self._command, *options))]
                # Forked, because fifty interpreters that import the runner take minutes, in which all kills would hit idle runners.
                self._running.append(ForkedProcess(arguments, cwd=ROOT, env=environment, stdout=log, stderr=log))

    def kill_one(self, chance: random.Random) -> None:
        process = self._running.pop(chance.randrange(len(self._running)))
        process.kill()
        process.wait()

    def stop(self) -> None:
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        for process in self._running:
            process.wait(timeout=30)


def count_lines(file: Path) -> int:
    return file.read_text().count("\n") if file.exists() else 0


async def count_statuses(database: Database) -> Counter[CheckStatus]:
    async with database.read_session() as session:
        return Counter((await session.execute(select(col(tables.Build.status)))).scalars())


async def count_ended(database: Database) -> int:
    statuses = await count_statuses(database)
    return statuses[CheckStatus.SUCCESS] + statuses[CheckStatus.FAILED]


async def find_abandoned(database: Database) -> set[int]:
    """The failed builds, each of which the service started as often as it does. Raises AssertionError for one that failed otherwise."""
    async with database.read_session() as session:
        failed = list((await session.execute(select(col(tables.Build.id)).where(col(tables.Build.status) == CheckStatus.FAILED))).scalars())
        for build_id in failed:
            changed = [tuple(row) for row in await session.read(changes.of_build(build_id, 2 * MAX_STARTS + 2))]
            returns = changed.count((CheckStatus.RUNNING, CheckStatus.PENDING))
            assert returns == MAX_STARTS, f"build {build_id} failed after {returns} returns to its queue: {changed}"
    return set(failed)


@promise("R33")
@pytest.mark.parametrize("seed", SEEDS)
async def test_builds(
    make: DataFactory, database: Database, tmp_path: Path, database_url: str, seed: int, figure: Callable[[str], None]
) -> None:
    project = await make.project(owner=await make.user())
    token = make.runner_token(await make.runner(project))
    command = f'echo "$CI_BUILD_ID" >>{tmp_path}/begun; sleep 0.2; echo "$CI_BUILD_ID" >>{tmp_path}/done'
    options = {"variables": {"GIT_STRATEGY": "none"}}
    ids = [(await make.pending_build(project, commands=command, options=options)).id for _ in range(BUILDS)]
    chance, port, runner_kills = random.Random(seed), free_port(), 0
    pool = RunnerPool(f"http://127.0.0.1:{port}", token, tmp_path)
    try:
        for turn in range(KILLS // 2 + 1):
            with run_server(tmp_path, database_url, port=port, build_lease=str(LEASE_SECONDS)) as server:
                pool.fill()
                if turn == KILLS // 2:
                    async with asyncio.timeout(FINISHED_SECONDS + LEASE_SECONDS + BUILDS / 4):
                        while await count_ended(database) < BUILDS:  # noqa: ASYNC110 - rows
                            await asyncio.sleep(0.5)
                    pool.stop()
                else:
                    # A runner takes seconds to start, so without progress all kills would hit idle ones.
                    before = await asyncio.to_thread(count_lines, tmp_path / "done")
                    async with asyncio.timeout(FINISHED_SECONDS):
                        while await asyncio.to_thread(count_lines, tmp_path / "done") <= before:  # noqa: ASYNC110 - a file
                            await asyncio.sleep(0.1)
                    await asyncio.sleep(chance.uniform(0, 0.5))
                    await asyncio.to_thread(pool.kill_one, chance)
                    runner_kills += 1
                    pool.fill()
                    await asyncio.sleep(chance.uniform(0.2, 1))
                    server.kill()
    finally:
        pool.stop()

    # The oldest build is claimed first after each kill, so that the same one may be hit as often as the service starts it.
    abandoned = await find_abandoned(database)
    assert (await count_statuses(database))[CheckStatus.SUCCESS] == BUILDS - len(abandoned)
    assert len(abandoned) <= runner_kills * CONCURRENT // (MAX_STARTS + 1)
    begun = Counter(map(int, (await asyncio.to_thread((tmp_path / "begun").read_text)).split()))
    done = Counter(map(int, (await asyncio.to_thread((tmp_path / "done").read_text)).split()))
    log = await asyncio.to_thread((tmp_path / "runners.log").read_text)
    assert set(ids) - abandoned <= set(done) <= set(ids)
    # A killed runner takes its builds with it, and a service that was away for longer than the lease takes them away.
    repeated = sum(begun.values()) - BUILDS
    assert repeated <= runner_kills * CONCURRENT + log.count(": gone"), log[-5000:]
    passed = Counter(re.findall(r"^Build (\d+) \(.*\): passed$", log, re.MULTILINE))
    assert max(passed.values()) == 1, "two runners finished the same build"
    figure(f"{BUILDS} builds, {2 * runner_kills} kills, {repeated} begun again, {len(abandoned)} given up, 0 lost")
