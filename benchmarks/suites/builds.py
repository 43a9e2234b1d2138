"""`scripts/bench builds`: from a push to the start of its build at a waiting runner, and the output of a build with many readers."""

import argparse
import os
from collections.abc import Sequence
from typing import Any

from benchmarks.dataset.dataset_cache import DatasetCache
from benchmarks.harness import runs, servers
from benchmarks.harness.runs import BOTH, NAMES
from benchmarks.suites.build_starts import WAITING_RUNNERS, measure_starts
from benchmarks.suites.build_traces import READERS, SHOWN_LINES, measure_traces

MAX_P99_MS = 300
"""Maximum 99th percentile from the commit of the push to the start of the build."""
MAX_RATIO = 1.5
"""Maximum median with many pending builds, as a multiple of that without. Too few pushes are measured for the 99th percentile."""
MAX_TAIL_MS = 200
"""Maximum 99th percentile from sending a line until each reader has it."""
MAX_GROWTH_MIB = 128
"""Maximum growth of the resident memory of the service while a trace of any size is streamed to its readers and shown."""
PARTS = ("starts", "traces")


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    before, progress = os.getloadavg()[0], runs.Progress()
    results = []
    for database in options.database:
        with runs.folder_of(None) as folder:
            dataset = DatasetCache(folder, options.scale, progress.log)
            with dataset.open(database) as (url, _):
                # SQLite has one server process.
                for workers in (1, options.workers) if database == "postgresql" else (1,):
                    with servers.run_service(dataset.folder / database, url, pinned=False, workers=workers) as server:
                        progress.log(f"{database}: {workers} server process{'es' if workers > 1 else ''}")
                        row: dict[str, Any] = {"database": database, "workers": workers}
                        if "starts" in options.part:
                            row["starts"] = measure_starts(server, folder, url, dataset.data, options.pushes, options.pending)
                        if "traces" in options.part:
                            row["traces"] = measure_traces(server, url, dataset.data, options.megabytes, options.tails)
                    results.append(row)
    found = {
        "machine": runs.machine(False, before),
        "run": {
            "scale": options.scale,
            "pushes": options.pushes,
            "pending": options.pending,
            "runners": WAITING_RUNNERS,
            "readers": READERS,
        },
        "results": results,
    }
    runs.write_results("builds", found, render_report(found), options)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = runs.parser_of(
        "builds",
        "Measures the time from a push with a CI file until a waiting runner has its build, builds claimed per second, a large trace with"
        " readers, and the delay of live tails.",
        keeps_data=False,
    )
    parser.add_argument("--database", nargs="+", choices=BOTH, default=list(BOTH), help="databases to measure (default: both)")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS), help="parts to measure (default: all)")
    parser.add_argument("--pushes", type=int, default=200, help="pushes of one measurement (default: 200)")
    parser.add_argument("--pending", type=int, default=100_000, help="number of pending builds (default: 100000)")
    parser.add_argument("--workers", type=int, default=2, help="server processes on PostgreSQL, measured after one process (default: 2)")
    parser.add_argument("--scale", type=float, default=0.02, help="scale of the data set (default: 0.02)")
    parser.add_argument("--megabytes", type=int, default=64, help="size of the large trace in MB (default: 64)")
    parser.add_argument("--tails", type=int, default=200, help="lines of the tail (default: 200)")
    quick = "20 pushes, 1000 pending builds, a trace of 2 MB and a tail of 20 lines, to show that everything runs"
    parser.add_argument("--quick", action="store_true", help=quick)
    options = parser.parse_args(arguments)
    if options.quick:
        options.pushes, options.pending, options.megabytes, options.tails = 20, 1000, 2, 20
    return options


def evaluate_starts(starts: dict[str, Any]) -> dict[str, bool]:
    """Which goals of starts are met."""
    return {
        "start": all(starts[key]["from_commit"]["p99_ms"] <= MAX_P99_MS for key in ("none", "many")),
        "ratio": starts["ratio"] <= MAX_RATIO,
    }


