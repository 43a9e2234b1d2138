"""Which jobs of a file run for a ref, and what of them is kept to be run."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graph.rules.ci.expressions import InvalidExpression, compile_expression
from storage.tables import RunWhen

MAX_REF_LENGTH = 255
"""Characters of a branch or tag that is built."""

BRANCHES_KEYWORD = "branches"
TAGS_KEYWORD = "tags"

_EXPRESSION_PATTERN = re.compile(r"/(?P<source>.*)/(?P<flags>i?)(?:@(?P<path>[^/\s]+/\S+))?", re.DOTALL)
_NAME_PATTERN = re.compile(r"(?P<name>[^@]+)@(?P<path>[^/\s]+/\S+)")


@dataclass(frozen=True, slots=True)
class RefPattern:
    """`branches`, `tags`, the exact name of a branch or tag, or an expression that is found somewhere in the name, as `/^release-/i`.

    With `@namespace/project` it is meant for that project alone, so that forks do not follow it.
    """

    text: str
    name: str
    path: str | None = None
    is_expression: bool = False
    ignore_case: bool = False

    @classmethod
    def parse(cls, text: str) -> "RefPattern":
        """Raises InvalidExpression."""
        if found := _EXPRESSION_PATTERN.fullmatch(text):
            pattern = cls(text, found["source"], found["path"], True, bool(found["flags"]))
            compile_expression(pattern.name, ignore_case=pattern.ignore_case)
            return pattern
        if text.startswith("/"):
            raise InvalidExpression("it ends in `/`, `/i` or one of them and `@namespace/project`")
        if found := _NAME_PATTERN.fullmatch(text):
            return cls(text, found["name"], found["path"])
        return cls(text, text)

    def matches(self, ref: str, *, tag: bool, path: str) -> bool:
        """`path` is the full path of the project."""
        if not self.is_expression and self.text == ref:
            # A branch may well be called `somebody@a/feature`.
            return True
        if self.path is not None and self.path.lower() != path.lower():
            return False
        if self.is_expression:
            return compile_expression(self.name, ignore_case=self.ignore_case).search(ref) is not None
        return self.name == ref or self.name == (TAGS_KEYWORD if tag else BRANCHES_KEYWORD)


@dataclass(frozen=True, slots=True)
class JobConfig:
    """What a file says of one job. `options` are JSON: what a runner needs beside the commands, as the file has it.

    Without `only` a job runs for every branch and tag.
    """

    name: str
    stage: str
    stage_index: int
    commands: str
    tags: tuple[str, ...] = ()
    allow_failure: bool = False
    run_when: RunWhen = RunWhen.ON_SUCCESS
    only: tuple[RefPattern, ...] | None = None
    excepted: tuple[RefPattern, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    line: int | None = None

    def serialize(self) -> dict[str, Any]:
        """As a pipeline keeps it."""
        return {
            "name": self.name,
            "stage": self.stage,
            "stage_index": self.stage_index,
            "commands": self.commands,
            "tags": list(self.tags),
            "allow_failure": self.allow_failure,
            "when": self.run_when.value,
            "options": dict(self.options),
        }


@dataclass(frozen=True, slots=True)
class PipelineConfig:
    """A whole file: its stages in order, and its jobs in the order of stages, then of the file."""

    stages: tuple[str, ...]
    jobs: tuple[JobConfig, ...]


def select_jobs(config: PipelineConfig, ref: str, *, tag: bool, path: str) -> list[JobConfig]:
    """The jobs that run for a branch or tag of the project of this full path, in their order. It may take a second: see `reading`."""
    known: dict[RefPattern, bool] = {}

    def any_of(patterns: Iterable[RefPattern]) -> bool:
        for pattern in patterns:
            if pattern not in known:
                known[pattern] = pattern.matches(ref, tag=tag, path=path)
            if known[pattern]:
                return True
        return False

    if len(ref) > MAX_REF_LENGTH:
        return []
    return [job for job in config.jobs if (not job.only or any_of(job.only)) and not any_of(job.excepted or ())]


def group_by_stage(jobs: Sequence[Mapping[str, Any]]) -> dict[int, list[Mapping[str, Any]]]:
    """Kept jobs by the place of their stage, the first stage first."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for job in sorted(jobs, key=lambda job: int(job["stage_index"])):
        found.setdefault(int(job["stage_index"]), []).append(job)
    return found
