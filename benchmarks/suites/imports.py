"""`scripts/bench import`: an import of an instance through REST v3, and a second one after one issue in a hundred has changed."""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.dataset import build_rows, project_history, seed
from benchmarks.harness import runs, servers
from benchmarks.harness.runs import BOTH, NAMES
from benchmarks.harness.servers import MeasuredServer
from tests.support.database.databases import temporary_server

ISSUES, BUILDS, COMMITS, MERGE_REQUESTS = 100, 250, 30, 5
"""Numbers of rows in each project; scale 1 has 200 projects, and so 20,000 issues, 60,000 notes and 50,000 builds."""
CHANGE_INTERVAL = 100
"""One issue in this number changes before the second run."""
MAX_SECONDS = 900.0
MAX_MIB = 300.0
MAX_RATIO = 0.1
POLL_SECONDS = 0.1


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    progress = runs.Progress()
    before = os.getloadavg()[0]
    results = []
    for database in options.database:
        with runs.folder_of(None) as folder:
            results.append({"database": database, **_measure(folder, database, options, progress)})
    found = {"machine": runs.machine(False, before), "run": {"scale": options.scale, "parallel": options.parallel}, "results": results}
    runs.write_results("import", found, render_report(found), options)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = runs.parser_of(
        "import",
        "Imports an instance on SQLite with kept ids, twice: at scale 1 it has 200 projects, 20,000 issues, 60,000 notes and 50,000 builds."
        " Before the second run, one issue in a hundred changes and gets a note.",
        keeps_data=False,
    )
    parser.add_argument("--database", nargs="+", choices=BOTH, default=list(BOTH), help="databases to import into (default: both)")
    parser.add_argument("--scale", type=float, default=0.1, help="scale of the data set (default: 0.1)")
    parser.add_argument("--parallel", type=int, default=8, help="concurrent requests (default: 8)")
    return parser.parse_args(arguments)


def _measure(folder: Path, database: str, options: argparse.Namespace, progress: runs.Progress) -> dict[str, Any]:
    source = folder / "source"
    source.mkdir()
    with small_projects():
        data = seed.seed(f"sqlite:///{source}/forgefront.db", options.scale)
        project_history.copy_to_projects(range(1, max(data.projects + data.pending_projects) + 1), source / "repositories")
    _execute(source, "DELETE FROM artifacts", "UPDATE users SET admin = 1 WHERE id = 1")
    progress.log(f"  {database}: made the source")
    with ExitStack() as stack:
        url = f"sqlite+aiosqlite:///{folder}/target.db" if database == "sqlite" else stack.enter_context(temporary_server())
        server = stack.enter_context(servers.run_service(source, f"sqlite+aiosqlite:///{source}/forgefront.db", pinned=False))
        first = _import(server, folder, url, options, progress)
        changed = _change(source)
        second = _import(server, folder, url, options, progress)
    return {"first": first, "second": second, "changed": changed, "ratio": round(second["seconds"] / first["seconds"], 3)}


@contextmanager
def small_projects() -> Iterator[None]:
    """Replaces the numbers of rows in each project of the data set within the block."""
    stored = seed.ISSUES, build_rows.BUILDS, project_history.COMMITS, build_rows.MERGE_REQUESTS
    seed.ISSUES, build_rows.BUILDS, project_history.COMMITS, build_rows.MERGE_REQUESTS = ISSUES, BUILDS, COMMITS, MERGE_REQUESTS
    try:
        yield
    finally:
        seed.ISSUES, build_rows.BUILDS, project_history.COMMITS, build_rows.MERGE_REQUESTS = stored


def _execute(source: Path, *statements: str) -> int:
    connection = sqlite3.connect(source / "forgefront.db", timeout=60)
    with connection:
        changed = sum(connection.execute(statement).rowcount for statement in statements)
    connection.close()
    return changed


