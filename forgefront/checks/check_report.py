"""What `forgefront check` found."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from storage.integrity import StoredProject

COUNTERS = "counters"
"""The subject of findings about counters that are wrong."""


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """A problem. `subject` is where it is: a path, a table, a project."""

    area: str
    subject: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.area}: {self.subject}: {self.problem}"


@dataclass
class CheckReport:
    """`checked` names what was checked, `notes` what is unusual but no problem; the index of `unindexed_projects` can be repaired."""

    problems: list[CheckFinding] = field(default_factory=list)
    repaired: list[CheckFinding] = field(default_factory=list)
    unindexed_projects: list[StoredProject] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)

    def add(self, area: str, subject: object, problem: str, remedy: str) -> None:
        self.problems.append(CheckFinding(area, str(subject), problem, remedy))

    @property
    def is_repairable(self) -> bool:
        """Whether `--repair` can repair some of the problems."""
        return bool(self.unindexed_projects) or any(finding.subject == COUNTERS for finding in self.problems)

    def describe_problems(self) -> Iterator[str]:
        """Each problem with its remedy, as two lines for people."""
        for finding in self.problems:
            yield f"WRONG  {finding}\n       → {finding.remedy}"

    def count_problems(self) -> str:
        """
        >>> CheckReport().count_problems()
        'no problems'
        """
        count = len(self.problems)
        return f"{count} problem{'s' if count > 1 else ''}" if count else "no problems"

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": not self.problems,
            "problems": [asdict(finding) for finding in self.problems],
            "repaired": [asdict(finding) for finding in self.repaired],
            "notes": self.notes,
            "checked": self.checked,
        }
