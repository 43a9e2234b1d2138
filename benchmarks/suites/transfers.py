"""`scripts/bench git`: clone, fetch and push with the real git program, of the service and of plain `git http-backend`."""

import argparse
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.dataset.dataset_cache import DatasetCache
from benchmarks.dataset.seed import Dataset, path_of
from benchmarks.harness import runs, servers
from benchmarks.harness.git_client import PERSON, run_git
from benchmarks.harness.runs import BOTH, NAMES
from benchmarks.harness.servers import MeasuredServer
from storage.git.importing.repository_import import import_repository
from storage.git.repositories import Repositories
from tests.support.git.git_history import make_history

COMMITS_PER_PUSH = 100
"""Commits of one push."""
FETCHES, LARGE_PUSHES, SMALL_PUSHES = 4, 4, 6
"""Transfers of each kind in a round, more of short ones."""
MAX_TIME_RATIO = 1.3
"""Maximum time for the client, as a multiple of the peer's."""


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    runs.measure_databases("git", options, partial(_measure, options), render_report)


def _measure(
    options: argparse.Namespace, dataset: DatasetCache, database: str, pinned: bool, progress: runs.Progress
) -> list[dict[str, Any]]:
    with dataset.open(database) as (url, _):
        transfers = Transfers(dataset.data, dataset.folder / database, options.commits)
        with (
            servers.run_service(dataset.folder / database, url, pinned=pinned) as ours,
            transfers.sides(ours, pinned=pinned) as sides,
        ):
            servers.wait_for_background_work([ours])
            progress.log(f"{database}: clone, fetch and push")
            return compare_transfers(transfers, sides, options.rounds)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = runs.parser_of(
        "git",
        "Measures clone, fetch and push with the git program: the service and git http-backend alternate on the same repository.",
        keeps_data=False,
    )
    parser.add_argument("--database", nargs="+", choices=BOTH, default=list(BOTH), help="databases to measure (default: both)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of a clone, four fetches and ten pushes (default: 5)")
    parser.add_argument("--commits", type=int, default=10_000, help="commits of the repository (default: 10000)")
    parser.add_argument("--scale", type=float, default=0.1, help="scale of the data set (default: 0.1)")
    return parser.parse_args(arguments)


def render_report(found: dict[str, Any]) -> str:
    """The report in Markdown; `found` is what `--json` writes."""
    lines = [["client ms (CPU ms of the server)", "Forgefront", "git http-backend", "times", "goal met"]]
    for row in found["results"]:
        cells = [f"{row[key]['ms']:.0f} ({row[key]['cpu_ms']:.0f})" for key in ("ours", "peer")]
        ratio = f"{row['times_ms']:.2f} ({row['times_cpu']:.2f})"
        met = f"{'yes' if row['met'] else 'no'} (at most {row['goal']})"
        lines.append([f"{row['case']}, {NAMES[row['database']]}", *cells, ratio, met])
    return f"{runs.render_table(lines)}\n\n{found['run']['rounds']} rounds. {runs.describe_machine(found)}"


@dataclass(frozen=True)
class TransferTime:
    """One transfer: seconds for the client, and milliseconds of CPU of the server with its git processes."""

    seconds: float
    cpu_ms: float


@dataclass(frozen=True)
class GitRemote:
    """A server, and the address of the repository on it."""

    server: MeasuredServer
    address: str
    token: str

    @property
    def _settings(self) -> tuple[str, str]:
        return "-c", f"http.extraHeader=PRIVATE-TOKEN: {self.token}"

    def heads(self, folder: Path) -> dict[str, str]:
        """The commits of the branches by the name of their ref."""
        output = run_git(folder, *self._settings, "ls-remote", "--heads", self.address)
        return {name: oid for oid, name in (line.split("\t") for line in output.splitlines())}

    def git(self, *arguments: str, folder: Path) -> TransferTime:
        """Runs git as a client of this side."""
        before, began = self.server.cpu_seconds(children=True), time.perf_counter()
        run_git(folder, *self._settings, *arguments)
        seconds = time.perf_counter() - began
        # The server reaps its git process a moment after the client has received everything.
        time.sleep(0.05)
        return TransferTime(seconds, (self.server.cpu_seconds(children=True) - before) * 1000)


@dataclass(frozen=True)
class TransferCase:
    """`run` makes one transfer with each of the given sides, in their order; a round has `repeats` of them, more of short ones."""

    name: str
    repeats: int
    run: Callable[[list[GitRemote]], list[TransferTime]]


