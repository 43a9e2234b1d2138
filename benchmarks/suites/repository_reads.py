"""`scripts/bench repository`: reads of a large repository by REST v3, against pygit2 alone.

Both sides answer the same question from the same repository, over HTTP, as JSON: before a case is measured, its content is compared, down
to the bytes of each patch, the ids and the base64. The peer does less: it has no caller, no permissions, no database, no limits of size or
time, and computes the diff in its own process, where the service starts workers that it can kill. Its answers have the fields of v3 except
those that v3 adds for clients of version 4.

The warm-up of the service is off, since an unmeasured round comes first.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.dataset.dataset_cache import DatasetCache
from benchmarks.harness import runs, servers
from benchmarks.harness.answers import UnfairError, fetch
from benchmarks.harness.load import LoadRequest
from benchmarks.harness.runs import BOTH, NAMES
from benchmarks.harness.sequential import SequentialRun, run_sequentially, summarize_runs
from benchmarks.harness.servers import MeasuredServer
from benchmarks.peers.pygit2_app import REPOSITORY_VARIABLE
from benchmarks.suites.questions import V3
from storage.git.importing.repository_import import import_repository
from storage.git.repositories import Repositories
from tests.support.git.git_history import commit_to_branch, git, make_history

MAX_TIME_RATIO = 1.3
"""Maximum time for the client, as a multiple of that with pygit2 alone."""
PAGE_ROWS, FAR_PAGE = 20, 500
CHANGED_FILES = 1000
"""Files of the commit whose diff is requested."""
COMPARED_COMMITS = 50
DEEP_FOLDER = "deep/a/b/c/d/e/f"


@dataclass(frozen=True)
class ReadCase:
    """One read: the path at each side, and `content`, which takes from an answer what must be equal."""

    name: str
    ours: str
    peer: str
    content: Callable[[Any], Any]


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    source = partial(_cached_history, options.data, options.commits) if options.data else partial(create_history, commits=options.commits)
    runs.measure_databases("repository", options, partial(_measure, options, source), render_report, commits=options.commits)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = runs.parser_of(
        "repository",
        "Reads commits, folders, files, diffs and comparisons of one repository by REST v3, in turn with pygit2 alone.",
        "With --data the repository is made once.",
    )
    parser.add_argument("--database", nargs="+", choices=BOTH, default=list(BOTH), help="databases to measure (default: both)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each read (default: 5)")
    parser.add_argument("--repeats", type=int, default=20, help="requests of each read in a round (default: 20)")
    parser.add_argument("--commits", type=int, default=100_000, help="commits of the repository (default: 100000)")
    parser.add_argument("--scale", type=float, default=0.1, help="scale of the data set around it (default: 0.1)")
    return parser.parse_args(arguments)


def _measure(
    options: argparse.Namespace,
    create_source: Callable[[Path], None],
    dataset: DatasetCache,
    database: str,
    pinned: bool,
    progress: runs.Progress,
) -> list[dict[str, Any]]:
    with dataset.open(database) as (url, _):
        folder = dataset.folder / database
        project = dataset.data.projects[-1]
        progress.log(f"{database}: a repository of {options.commits:,} commits")
        with import_history(folder, project, create_source) as repository:
            cases = create_cases(repository, project)
            with (
                servers.run_service(folder, url, pinned=pinned, settings={"FORGEFRONT_WARM_UP": "false"}) as ours,
                run_pygit2(repository, folder, pinned=pinned) as peer,
            ):
                progress.expect(len(cases) * options.rounds)
                return [
                    compare_reads(case, ours, peer, dataset.data.token, options.rounds, options.repeats, progress, database)
                    for case in cases
                ]


@contextmanager
def import_history(folder: Path, project: int, create_source: Callable[[Path], None]) -> Iterator[Path]:
    """Imports the history that `create_source` makes at a path into the project's repository in the data folder, and yields that."""
    source = folder / "source.git"
    create_source(source)
    store = Repositories(folder / "repositories")
    repository = store.path_of(project)
    import_repository(source, repository)
    store.close()
    shutil.rmtree(source)
    yield repository


def create_history(path: Path, *, commits: int) -> None:
    """Makes a bare repository with the branches, folders and files that the cases read."""
    make_history(path, commits=commits)
    deep = {f"{DEEP_FOLDER}/file{number}.txt": f"line {number}\n".encode() * 200 for number in range(40)}
    many = {f"many/part{number % 10}/file{number}.txt": f"first {number}\nsecond\n".encode() for number in range(CHANGED_FILES)}
    commit_to_branch(path, "master", {**deep, **many})
    git(path, "branch", "changed", commit_to_branch(path, "master", {name: content + b"third\n" for name, content in many.items()}))
    git(path, "branch", "compared", "master")
    for number in range(COMPARED_COMMITS):
        commit_to_branch(path, "compared", {f"{DEEP_FOLDER}/file{number % 40}.txt": f"line of {number}\n".encode() * 200})
    # Another commit on master, so that its head is not the merge base, which both sides have to find.
    commit_to_branch(path, "master", {"later.txt": b"later\n"})


def _cached_history(data: Path, commits: int, path: Path) -> None:
    cached = data / f"history-{commits}.git"
    if not cached.exists():
        data.mkdir(parents=True, exist_ok=True)
        unfinished = cached.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        create_history(unfinished, commits=commits)
        unfinished.rename(cached)
    subprocess.run(["cp", "-r", str(cached), str(path)], check=True)


