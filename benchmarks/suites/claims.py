"""Runners: what it costs to claim a build with few and with many pending ones, and what runners cost that wait for a build in vain.

Half of the pending builds, the oldest ones, stand in queues of tags that the runners do not have.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import delete, insert, text, update
from sqlmodel import col

from benchmarks.dataset.build_rows import RUNNERS, TAGS, runner_token
from benchmarks.dataset.bulk_insert import insert_rows
from benchmarks.dataset.seed import START, Dataset
from benchmarks.harness.load import BadAnswersError, LoadRequest
from benchmarks.harness.sequential import SequentialRun, run_sequentially, summarize_runs
from benchmarks.harness.servers import MeasuredServer
from forgefront.runner.forge_client import CLAIM_WAIT_SECONDS, OPERATIONS_FILE, ForgeClient
from graph.jobs.runner_queue import CACHE_SECONDS
from storage import tables
from storage.database.engine import Database
from storage.secrets import digest_token
from storage.tables import CheckStatus, RunWhen

FEW_PENDING, MANY_PENDING = 100, 100_000
CLAIMS = 20
"""Of one round; those who may be claimed are some more, of each runner."""
PROJECTS = 12
"""In which builds wait. The runner that is not shared serves half of them."""
ACCEPTED_TAGS: tuple[list[str], ...] = ([], ["docker"], TAGS)
UNMATCHED_TAGS: tuple[list[str], ...] = (["windows"], ["gpu", "linux"], ["docker", "macos"])
PROJECT_RUNNER = RUNNERS + 1
"""The runner that is not shared."""
POLL_SECONDS = 20.0
WARMUP_SECONDS = 3.0
"""Before that: what the first call of each runner costs comes once, and is not what waiting costs."""
GOAL_CORES = 0.1
GOAL_RATIO = 1.3
"""Noise: claiming is to cost the same."""


@dataclass(frozen=True)
class PendingBuilds:
    """The pending builds of a database."""

    url: str
    projects: tuple[int, ...]

    async def _run(self, *statements: Any) -> None:
        database = Database(self.url)
        try:
            async with database.engine.execution_options(writing=True).begin() as connection:
                for statement in statements:
                    await connection.execute(statement)
        finally:
            await database.close()

    def create_project_runner(self) -> None:
        """Makes the runner that is not shared."""
        row = {
            "description": "Own",
            "token_digest": digest_token(runner_token(PROJECT_RUNNER)),
            "active": True,
            "shared": False,
            "tags": TAGS,
        }
        dates = {"created_at": START, "updated_at": START}
        own = [{"runner_id": PROJECT_RUNNER, "project_id": project} for project in self.projects[::2]]
        asyncio.run(
            self._run(
                insert(tables.Runner).values(**row, run_untagged=True, **dates),
                insert(tables.RunnerProject).values(own),
            )
        )

    def set_pending(self, count: int) -> None:
        """Has so many builds wait, and no others."""
        asyncio.run(self._set_pending(count))

    async def _set_pending(self, count: int) -> None:
        database = Database(self.url)
        try:
            async with database.engine.execution_options(writing=True).begin() as connection:
                await connection.execute(delete(tables.Build).where(col(tables.Build.queue).is_not(None)))
                await insert_rows(connection, [(tables.Build, self._rows(count))])
            async with database.engine.connect() as connection:
                await (await connection.execution_options(isolation_level="AUTOCOMMIT")).execute(text("ANALYZE"))
        finally:
            await database.close()

    def _rows(self, count: int) -> Iterator[dict[str, Any]]:
        for number in range(count):
            tags = (UNMATCHED_TAGS if number < count // 2 else ACCEPTED_TAGS)[number % 3]
            yield {
                "project_id": self.projects[number // 3 % len(self.projects)],
                "attempt": 1,
                "sha": "5" * 40,
                "ref": "master",
                "tag": False,
                "name": "unit",
                "stage": "test",
                "stage_index": 1,
                "status": CheckStatus.PENDING,
                "allow_failure": False,
                "run_when": RunWhen.ON_SUCCESS,
                "commands": "make unit",
                "options": {},
                "tags": tags,
                "queue": ",".join(sorted(tags)),
                "trace_size": 0,
                "created_at": START,
                "updated_at": START,
            }

    def release_claimed(self) -> None:
        """Has those that were claimed wait again."""
        build = tables.Build
        waits = {"status": CheckStatus.PENDING, "runner_id": None, "token_digest": None, "lease_until": None, "started_at": None}
        claimed = col(build.queue).is_not(None) & (col(build.status) == CheckStatus.RUNNING)
        asyncio.run(self._run(update(build).where(claimed).values(**waits)))


def measure_claims(ours: MeasuredServer, data: Dataset, url: str, rounds: int, scale: float) -> list[dict[str, Any]]:
    """A row for each kind of runner: claiming with many pending builds, and with few."""
    many = max(int(MANY_PENDING * scale), 10 * FEW_PENDING)
    queues = PendingBuilds(url, data.pending_projects[:PROJECTS])
    queues.create_project_runner()
    runners = {"shared runner": _claim_request(runner_token(1)), "runner of six projects": _claim_request(runner_token(PROJECT_RUNNER))}
    walks: dict[tuple[str, int], list[SequentialRun]] = {}
    for count in (FEW_PENDING, many):
        queues.set_pending(count)
        # They did not come through the service, which may believe its last look for so long.
        time.sleep(CACHE_SECONDS + 0.2)
        for number in range(-1, rounds):
            for name, request in runners.items():
                walked = run_sequentially(ours, request, CLAIMS, _check_claimed)
                if number >= 0:  # the one before is for warming up
                    walks.setdefault((name, count), []).append(walked)
                queues.release_claimed()
    rows = []
    for name in runners:
        found = {key: summarize_runs(walks[name, count]).row() for key, count in (("many", many), ("few", FEW_PENDING))}
        times = {f"times_{part.removesuffix('_ms')}": round(found["many"][part] / found["few"][part], 2) for part in ("ms", "cpu_ms")}
        rows.append({"case": f"claim, {many:,} pending against {FEW_PENDING}: {name}", **found, **times, "goal": GOAL_RATIO})
    return rows


def _claim_request(token: str) -> LoadRequest:
    document = Path(OPERATIONS_FILE).read_text(encoding="utf-8")
    body = {"query": document, "operationName": "Claim", "variables": {"input": {"name": "forgefront", "waitSeconds": 0}}}
    return LoadRequest("POST", ("/graphql",), token, json.dumps(body))


def _check_claimed(answer: Any) -> None:
    if answer.get("errors") or not answer["data"]["claimBuild"]["build"]:
        raise BadAnswersError(f"no build was claimed: {answer!r}")


def measure_polling(ours: MeasuredServer, seconds: float = POLL_SECONDS) -> dict[str, Any]:
    """What the service uses while all runners ask for builds, as `forgefront runner` does, and there are none."""
    used = asyncio.run(_measure_polling(ours, seconds))
    return {
        "case": f"{RUNNERS} runners wait for a build",
        "seconds": seconds,
        "cpu_seconds": round(used, 2),
        "cores": round(used / seconds, 4),
        "goal": GOAL_CORES,
    }


async def _measure_polling(ours: MeasuredServer, seconds: float) -> float:
    services = [ForgeClient(f"http://127.0.0.1:{ours.port}", runner_token(number)) for number in range(1, RUNNERS + 1)]
    is_done = False

    async def poll(service: ForgeClient) -> None:
        while not is_done:
            if await service.claim(min(CLAIM_WAIT_SECONDS, int(seconds))) is not None:
                raise BadAnswersError("a build was claimed where none is pending")

    async def watch() -> float:
        nonlocal is_done
        await asyncio.sleep(WARMUP_SECONDS)
        before = ours.cpu_seconds()
        await asyncio.sleep(seconds)
        is_done = True
        return ours.cpu_seconds() - before

    try:
        # All answers are waited for: a question that nobody hears the answer of would take one of the builds to come.
        watching = asyncio.create_task(watch())
        await asyncio.gather(watching, *map(poll, services))
        return watching.result()
    finally:
        for service in services:
            await service.close()
