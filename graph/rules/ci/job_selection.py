"""Selects the jobs of a file that run for a ref, and serializes them for the pipeline."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graph.rules.ci.expressions import InvalidExpression, compile_expression
from storage.tables import RunWhen

MAX_REF_LENGTH = 255
"""Characters of a branch or tag name; longer refs are not built."""

BRANCHES_KEYWORD = "branches"
TAGS_KEYWORD = "tags"

_EXPRESSION_PATTERN = re.compile(r"/(?P<source>.*)/(?P<flags>i?)(?:@(?P<path>[^/\s]+/\S+))?", re.DOTALL)
_NAME_PATTERN = re.compile(r"(?P<name>[^@]+)@(?P<path>[^/\s]+/\S+)")


@dataclass(frozen=True, slots=True)
class RefPattern:
    """An entry of `only` or `except`: `branches`, `tags`, an exact ref name, or an expression.

    An expression is written as `/^release-/i`. An expression matches anywhere in the name. With `@namespace/project` the pattern
    applies only in that project, not in its forks.
    """

    text: str
    name: str
    path: str | None = None
    is_expression: bool = False
    ignore_case: bool = False

    @classmethod
    def parse(cls, text: str) -> "RefPattern":
        """Parse a pattern. Raises InvalidExpression."""
        if found := _EXPRESSION_PATTERN.fullmatch(text):
            pattern = cls(text, found["source"], found["path"], True, bool(found["flags"]))
            compile_expression(pattern.name, ignore_case=pattern.ignore_case)
            return pattern
        if text.startswith("/"):
            raise InvalidExpression("it must end in `/` or `/i`, optionally followed by `@namespace/project`")
        if found := _NAME_PATTERN.fullmatch(text):
            return cls(text, found["name"], found["path"])
        return cls(text, text)

    def matches(self, ref: str, *, tag: bool, path: str) -> bool:
        """Whether the pattern matches the ref; `path` is the full path of the project."""
        if not self.is_expression and self.text == ref:
            # The name of a branch may be `somebody@a/feature`.
            return True
        if self.path is not None and self.path.lower() != path.lower():
            return False
        if self.is_expression:
            return compile_expression(self.name, ignore_case=self.ignore_case).search(ref) is not None
        return self.name == ref or self.name == (TAGS_KEYWORD if tag else BRANCHES_KEYWORD)


@dataclass(frozen=True, slots=True)
class JobConfig:
    """One job of a file.

    `options` are JSON: what a runner needs besides the commands, as written in the file. Without `only` a job runs for every branch and
    tag.
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
        """The job as JSON, as a pipeline stores it."""
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
    """A parsed file: its stages in order, and its jobs ordered by stage, then as in the file."""

    stages: tuple[str, ...]
    jobs: tuple[JobConfig, ...]


def select_jobs(config: PipelineConfig, ref: str, *, tag: bool, path: str) -> list[JobConfig]:
    """The jobs that run for a branch or tag of the project with this full path, in order.

    May take a second on large files with many expressions.
    """
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
    """Stored jobs by the index of their stage, in the order of stages."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for job in sorted(jobs, key=lambda job: int(job["stage_index"])):
        found.setdefault(int(job["stage_index"]), []).append(job)
    return found
