"""What the commands share: options, progress, the description of the machine, and writing of results."""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.dataset.dataset_cache import DatasetCache
from benchmarks.harness import load, servers

BOTH = ("postgresql", "sqlite")
NAMES = {"postgresql": "PostgreSQL", "sqlite": "SQLite"}


class Progress:
    """Reports progress on standard error: what was measured, its figures, and the estimated time of the rest."""

    def __init__(self) -> None:
        self._step_started_at = time.monotonic()
        self._spent = 0.0
        self._total = self._done = 0

    def log(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def expect(self, rounds: int) -> None:
        """Adds to the number of expected rounds; a negative number subtracts rounds that will not run."""
        self._total += rounds

    def reset_clock(self) -> None:
        """Excludes the work since the last round, such as starting servers, from the estimate."""
        self._step_started_at = time.monotonic()

    def step(self, what: str, figures: str) -> None:
        self._done += 1
        now = time.monotonic()
        self._spent, self._step_started_at = self._spent + now - self._step_started_at, now
        remaining = self._spent / self._done * (self._total - self._done)
        self.log(f"  [{self._done:3}/{self._total}] {what:62} {figures:34} about {remaining / 60:.1f} min left")


def parser_of(command: str, description: str, epilog: str = "", *, keeps_data: bool = True) -> argparse.ArgumentParser:
    """A parser with the options that all commands have; with `--data` if the data set can be used again after the command."""
    parser = argparse.ArgumentParser(prog=f"scripts/bench {command}", description=description, epilog=epilog)
    if keeps_data:
        parser.add_argument(
            "--data",
            type=Path,
            metavar="DIR",
            help="keep the data set in this folder, and use the one of an earlier run if it is up to date",
        )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    parser.add_argument(
        "--save",
        type=Path,
        metavar="DIR",
        help=f"write {command}.json and {command}.md into this folder; benchmarks/results has those of the repository",
    )
    return parser


@contextmanager
def folder_of(data: Path | None) -> Iterator[Path]:
    """The folder of the data set: the one of `--data`, or a temporary one."""
    if data is not None:
        data.mkdir(parents=True, exist_ok=True)
        yield data
        return
    with tempfile.TemporaryDirectory(prefix="forgefront-bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def measure_databases(
    command: str,
    options: argparse.Namespace,
    measure: Callable[[DatasetCache, str, bool, Progress], list[dict[str, Any]]],
    render: Callable[[dict[str, Any]], str],
    **run: Any,
) -> None:
    """Measures on each database of the options, each with a new data set, and writes the results, to which `run` is added.

    `measure` is called with the data set, the database, whether servers have a core of their own, and the progress; it returns rows.
    """
    pinned = reserve_core()
    before = os.getloadavg()[0]
    progress = Progress()
    results = []
    for database in options.database:
        with folder_of(None) as folder:
            dataset = DatasetCache(folder, options.scale, progress.log)
            results += [{"database": database, **row} for row in measure(dataset, database, pinned, progress)]
    found = {
        "machine": machine(pinned, before),
        "run": {"scale": options.scale, "rounds": options.rounds, **run},
        "results": results,
    }
    write_results(command, found, render(found), options)


def require_wrk() -> None:
    if not load.is_wrk_installed():
        sys.exit(load.MISSING_MESSAGE)


def reserve_core() -> bool:
    """Keeps this process, wrk and PostgreSQL off the core of the servers; returns whether the servers can have one."""
    pinned = servers.can_pin()
    if pinned:
        servers.leave_server_core()
    return pinned


def machine(pinned: bool, load_before: float) -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "pinned": pinned,
        "load_average": {"before": round(load_before, 2), "after": round(os.getloadavg()[0], 2)},
    }


def describe_machine(found: dict[str, Any]) -> str:
    """A sentence about the machine."""
    machine = found["machine"]
    loads = machine["load_average"]
    own = "" if machine["pinned"] else " The servers had no core of their own, so the noise is larger."
    return f"{machine['cores']} cores, Python {machine['python']}; load average {loads['before']} before and {loads['after']} after.{own}"


def write_results(command: str, found: dict[str, Any], text: str, options: argparse.Namespace, svg: str | None = None) -> None:
    """Prints the text, and writes the files that the options name."""
    print(text)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    if options.save:
        options.save.mkdir(parents=True, exist_ok=True)
        (options.save / f"{command}.json").write_text(json.dumps(found, indent=2) + "\n")
        (options.save / f"{command}.md").write_text(f"The last saved result of `scripts/bench {command}`.\n\n{text}\n")
        if svg is not None:
            (options.save / f"{command}.svg").write_text(svg)


def render_table(lines: list[list[str]]) -> str:
    """A table in Markdown that is readable on a terminal too; the first line is its head, the first column is aligned left.

    A line of which only two cells are filled does not make its columns wider.
    """
    full_lines = [line for line in lines if not (len(line) > 2 and all(cell == "" for cell in line[2:]))]
    widths = [max(len(cell) for cell in column) for column in zip(*full_lines, strict=True)]
    widths[0] = max(len(line[0]) for line in lines)

    def row(cells: list[str]) -> str:
        first, *others = cells
        return "| " + " | ".join([first.ljust(widths[0]), *map(str.rjust, others, widths[1:])]) + " |"

    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]) + "|"
    return "\n".join([row(lines[0]), rule, *map(row, lines[1:])])
