"""The promises of docs/promises.md (a) that long runs show, and the table of what was measured.

`scripts/check --reliability` runs them, each test marked `@promise("R1")` with the promises that it shows. `FORGEFRONT_RELIABILITY` is the
share of the promised counts that is run: 1 for all, 0.1 for a tenth; without it these tests are skipped.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest

COUNT_SHARE = float(os.environ.get("FORGEFRONT_RELIABILITY") or 0)
SEEDS = [int(seed) for seed in os.environ.get("FORGEFRONT_SEEDS", "1,2,3").split(",")]
"""The seed of the random times of kills."""

PROMISES = {
    "R1": "50 SIGKILLs under 8 writers, 3 seeds: 0 acknowledged writes lost, 0 doubled, 0 half-written",
    "R2": "after each kill: integrity check ok, no broken references",
    "R3": "start to first answer at most 3 s empty, 10 s with 100,000 rows and repairs pending",
    "R4": "32 writers x 100 issues: numbers 1 to 3200, no error, p99 below 1 s",
    "R6": "50 SIGKILLs during merges, pushes, branch moves and reads, 3 seeds: row and ref agree in each answer, 0 lost, fsck clean",
    "R7": "200 rounds of 2 merges and 8 at once: all tips in the target, first-parent history linear, only 405 and 409 otherwise",
    "R8": "a pusher moves the target 20 times a second during merges: 0 pushed commits lost",
    "R9": "PostgreSQL stopped 10 times and a standby promoted twice under load: only 503 with Retry-After of 1 to 5 s, each answer and the"
    " first 200 within 5 s",
    "R10": "32 writers for 60 s: no 'database is locked'; a wait over 5 s ends with 503 and Retry-After",
    "R11": "disk full: writes 507 or 503, reads go on, nothing half-written, heals without a restart",
    "R12": "20 SIGKILLs during deliveries, a fifth refused: each change delivered within 90 s, at most 4 repeated a kill, one webhook-id",
    "R14": "100 hooks that never answer: p99 of the API within 20 %, other hooks delivered within 5 s, bounded sockets",
    "R15": "500 half-open requests for 60 s: p99 of other requests below 500 ms, closed with 408",
    "R16": "10,000 open streams: an event reaches all within 2 s, at most 40 kB each, a slow reader is dropped",
    "R17": "2 GiB artifacts up and down: resident growth at most 32 MB, 256 MB for 8 at once",
    "R18": "20 SIGKILLs during uploads: 0 rows without a whole file",
    "R20": "20 SIGTERMs under load: 0 requests cut, exit within 15 s",
    "R23": "a migration killed 20 times completes; servers that start together run it once",
    "R24": "merge requests of a history of 40,000 commits are imported in the background, all of them",
    "R25": "a dump taken under load and restored: database sound, rows and refs agree without a repair, 0 acknowledged before lost",
    "R26": "no operation holds the event loop longer than 100 ms",
    "R27": "at most 220 MiB after 5,000 distinct random queries with filters of any size",
    "R28": "three hosts, 30 SIGKILLs under load: 0 acknowledged moves lost, read at once through others, only callers of the dead fail",
    "R29": "a dump under load restored into the other database: all answers are those of a replica of the same moment",
    "R31": "500,000 builds, 1 GB of packs: dump and restore at most 200 MiB more memory, an incremental dump of 1 % has 5 % of the size",
    "R32": "an import killed 30 times is continued by the next run: 0 things lost, 0 doubled",
    "R33": "50 runners x 2,000 builds, 30 SIGKILLs of the service and 30 of runners: 0 builds lost, 0 finished twice",
}
FIGURES = pytest.StashKey[list[tuple[str, str, str]]]()
"""(promise, database or parameters of the test, measured value)."""


def promise(*names: str, always: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Marks a test of these promises, run only by `scripts/check --reliability`; with `always` also by the suite."""

    def mark(test: Callable[..., Any]) -> Callable[..., Any]:
        assert set(names) <= PROMISES.keys()
        for name in names:
            test = pytest.mark.promise(name=name)(test)
        return pytest.mark.skipif(not (COUNT_SHARE or always), reason="takes minutes; scripts/check --reliability runs it")(test)

    return mark


def scaled_count(count: int, min_count: int = 1) -> int:
    """The fraction of a promised count that this run covers."""
    return max(min_count, round(count * COUNT_SHARE))


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """`figure("p99 40 ms")` adds a line to the table at the end of the run, beside the promise of the test."""
    figures = request.config.stash.setdefault(FIGURES, [])
    names = [str(mark.kwargs["name"]) for mark in request.node.iter_markers("promise")]
    callspec = getattr(request.node, "callspec", None)
    values = callspec.params if callspec else {}
    parameters = " ".join(f"{name} {value}" if isinstance(value, int) else str(value) for name, value in values.items())

    def record(measured: str) -> None:
        figures.append((", ".join(sorted(names, key=promise_number)), parameters, measured))

    return record


def promise_number(promise: str) -> int:
    return int(promise.removeprefix("R").partition(",")[0] or 0)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "promise(name): the promise of reliability that the test shows, as R1")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    figures = config.stash.get(FIGURES, [])
    if not figures or not COUNT_SHARE:
        return
    terminalreporter.section(f"promises, at {COUNT_SHARE:g} of the promised counts" if COUNT_SHARE != 1 else "promises")
    printed = ""
    for names, parameters, measured in sorted(figures, key=lambda figure: promise_number(figure[0])):
        if names != printed:
            for name in filter(None, names.split(", ")):
                terminalreporter.write_line(f"{name}, promised: {PROMISES[name]}")
            printed = names
        terminalreporter.write_line(f"    {parameters + ': ' if parameters else ''}{measured}")