class Transfers:
    """The repository on both sides, and clients that are behind it or ahead of it."""

    def __init__(self, data: Dataset, folder: Path, commits: int) -> None:
        """Makes the repositories, which must happen before the servers start; `folder` is the data folder of the service."""
        self._data = data
        self._folder = folder / "transfers"
        self._folder.mkdir()
        self.commits = commits
        self._pushes = 0
        self._project = data.projects[-1]
        source = self._folder / "source.git"
        make_history(source, commits=self.commits)
        store = Repositories(folder / "repositories")
        repository = store.path_of(self._project)
        import_repository(source, repository)
        store.close()
        shutil.copytree(repository, self._folder / "peer" / "repository.git")
        run_git(self._folder / "peer" / "repository.git", "config", "http.receivepack", "true")
        shutil.rmtree(source)
        # A client that lacks the newest commit of master.
        self._behind = self._folder / "behind.git"
        run_git(
            self._folder,
            "clone",
            "-q",
            "--bare",
            "--no-local",
            "--single-branch",
            "--branch=master",
            f"file://{repository}",
            str(self._behind),
        )
        run_git(self._behind, "config", "gc.auto", "0")
        one_more = _add_commits(repository, "refs/heads/master", 1)
        peer = self._folder / "peer" / "repository.git"
        run_git(peer, "fetch", "-q", str(repository), one_more)
        run_git(peer, "update-ref", "refs/heads/master", one_more)
        # A client that gets a new branch for each push.
        self._ahead = self._folder / "ahead.git"
        shutil.copytree(self._behind, self._ahead)

    @contextmanager
    def sides(self, ours: MeasuredServer, *, pinned: bool) -> Iterator[dict[str, GitRemote]]:
        with servers.run_http_backend(self._folder / "peer", pinned=pinned) as peer:
            yield {
                "ours": GitRemote(ours, f"http://127.0.0.1:{ours.port}/{path_of(self._project)}.git", self._data.token),
                "peer": GitRemote(peer, f"http://127.0.0.1:{peer.port}/repository.git", self._data.token),
            }

    def cases(self) -> list[TransferCase]:
        return [
            TransferCase(f"clone of {self.commits:,} commits", 1, self._clone),
            TransferCase("fetch of one new commit", FETCHES, self._fetch),
            TransferCase(f"push of {COMMITS_PER_PUSH} commits", LARGE_PUSHES, lambda sides: self._push(sides, COMMITS_PER_PUSH)),
            TransferCase("push of one commit", SMALL_PUSHES, lambda sides: self._push(sides, 1)),
        ]

    def _clone(self, sides: list[GitRemote]) -> list[TransferTime]:
        found = []
        for side in sides:
            with self._scratch() as folder:
                found.append(side.git("clone", "-q", "--bare", side.address, "copy.git", folder=folder))
        return found

    def _fetch(self, sides: list[GitRemote]) -> list[TransferTime]:
        found = []
        for side in sides:
            with self._scratch() as folder:
                shutil.copytree(self._behind, folder / "copy.git")
                found.append(side.git("fetch", "-q", side.address, "+refs/heads/master:refs/heads/master", folder=folder / "copy.git"))
        return found

    def _push(self, sides: list[GitRemote], commits: int) -> list[TransferTime]:
        self._pushes += 1
        branch = f"refs/heads/push-{self._pushes}"
        run_git(self._ahead, "update-ref", branch, "refs/heads/master")
        _add_commits(self._ahead, branch, commits)
        return [side.git("push", "-q", side.address, branch, folder=self._ahead) for side in sides]

    @contextmanager
    def _scratch(self) -> Iterator[Path]:
        folder = self._folder / "scratch"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


def compare_transfers(transfers: Transfers, sides: dict[str, GitRemote], rounds: int) -> list[dict[str, Any]]:
    """A row for each case: the figures of both sides, and the ratios of ours to the peer's."""
    rows = []
    for case in transfers.cases():
        measured: dict[str, list[TransferTime]] = {key: [] for key in sides}
        for number in range(-1, rounds * case.repeats):
            order = sorted(sides, reverse=bool(number % 2))
            for key, times in zip(order, case.run([sides[key] for key in order]), strict=True):
                if number >= 0:  # the one before is for warming up
                    measured[key].append(times)
        row = {"case": case.name, **_summarize(measured), "goal": MAX_TIME_RATIO}
        rows.append({**row, "met": row["times_ms"] <= MAX_TIME_RATIO})
    return rows


def _summarize(measured: dict[str, list[TransferTime]]) -> dict[str, Any]:
    # The system counts CPU in steps of 10 ms, which only a mean evens out.
    found = {
        key: {"ms": round(median(each.seconds for each in times) * 1000, 1), "cpu_ms": round(mean(each.cpu_ms for each in times), 1)}
        for key, times in measured.items()
    }
    ratios = {part: round(found["ours"][part] / max(found["peer"][part], 0.1), 2) for part in ("ms", "cpu_ms")}
    return {**found, "times_ms": ratios["ms"], "times_cpu": ratios["cpu_ms"]}


def _add_commits(repository: Path, ref: str, count: int) -> str:
    """Adds commits of one changed file each to the branch; returns the id of the last one."""
    parts = []
    for number in range(count):
        text = f"{ref} {number}\n" * 20
        begin = f"from {ref}^0\n" if number == 0 else ""
        parts.append(
            f"commit {ref}\ncommitter {PERSON} {1_700_000_000 + number} +0000\ndata 7\nChange\n{begin}"
            f"M 100644 inline src/part{number % 7}/file{number % 50}.txt\ndata {len(text)}\n{text}\n"
        )
    run_git(repository, "fast-import", "--quiet", "--force", stdin="".join(parts).encode())
    return run_git(repository, "rev-parse", ref)
