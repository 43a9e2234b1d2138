"""Findings of a run, each with the command that reproduces it."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

COMMAND = ".venv/bin/python -m tests.fuzz"


@dataclass(frozen=True, slots=True)
class Finding:
    part: str
    title: str
    """What is wrong, in a line; equal titles of a part are one finding."""
    detail: str
    command: str


@dataclass
class FuzzPart:
    """The share of a run that one part has: a seed to begin at, and the time until it ends.

    An iteration is repeated by a part that begins at its seed, so `report` names the seed of the iteration that found something.
    """

    name: str
    database: str
    seed: int
    deadline: float
    minutes: float = 1
    """How long it takes to repeat it: one iteration, unless its iterations follow each other from its seed."""
    findings: dict[str, Finding] = field(default_factory=dict)
    iterations: int = 0
    _progress_at: float = field(default_factory=monotonic)

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.deadline - monotonic())

    def seeds(self) -> "SeedIterator":
        """The seeds of its iterations, until its time is over; one at least."""
        return SeedIterator(self)

    def report(self, title: str, detail: str, seed: int | None = None) -> None:
        """Keeps a finding, and prints it where it is new."""
        if title in self.findings:
            return
        used = self.seed if seed is None else seed
        command = f"{COMMAND} --minutes {self.minutes:g} --seed {used} --only {self.name} --database {self.database}"
        self.findings[title] = Finding(self.name, title, detail, command)
        log(f"{self.name} on {self.database}: FOUND {title}\n{_indented(detail[:4_000])}\n    repeat: {command}")

    def log_progress(self, seed: int) -> None:
        if monotonic() - self._progress_at > 10:
            self._progress_at = monotonic()
            done = f"{self.iterations} iterations, {len(self.findings)} findings, {self.seconds_left:.0f} s left"
            log(f"{self.name} on {self.database}: seed {seed}, {done}")


class SeedIterator:
    def __init__(self, part: FuzzPart) -> None:
        self._part = part
        self._next = part.seed

    def __iter__(self) -> "SeedIterator":
        return self

    def __next__(self) -> int:
        part, seed = self._part, self._next
        if part.iterations and part.seconds_left <= 0:
            raise StopIteration
        part.iterations += 1
        self._next += 1
        part.log_progress(seed)
        return seed


def log(text: str) -> None:
    print(f"fuzz: {text}", file=sys.stderr, flush=True)


def print_summary(findings: list[Finding], write: Callable[[str], None] = log) -> None:
    if not findings:
        write("nothing was found")
        return
    write(f"{len(findings)} findings")
    for number, each in enumerate(findings, 1):
        write(f"{number}. {each.part}: {each.title}\n    repeat: {each.command}")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