def _change(source: Path) -> int:
    """Changes one issue in CHANGE_INTERVAL, and adds a note to it; returns the number of changed and inserted rows."""
    moment = "strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'"
    connection = sqlite3.connect(source / "forgefront.db", timeout=60)
    stored = connection.execute("SELECT updated_at FROM issues LIMIT 1").fetchone()[0]
    connection.close()
    if isinstance(stored, int):
        moment = str(time.time_ns() // 1000)
    names = "project_id, author_id, issue_id, body, attachment, system, upvote, downvote"
    return _execute(
        source,
        f"UPDATE issues SET title = title || '!', updated_at = {moment} WHERE id % {CHANGE_INTERVAL} = 0",
        f"INSERT INTO notes ({names}, created_at, updated_at) SELECT project_id, author_id, id, 'New', NULL, 0, 0, 0, {moment}, {moment}"
        f" FROM issues WHERE id % {CHANGE_INTERVAL} = 0",
    )


def _import(server: MeasuredServer, folder: Path, url: str, options: argparse.Namespace, progress: runs.Progress) -> dict[str, Any]:
    command = [str(Path(sys.executable).with_name("forgefront")), "import", f"http://127.0.0.1:{server.port}", "--json"]
    command += ["--data", str(folder / "target"), "--continue", "http://old.example", "--keep-ids"]
    command += ["--requests-per-second", "10000", "--parallel", str(options.parallel), "--clones", "2"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FORGEFRONT_")}
    environment |= {
        "FORGEFRONT_DATABASE_URL": url,
        "FORGEFRONT_IMPORT_TOKEN": seed.token_of(1),
        "PYTHONPATH": str(servers.ROOT),
    }
    peak, began = 0.0, time.monotonic()
    with (folder / "report.json").open("wb") as report, (folder / "import.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=report, stderr=log, cwd=servers.ROOT)
        while (waited := os.wait4(process.pid, os.WNOHANG))[0] == 0:
            peak = max(peak, _peak_mib(process.pid))
            time.sleep(POLL_SECONDS)
    seconds, cpu_seconds = time.monotonic() - began, waited[2].ru_utime + waited[2].ru_stime
    process.returncode = os.waitstatus_to_exitcode(waited[1])
    if process.returncode not in (0, 3):
        sys.exit((folder / "import.log").read_text()[-2000:])
    found = json.loads((folder / "report.json").read_text())
    written = {kind: count["created"] + count["updated"] for kind, count in found["counts"].items()}
    left_behind = len(found["left_behind"])
    progress.log(
        f"  {found['requests']:,} requests in {seconds:.1f} s, {sum(written.values()):,} things written,"
        f" {peak:.0f} MiB, {left_behind} left behind"
    )
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
        "mib": round(peak, 1),
        "requests": found["requests"],
        "written": written,
        "left_behind": left_behind,
        "reasons": sorted({f"{each['kind']}: {each['reason']}" for each in found["left_behind"]})[:20],
    }


def _peak_mib(pid: int) -> float:
    """The maximum resident memory of the process so far (VmHWM of proc(5)); 0 when it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = status.partition("VmHWM:")[2].split()
    return int(found[0]) / 1024 if found else 0.0


def render_report(found: dict[str, Any]) -> str:
    lines = [["", "first run", "second run", "goal"]]
    for result in found["results"]:
        first, second, name = result["first"], result["second"], NAMES[result["database"]]
        lines += [
            [f"{name}: seconds", f"{first['seconds']:,}", f"{second['seconds']:,}", f"{MAX_SECONDS:.0f} at scale 1"],
            [f"{name}: share of the first", "", f"{result['ratio']:.3f}", f"{MAX_RATIO}"],
            [f"{name}: processor seconds, with git", str(first["cpu_seconds"]), str(second["cpu_seconds"]), ""],
            [f"{name}: memory, MiB", str(first["mib"]), str(second["mib"]), f"{MAX_MIB:.0f}"],
            [f"{name}: requests", f"{first['requests']:,}", f"{second['requests']:,}", ""],
            [f"{name}: things written", f"{sum(first['written'].values()):,}", f"{sum(second['written'].values()):,}", ""],
            [f"{name}: left behind", str(first["left_behind"]), str(second["left_behind"]), "0"],
        ]
    return f"Scale {found['run']['scale']:g}. {runs.describe_machine(found)}\n\n{runs.render_table(lines)}\n"
