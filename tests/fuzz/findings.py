"""What a run found, with the command that repeats it."""

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
class Part:
    """The share of a run that one part has: a seed to begin at, and the time until it ends.

    An iteration is repeated by a part that begins at its seed, so `report` names the seed of the iteration that found something.
    """

    name: str
    database: str
    seed: int
    until: float
    minutes: float = 1
    """How long it takes to repeat it: one iteration, unless its iterations follow each other from its seed."""
    found: dict[str, Finding] = field(default_factory=dict)
    iterations: int = 0
    _told: float = field(default_factory=monotonic)

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.until - monotonic())

    def seeds(self) -> "Seeds":
        """The seeds of its iterations, until its time is over; one at least."""
        return Seeds(self)

    def report(self, title: str, detail: str, seed: int | None = None) -> None:
        """Keeps a finding, and prints it where it is new."""
        if title in self.found:
            return
        used = self.seed if seed is None else seed
        command = f"{COMMAND} --minutes {self.minutes:g} --seed {used} --only {self.name} --database {self.database}"
        self.found[title] = Finding(self.name, title, detail, command)
        say(f"{self.name} on {self.database}: FOUND {title}\n{_indented(detail[:4_000])}\n    repeat: {command}")

    def tell_progress(self, seed: int) -> None:
        if monotonic() - self._told > 10:
            self._told = monotonic()
            done = f"{self.iterations} iterations, {len(self.found)} findings, {self.seconds_left:.0f} s left"
            say(f"{self.name} on {self.database}: seed {seed}, {done}")


class Seeds:
    def __init__(self, part: Part) -> None:
        self._part = part
        self._next = part.seed

    def __iter__(self) -> "Seeds":
        return self

    def __next__(self) -> int:
        part, seed = self._part, self._next
        if part.iterations and part.seconds_left <= 0:
            raise StopIteration
        part.iterations += 1
        self._next += 1
        part.tell_progress(seed)
        return seed


def say(text: str) -> None:
    print(f"fuzz: {text}", file=sys.stderr, flush=True)


def summary(findings: list[Finding], say: Callable[[str], None] = say) -> None:
    if not findings:
        say("nothing was found")
        return
    say(f"{len(findings)} findings")
    for number, each in enumerate(findings, 1):
        say(f"{number}. {each.part}: {each.title}\n    repeat: {each.command}")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