def evaluate_traces(traces: dict[str, Any]) -> dict[str, bool]:
    """Which goals of traces are met."""
    tail, trace = traces["tail"], traces["trace"]
    return {
        "tail": tail["delay"]["p99_ms"] <= MAX_TAIL_MS,
        "readers": tail["missing"] == 0 and trace["whole_readers"] == READERS and trace["page_total_bytes"] == trace["bytes"],
        "content": trace["is_same"],
        "memory": max(trace["streaming_growth_mib"], trace["showing_growth_mib"]) <= MAX_GROWTH_MIB,
    }


def name_of(row: dict[str, Any]) -> str:
    return f"{NAMES[row['database']]}, {row['workers']} process{'es' if row['workers'] > 1 else ''}"


def render_report(found: dict[str, Any]) -> str:
    """The report in Markdown; `found` is what `--json` writes."""
    run = found["run"]
    parts = [
        render([row for row in found["results"] if key in row], run)
        for key, render in (("starts", _render_starts), ("traces", _render_traces))
        if any(key in row for row in found["results"])
    ]
    return "\n\n".join([*parts, f"Scale {run['scale']:g}. {runs.describe_machine(found)}"])


def _render_goals(goals: dict[str, bool]) -> str:
    lacking = [name for name, met in goals.items() if not met]
    return f"no: {', '.join(lacking)}" if lacking else "yes"


def _render_times(measured: dict[str, float]) -> str:
    return f"{measured['p50_ms']:.0f}, {measured['p99_ms']:.0f}"


def _render_starts(rows: list[dict[str, Any]], run: dict[str, Any]) -> str:
    lines = [["ms: p50, p99", "commit to start", "push to start", "whole push", "the same at git http-backend", "claims/s", "goal met"]]
    for row in rows:
        for key, pending in (("none", "none pending"), ("many", f"{run['pending']:,} pending")):
            measured = row["starts"][key]
            times = [_render_times(measured[part]) for part in ("from_commit", "from_push", "push", "peer")]
            goals = _render_goals(evaluate_starts(row["starts"]))
            lines.append([f"{name_of(row)}, {pending}", *times, f"{measured['claims_per_second']:.0f}", goals])
    goal = f"The goal: p99 from the commit of at most {MAX_P99_MS} ms, and a median at most {MAX_RATIO} times as long with pending builds."
    return f"{runs.render_table(lines)}\n\n{goal} {run['pushes']} pushes one after the other, {run['runners']} waiting runners."


def _render_traces(rows: list[dict[str, Any]], run: dict[str, Any]) -> str:
    head = [
        f"{run['readers']} readers",
        "tail, ms: p50, p99",
        "MB",
        "stored, s",
        "streamed, s",
        "page, ms",
        "raw, s",
        "memory, MiB",
        "goal met",
    ]
    lines = [head]
    for row in rows:
        tail, trace = row["traces"]["tail"], row["traces"]["trace"]
        seconds = [f"{trace[key]:.1f}" for key in ("stored_seconds", "streamed_seconds")]
        shown = [f"{trace['page_ms']:.0f}", f"{trace['raw_seconds']:.1f}"]
        memory = f"+{trace['streaming_growth_mib']:.0f}, +{trace['showing_growth_mib']:.0f}"
        cells = [_render_times(tail["delay"]), f"{trace['bytes'] / 1e6:.0f}", *seconds, *shown, memory]
        lines.append([name_of(row), *cells, _render_goals(evaluate_traces(row["traces"]))])
    return (
        f"{runs.render_table(lines)}\n\nThe goal: each reader has each line {MAX_TAIL_MS} ms after it was sent (p99), all readers receive"
        f" the whole trace, and the service takes at most {MAX_GROWTH_MIB} MiB more memory while it is streamed, and while its last"
        f" {SHOWN_LINES:,} lines and then all of it are read."
    )
