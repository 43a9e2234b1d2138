"""`scripts/bench statistics`: statistics of builds beside DuckDB itself on the same rows, and SQL on the row store.

DuckDB reads the file of the service, so both have the same rows in the same order, and one thread each. The service also authenticates,
authorizes, brings its copy up to date, and serializes the answer. It does not warm up meanwhile, since queries about the largest project
would be measured too. The answers before the measured ones compile the statements.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmarks.dataset import project_history, statistics_rows
from benchmarks.dataset.dataset_cache import DatasetCache
from benchmarks.dataset.statistics_rows import GROUP, StatisticsProjects
from benchmarks.harness import runs, servers
from benchmarks.harness.load import BadAnswersError, LoadRequest
from benchmarks.harness.percentiles import percentile
from benchmarks.harness.runs import BOTH, NAMES
from benchmarks.harness.sequential import run_sequentially
from benchmarks.harness.servers import MeasuredServer
from benchmarks.harness.steady_load import run_steadily
from benchmarks.suites.trigger_cost import measure_triggers

MAX_RATIO_BUILDS = 1_000_000
"""Number of builds up to which the goal is MAX_DUCKDB_RATIO; with more it is MAX_ALL_MS."""
MAX_DUCKDB_RATIO = 1.5
MAX_ALL_MS = 500.0
MAX_PROJECT_MS = 30.0
MAX_FLAKY_RATIO = 0.5
"""Maximum time of the flaky jobs of all time, as a share of that of the row store."""
MAX_REBUILD_SECONDS = 60.0
MAX_P99_RATIO, P99_NOISE_MS = 1.3, 5.0
"""Maximum 99th percentile of other answers beside statistics: a multiple of that without, or that many milliseconds more."""
REQUESTS_PER_SECOND = 60

_STATS = "buildStats(bucket: DAY, first: 5000) { rows { bucketStart counts { total } duration { count p50 p95 } } }"
GROUP_QUERY = f'query Days {{ group(path: "{GROUP}") {{ {_STATS} }} }}'
PROJECT_QUERY = f"query Days($path: String!) {{ project(path: $path) {{ {_STATS} }} }}"
_JOBS = "first: 20) { totalCount nodes { name flips rate wastedSeconds blockedMergeRequests } }"
FLAKY_QUERIES = {
    "since 90 days": f'flakyBuilds(since: "2025-10-03T00:00:00Z", {_JOBS}',
    "of all time": f'flakyBuilds(since: "2020-01-01T00:00:00Z", {_JOBS}',
}
OTHER_QUERIES = {
    "timeline of 90 days": (
        'branch(name: "master") { timeline(range: {since: "2025-10-03T00:00:00Z", until: "2026-01-01T00:00:00Z"})'
        " { state startedAt seconds } }"
    ),
    "mergeRequestStats by day": "mergeRequestStats(bucket: DAY) { bucketStart opened merged closed }",
    "mergeRequestStats by week, lead time": "mergeRequestStats(bucket: WEEK) { bucketStart merged leadTime { count p50 p95 } }",
    "mergeRequestStats by week, redAtMerge": "mergeRequestStats(bucket: WEEK) { bucketStart merged redAtMerge }",
    "leadTime of 100 merge requests": "mergeRequests(first: 100) { nodes { iid leadTime { total } } }",
}
"""Other questions of dashboards about the history of a project."""
DUCKDB_SQL = (
    "SELECT created // 86400000000, count(*), count(duration), quantile_disc(duration, [0.5, 0.95])"
    " FROM (SELECT created_at AS created, duration FROM base.builds"
    " WHERE is_current AND status <> 'manual' AND project_id BETWEEN {first} AND {last}) GROUP BY 1 ORDER BY 1"
)


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    before, progress = os.getloadavg()[0], runs.Progress()
    results = []
    for database in options.database:
        with runs.folder_of(None) as folder:
            dataset = DatasetCache(folder, options.scale, progress.log)
            with dataset.open(database) as (url, _):
                results.append({"database": database, **_measure(dataset, database, url, options, progress)})
    found = {
        "machine": runs.machine(False, before),
        "run": {"builds": options.builds, "merge_requests": options.merge_requests, "rounds": options.rounds},
        "results": results,
    }
    runs.write_results("statistics", found, render_report(found), options)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = runs.parser_of(
        "statistics",
        "Measures statistics of builds against DuckDB itself and against the row store, other answers meanwhile, the rebuild of the copy,"
        " and the triggers that log changes.",
        "The database makes the data: a minute for 500,000 builds, ten for 5,000,000.",
        keeps_data=False,
    )
    parser.add_argument("--database", nargs="+", choices=BOTH, default=list(BOTH), help="databases to measure (default: both)")
    parser.add_argument("--builds", type=int, default=500_000, metavar="N", help="builds of all projects (default: 500000)")
    parser.add_argument("--merge-requests", type=int, default=100_000, metavar="N", help="merge requests of all projects (default: 100000)")
    parser.add_argument("--rounds", type=int, default=7, help="number of rounds, whose medians are reported (default: 7)")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of a round of other answers (default: 5)")
    parser.add_argument("--scale", type=float, default=0.02, help="scale of the data set around it (default: 0.02)")
    parser.add_argument("--quick", action="store_true", help="20000 builds and one short round, to show that everything runs")
    options = parser.parse_args(arguments)
    if options.quick:
        options.builds, options.merge_requests, options.rounds, options.seconds = 20_000, 2_000, 1, 1.0
    return options


def _measure(dataset: DatasetCache, database: str, url: str, options: argparse.Namespace, progress: runs.Progress) -> dict[str, Any]:
    folder, token = dataset.folder / database, dataset.data.token
    progress.log(f"{database}: adding {options.builds:,} builds and {options.merge_requests:,} merge requests")
    projects = statistics_rows.fill(url, options.builds, options.merge_requests)
    # The service reads the refs of repositories at its first start; a branch without one is not shown.
    project_history.copy_to_projects([projects.first], folder / "repositories")
    rebuilt = _rebuild(folder, url)
    progress.log(f"{database}: copied in {rebuilt['seconds']} s")
    found: dict[str, Any] = {"rebuild": rebuilt}
    settings = {"FORGEFRONT_WARM_UP": "false"}
    with servers.run_service(folder, url, pinned=False, settings=settings) as server:
        found["questions"] = _measure_questions(server, token, folder, projects, options.rounds)
        progress.log(f"{database}: all time {found['questions']['all']['ms']} ms")
        found["others"] = {name: _median_ms(server, _project(token, text), options.rounds) for name, text in OTHER_QUERIES.items()}
        found["flaky"] = _measure_flaky(server, token, options.rounds)
        found["meanwhile"] = asyncio.run(_measure_meanwhile(server, token, options))
    with servers.run_service(folder, url, pinned=False, settings={**settings, "FORGEFRONT_ANALYTICS": "off"}) as server:
        requests = {"all": _ask(token, GROUP_QUERY), "largest": _project_days(token, 1), "other": _project_days(token, 2)}
        for name, request in requests.items():
            found["questions"][name]["row_store_ms"] = _median_ms(server, request, min(options.rounds, 3))
        found["flaky_row_store"] = _measure_flaky(server, token, min(options.rounds, 3))
    found["triggers"] = measure_triggers(url, projects, options.rounds)
    return found


def _rebuild(folder: Path, url: str) -> dict[str, Any]:
    """What `forgefront analytics rebuild` reports."""
    command = [str(Path(sys.executable).with_name("forgefront")), "analytics", "rebuild", "--json", "--data", str(folder)]
    environment = {**os.environ, "FORGEFRONT_DATABASE_URL": url, "PYTHONPATH": str(servers.ROOT)}
    done = subprocess.run(command, env=environment, cwd=servers.ROOT, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _ask(token: str, text: str, **variables: Any) -> LoadRequest:
    return LoadRequest("POST", ("/graphql",), token, json.dumps({"query": text, "variables": variables}))


def _project(token: str, fields: str) -> LoadRequest:
    """Fields of the largest project."""
    return _ask(token, f'query Past {{ project(path: "{GROUP}/part1") {{ {fields} }} }}')


def _project_days(token: str, number: int) -> LoadRequest:
    return _ask(token, PROJECT_QUERY, path=f"{GROUP}/part{number}")


def _check(answer: Any) -> None:
    if answer.get("errors"):
        raise BadAnswersError(json.dumps(answer["errors"])[:500])


def _median_ms(server: MeasuredServer, request: LoadRequest, times: int) -> float | None:
    """The median of `times` answers after two that compile the query; None if the deadline of the operation is exceeded."""
    try:
        run_sequentially(server, request, 2, _check)
        return round(1000 * median(run_sequentially(server, request, times, _check).seconds), 1)
    except BadAnswersError as error:
        if "TIMEOUT" in str(error) or "LIMIT_EXCEEDED" in str(error):
            return None
        raise


def _measure_questions(
    server: MeasuredServer, token: str, folder: Path, projects: StatisticsProjects, rounds: int
) -> dict[str, dict[str, float | int | None]]:
    import duckdb

    pointer = json.loads((folder / "analytics" / "current.json").read_text())
    connection = duckdb.connect(config={"threads": 1})
    connection.execute(f"ATTACH '{folder / 'analytics' / pointer['file']}' AS base (READ_ONLY)")
    cases = {
        "all": (_ask(token, GROUP_QUERY), (projects.first, projects.last)),
        "largest": (_project_days(token, 1), (projects.first, projects.first)),
        "other": (_project_days(token, 2), (projects.first + 1, projects.first + 1)),
    }
    found: dict[str, dict[str, float | int | None]] = {}
    for name, (request, (first, last)) in cases.items():
        sql = DUCKDB_SQL.format(first=first, last=last)
        rows = connection.execute(sql).fetchall()
        compare = _compare_with(rows)
        ours, theirs, our_cpu, their_cpu = [], [], 0.0, 0.0
        run_sequentially(server, request, 2, compare)
        for _ in range(rounds):
            answered = run_sequentially(server, request, 1, compare)
            ours.append(answered.seconds[0])
            our_cpu += answered.cpu_seconds
            began, cpu = time.perf_counter(), time.process_time()
            connection.execute(sql).fetchall()
            theirs.append(time.perf_counter() - began)
            their_cpu += time.process_time() - cpu
        figures = {"ms": round(1000 * median(ours), 1), "duckdb_ms": round(1000 * median(theirs), 1)}
        figures |= {"cpu_ms": round(1000 * our_cpu / rounds, 1), "duckdb_cpu_ms": round(1000 * their_cpu / rounds, 1)}
        found[name] = {**figures, "builds": sum(row[1] for row in rows), "rows": len(rows)}
    connection.close()
    return found


def _compare_with(rows: Sequence[Any]) -> Callable[[Any], None]:
    """A check that an answer has these counts."""

    def check(answer: Any) -> None:
        _check(answer)
        (parent,) = answer["data"].values()
        shown = [row["counts"]["total"] for row in parent["buildStats"]["rows"]]
        if shown != [row[1] for row in rows]:
            raise BadAnswersError(f"DuckDB counts {sum(row[1] for row in rows)} builds, the service {sum(shown)}")

    return check


def _measure_flaky(server: MeasuredServer, token: str, rounds: int) -> dict[str, float | None]:
    return {name: _median_ms(server, _project(token, text), rounds) for name, text in FLAKY_QUERIES.items()}


async def _measure_meanwhile(server: MeasuredServer, token: str, options: argparse.Namespace) -> dict[str, Any]:
    """Other answers at a steady rate, without and with a client that asks for statistics without a pause, in turn."""
    requests = [
        _ask(token, f'query One {{ project(path: "{GROUP}/part{number}") {{ id builds(first: 20) {{ nodes {{ id name status }} }} }} }}')
        for number in range(2, 22)
    ]
    statistics, answered = _ask(token, GROUP_QUERY), 0
    found: dict[str, list[list[float]]] = {"without": [], "with": []}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=60) as api:

        async def ask_statistics() -> None:
            nonlocal answered
            while True:
                response = await api.post("/graphql", content=statistics.body, headers=statistics.headers)
                response.raise_for_status()
                answered += 1

        await run_steadily(api, requests, REQUESTS_PER_SECOND, 1.0)
        for number in range(max(options.rounds // 2, 1)):
            for name in sorted(found, reverse=bool(number % 2)):
                task = asyncio.create_task(ask_statistics()) if name == "with" else None
                found[name].append(await run_steadily(api, requests, REQUESTS_PER_SECOND, options.seconds))
                if task is not None:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
    figures = {
        f"{name}_{label}": round(median(percentile(times, share) for times in rounds), 1)
        for name, rounds in found.items()
        for label, share in (("p50_ms", 0.5), ("p99_ms", 0.99))
    }
    return {**figures, "statistics": answered}


def evaluate_row(row: dict[str, Any], builds: int) -> dict[str, bool]:
    """Whether a database meets each goal."""
    questions, meanwhile = row["questions"], row["meanwhile"]
    everything = questions["all"]
    is_ratio = builds <= MAX_RATIO_BUILDS
    without = meanwhile["without_p99_ms"]
    flaky, flaky_row_store = row["flaky"]["of all time"], row["flaky_row_store"]["of all time"]
    return {
        "all": everything["ms"] <= (MAX_DUCKDB_RATIO * everything["duckdb_ms"] if is_ratio else MAX_ALL_MS),
        "largest": questions["largest"]["ms"] <= MAX_PROJECT_MS,
        "other": questions["other"]["ms"] <= MAX_PROJECT_MS,
        # A row store without an answer within the deadline took longer.
        "flaky": flaky is not None and (flaky_row_store is None or flaky <= MAX_FLAKY_RATIO * flaky_row_store),
        "meanwhile": meanwhile["with_p99_ms"] <= max(MAX_P99_RATIO * without, without + P99_NOISE_MS),
        "rebuild": row["rebuild"]["seconds"] <= MAX_REBUILD_SECONDS,
    }


def render_report(found: dict[str, Any]) -> str:
    """The report in Markdown; `found` is what `--json` writes."""
    run = found["run"]
    is_ratio = run["builds"] <= MAX_RATIO_BUILDS
    all_goal = f"at most {MAX_DUCKDB_RATIO:g} times DuckDB" if is_ratio else f"at most {MAX_ALL_MS:g} ms"
    goals = {"all": all_goal, "largest": f"at most {MAX_PROJECT_MS:g} ms", "other": f"at most {MAX_PROJECT_MS:g} ms"}
    titles = {"all": "all projects", "largest": "largest project", "other": "another project"}
    questions = [["by day with quantiles, ms", "builds", "service", "DuckDB", "times", "CPU of both", "row store", "goal met"]]
    flaky = [["flakyBuilds of the largest project, ms", "service", "row store", "goal met"]]
    others = [["the largest project's past, ms", *(NAMES[row["database"]] for row in found["results"])]]
    steady = [["others' answers, ms: p50, p99", "without", "with statistics", "statistics answered", "goal met"]]
    copies = [["copy", "builds", "MB", "seconds to write", "goal met"]]
    triggers = [["cost of the triggers, µs per row", "insert", "update", "delete"]]
    for row in found["results"]:
        name, met = NAMES[row["database"]], evaluate_row(row, run["builds"])
        for key, title in titles.items():
            each = row["questions"][key]
            times = f"{each['ms'] / each['duckdb_ms']:.2f}"
            cells = [f"{each['builds']:,}", _format_ms(each["ms"]), _format_ms(each["duckdb_ms"]), times]
            cells += [f"{each['cpu_ms']:.1f}, {each['duckdb_cpu_ms']:.1f}", _format_ms(each["row_store_ms"])]
            questions.append([f"{title}, {name}", *cells, f"{_yes(met[key])} ({goals[key]})"])
        for key in FLAKY_QUERIES:
            goal = f"{_yes(met['flaky'])} (at most {MAX_FLAKY_RATIO:g} of the row store)" if key == "of all time" else "-"
            flaky.append([f"{key}, {name}", _format_ms(row["flaky"][key]), _format_ms(row["flaky_row_store"][key]), goal])
        each = row["meanwhile"]
        cells = [f"{each[f'{key}_p50_ms']:.1f}, {each[f'{key}_p99_ms']:.1f}" for key in ("without", "with")]
        steady.append([name, *cells, str(each["statistics"]), _yes(met["meanwhile"])])
        each = row["rebuild"]
        copies.append([name, f"{each['builds']:,}", f"{each['bytes'] / 1e6:.0f}", f"{each['seconds']:.1f}", _yes(met["rebuild"])])
        triggers.append([name, *(f"{row['triggers'][kind]:.1f}" for kind in ("insert", "update", "delete"))])
    for name in OTHER_QUERIES:
        others.append([name, *(_format_ms(row["others"][name]) for row in found["results"])])
    text = (
        f"{run['builds']:,} builds and {run['merge_requests']:,} merge requests in {statistics_rows.PROJECTS} projects;"
        f" medians of {run['rounds']} rounds. Others' answers: {REQUESTS_PER_SECOND} a second, p99 at most {MAX_P99_RATIO:g} times that"
        f" without statistics or {P99_NOISE_MS:g} ms more. The copy: at most {MAX_REBUILD_SECONDS:g} s. - is no answer within the deadline."
        f" {runs.describe_machine(found)}"
    )
    return "\n\n".join([*map(runs.render_table, (questions, flaky, others, steady, copies, triggers)), text])


def _format_ms(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:,.1f}"


def _yes(met: bool) -> str:
    return "yes" if met else "no"
