"""`scripts/bench runners`: the cost of claiming a build with few and with many pending ones, and of runners that wait.

Half of the pending builds, the oldest ones, have tags that no runner has.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import delete, insert, text, update
from sqlmodel import col

from benchmarks.dataset.build_rows import RUNNERS, TAGS, runner_token
from benchmarks.dataset.bulk_insert import insert_rows
from benchmarks.dataset.dataset_cache import DatasetCache
from benchmarks.dataset.seed import START, Dataset
from benchmarks.harness import runs, servers
from benchmarks.harness.load import BadAnswersError, LoadRequest
from benchmarks.harness.runs import BOTH, NAMES
from benchmarks.harness.sequential import SequentialRun, run_sequentially, summarize_runs
from benchmarks.harness.servers import MeasuredServer
from forgefront.runner.forge_client import CLAIM_WAIT_SECONDS, OPERATIONS_FILE, ForgeClient
from graph.jobs.runner_queue import CACHE_SECONDS
from storage import tables
from storage.database.engine import Database
from storage.secrets import digest_token
from storage.tables import CheckStatus, RunWhen

FEW_PENDING = 100
CLAIMS = 20
"""Claims of one round. Each runner may claim a few builds more than that."""
PROJECTS = 12
"""Projects with pending builds. The runner that is not shared serves half of them."""
ACCEPTED_TAGS: tuple[list[str], ...] = ([], ["docker"], TAGS)
UNMATCHED_TAGS: tuple[list[str], ...] = (["windows"], ["gpu", "linux"], ["docker", "macos"])
PROJECT_RUNNER = RUNNERS + 1
"""Id of the runner that is not shared."""
POLL_SECONDS = 20.0
WARMUP_SECONDS = 3.0
"""Seconds before the measurement, which excludes the first call of each runner: it costs more than waiting."""
MAX_CORES = 0.1
MAX_RATIO = 1.3
"""Maximum time of a claim with many pending builds, as a multiple of that with few. The excess over 1 is noise."""


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    runs.measure_databases("runners", options, partial(_measure, options), render_report, claims=CLAIMS, pending=options.pending)


def _measure(
    options: argparse.Namespace, dataset: DatasetCache, database: str, pinned: bool, progress: runs.Progress
) -> list[dict[str, Any]]:
    with dataset.open(database) as (url, _), servers.run_service(dataset.folder / database, url, pinned=pinned) as ours:
        servers.wait_for_background_work([ours])
        progress.log(f"{database}: runners")
        # Polling comes first, while no build is pending.
        return [measure_polling(ours), *measure_claims(ours, dataset.data, url, options.rounds, options.pending)]


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = runs.parser_of(
        "runners",
        "Measures the service while runners wait for a build and there is none, and the time to claim one of few and one of many builds.",
        keeps_data=False,
    )
    parser.add_argument("--database", nargs="+", choices=BOTH, default=list(BOTH), help="databases to measure (default: both)")
    parser.add_argument("--rounds", type=int, default=5, help=f"rounds of {CLAIMS} claims each (default: 5)")
    parser.add_argument("--pending", type=int, default=100_000, help="number of pending builds (default: 100000)")
    parser.add_argument("--scale", type=float, default=0.1, help="scale of the data set (default: 0.1)")
    return parser.parse_args(arguments)


def render_report(found: dict[str, Any]) -> str:
    """The report in Markdown; `found` is what `--json` writes."""
    run = found["run"]
    claims = [["claim, ms (CPU ms)", f"{FEW_PENDING} pending", f"{run['pending']:,} pending", "times", "goal"]]
    polls = [["waiting", "cores", "goal"]]
    for row in found["results"]:
        title = f"{row['case']}, {NAMES[row['database']]}"
        if "cores" in row:
            polls.append([title, f"{row['cores']:.3f}", f"{row['goal']}"])
        else:
            cells = [f"{row[key]['ms']:.1f} ({row[key]['cpu_ms']:.1f})" for key in ("few", "many")]
            claims.append([title, *cells, f"{row['times_ms']:.2f} ({row['times_cpu']:.2f})", f"{row['goal']}"])
    setup = f"Scale {run['scale']:g}; {run['rounds']} rounds of {run['claims']} claims."
    return f"{runs.render_table(claims)}\n\n{runs.render_table(polls)}\n\n{setup} {runs.describe_machine(found)}"


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
        """Inserts the runner that is not shared."""
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
        """Replaces the pending builds by `count` new ones."""
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
        """Makes claimed builds pending again."""
        build = tables.Build
        waits = {"status": CheckStatus.PENDING, "runner_id": None, "token_digest": None, "lease_until": None, "started_at": None}
        claimed = col(build.queue).is_not(None) & (col(build.status) == CheckStatus.RUNNING)
        asyncio.run(self._run(update(build).where(claimed).values(**waits)))


def measure_claims(ours: MeasuredServer, data: Dataset, url: str, rounds: int, many: int) -> list[dict[str, Any]]:
    """A row for each kind of runner: claiming with `many` pending builds, and with few."""
    queues = PendingBuilds(url, data.pending_projects[:PROJECTS])
    queues.create_project_runner()
    runners = {"shared runner": _claim_request(runner_token(1)), "runner of six projects": _claim_request(runner_token(PROJECT_RUNNER))}
    measured: dict[tuple[str, int], list[SequentialRun]] = {}
    for count in (FEW_PENDING, many):
        queues.set_pending(count)
        # The service caches for this time that no build is pending, and learns of no rows that others write.
        time.sleep(CACHE_SECONDS + 0.2)
        for number in range(-1, rounds):
            for name, request in runners.items():
                run = run_sequentially(ours, request, CLAIMS, _check_claimed)
                if number >= 0:  # the one before is for warming up
                    measured.setdefault((name, count), []).append(run)
                queues.release_claimed()
    rows = []
    for name in runners:
        found = {key: summarize_runs(measured[name, count]).row() for key, count in (("many", many), ("few", FEW_PENDING))}
        times = {f"times_{part.removesuffix('_ms')}": round(found["many"][part] / found["few"][part], 2) for part in ("ms", "cpu_ms")}
        rows.append({"case": name, **found, **times, "goal": MAX_RATIO})
    return rows


def _claim_request(token: str) -> LoadRequest:
    document = Path(OPERATIONS_FILE).read_text(encoding="utf-8")
    body = {"query": document, "operationName": "Claim", "variables": {"input": {"name": "forgefront", "waitSeconds": 0}}}
    return LoadRequest("POST", ("/graphql",), token, json.dumps(body))


def _check_claimed(answer: Any) -> None:
    if answer.get("errors") or not answer["data"]["claimBuild"]["build"]:
        raise BadAnswersError(f"no build was claimed: {answer!r}")


def measure_polling(ours: MeasuredServer, seconds: float = POLL_SECONDS) -> dict[str, Any]:
    """A row of the CPU time of the service while all runners request builds, as `forgefront runner` does, and there are none."""
    used = asyncio.run(_measure_polling(ours, seconds))
    return {
        "case": f"{RUNNERS} runners wait for a build",
        "seconds": seconds,
        "cpu_seconds": round(used, 2),
        "cores": round(used / seconds, 4),
        "goal": MAX_CORES,
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
        # Waits for all answers: a request whose client has disconnected could still claim one of the next builds.
        watching = asyncio.create_task(watch())
        await asyncio.gather(watching, *map(poll, services))
        return watching.result()
    finally:
        for service in services:
            await service.close()