@contextmanager
def run_pygit2(repository: Path, folder: Path, *, pinned: bool) -> Iterator[MeasuredServer]:
    """Runs the peer for one repository."""
    port = servers.free_port()
    command = [sys.executable, "-m", "uvicorn", "--factory", "benchmarks.peers.pygit2_app:create_app", "--no-access-log"]
    environment = {REPOSITORY_VARIABLE: os.fspath(repository)}
    log = folder / "pygit2.log"
    with servers.run_server(
        "pygit2", [*command, "--host", "127.0.0.1", "--port", str(port)], environment, port, "/", log, pinned=pinned
    ) as server:
        yield server


def create_cases(repository: Path, project: int) -> list[ReadCase]:
    """The reads of a repository that `create_history` made."""
    path = f"{V3}/projects/{project}/repository"
    changed = git(repository, "rev-parse", "refs/heads/changed")

    def page(number: int) -> ReadCase:
        return ReadCase(
            f"page {number} of the commits",
            f"{path}/commits?ref_name=master&per_page={PAGE_ROWS}&page={number}",
            f"/commits?skip={(number - 1) * PAGE_ROWS}&count={PAGE_ROWS}",
            lambda rows: [each["id"] for each in rows],
        )

    def changes_of(diffs: Any) -> list[tuple[str, str]]:
        # The peer's patches begin behind the first "--- ".
        return sorted((each["new_path"], each["diff"].removeprefix("--- ")) for each in diffs)

    file = f"{DEEP_FOLDER}/file7.txt"
    last_page = min(FAR_PAGE, int(git(repository, "rev-list", "--count", "refs/heads/master")) // PAGE_ROWS)
    return [
        page(1),
        page(last_page),
        ReadCase(
            "a deep folder",
            f"{path}/tree?ref_name=master&path={DEEP_FOLDER}",
            f"/tree?path={DEEP_FOLDER}",
            lambda rows: sorted((each["name"], each["id"], each["mode"]) for each in rows),
        ),
        ReadCase(
            "a deep file",
            f"{path}/files?ref=master&file_path={file}",
            f"/file?path={file}",
            lambda found: [found[key] for key in ("blob_id", "content", "commit_id", "size")],
        ),
        ReadCase(f"the diff of {CHANGED_FILES:,} files", f"{path}/commits/{changed}/diff", f"/diff?sha={changed}", changes_of),
        ReadCase(
            f"a comparison over {COMPARED_COMMITS} commits",
            f"{path}/compare?from=master&to=compared",
            "/compare?from=master&to=compared",
            lambda found: (sorted(each["id"] for each in found["commits"]), changes_of(found["diffs"])),
        ),
    ]


def compare_reads(
    case: ReadCase,
    ours: MeasuredServer,
    peer: MeasuredServer,
    token: str,
    rounds: int,
    repeats: int,
    progress: runs.Progress,
    database: str,
) -> dict[str, Any]:
    """A row: the figures of both sides, and the ratio of our time to the peer's. Raises UnfairError if their content differs."""
    requests = {"ours": (ours, LoadRequest("GET", (case.ours,), token)), "peer": (peer, LoadRequest("GET", (case.peer,), token))}
    contents = {name: case.content(fetch(server, request)) for name, (server, request) in requests.items()}
    if contents["ours"] != contents["peer"]:
        raise UnfairError(f"{case.name}: {str(contents['ours'])[:500]} is not {str(contents['peer'])[:500]}")
    measured: dict[str, list[SequentialRun]] = {name: [] for name in requests}
    for number in range(-1, rounds):
        for name in sorted(requests, reverse=bool(number % 2)):
            found = run_sequentially(*requests[name], repeats, lambda _: None)
            if number >= 0:  # the one before is for warming up
                measured[name].append(found)
        if number >= 0:
            took = {name: sum(found[-1].seconds) / repeats * 1000 for name, found in measured.items()}
            progress.step(f"{database}, {case.name}, round {number + 1}", f"{took['ours']:.2f} ms, pygit2 {took['peer']:.2f} ms")
    found = {name: summarize_runs(each) for name, each in measured.items()}
    times = found["ours"].ms / found["peer"].ms
    return {
        "case": case.name,
        **{name: each.row() for name, each in found.items()},
        "times": round(times, 2),
        "goal": MAX_TIME_RATIO,
        "met": times <= MAX_TIME_RATIO,
    }


def render_report(found: dict[str, Any]) -> str:
    """The report in Markdown; `found` is what `--json` writes."""
    lines = [["client ms (CPU ms of the server)", "Forgefront, REST v3", "pygit2 alone", "times", "goal met"]]
    for row in found["results"]:
        cells = [f"{row[name]['ms']:.2f} ({row[name]['cpu_ms']:.2f})" for name in ("ours", "peer")]
        times = f"{row['times']:.2f} (at most {row['goal']})"
        lines.append([f"{row['case']}, {NAMES[row['database']]}", *cells, times, "yes" if row["met"] else "no"])
    run = found["run"]
    return f"{runs.render_table(lines)}\n\n{run['commits']:,} commits, {run['rounds']} rounds. {runs.describe_machine(found)}"
