"""Selects the jobs of a file that run for a ref, and serializes them for the pipeline."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from graph.rules.ci.config_errors import PipelineConfigError, quote
from graph.rules.ci.expressions import InvalidExpression, compile_expression
from graph.rules.ci.job_rules import JobRule, RuleContext, RuleLimitExceeded
from storage.git.cancellation import check_canceled
from storage.tables import RunWhen

MAX_REF_LENGTH = 255
"""Characters of a branch or tag name; longer refs are not built."""

BRANCHES_KEYWORD = "branches"
TAGS_KEYWORD = "tags"

_EXPRESSION_END_PATTERN = re.compile(r"(?P<source>.*)/(?P<flags>i?)@(?P<path>[^/]+/.+)")
"""The last word of an expression with the path of a project."""
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
        if (expression := _split_expression(text)) is not None:
            source, ignore_case, path = expression
            pattern = cls(text, source, path, True, ignore_case)
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
class JobNeed:
    """A job of an earlier stage that must have ended. `optional`: it may be missing in a pipeline."""

    job: str
    artifacts: bool = True
    optional: bool = False


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
    rules: tuple[JobRule, ...] | None = None
    needs: tuple[JobNeed, ...] | None = None
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


def select_jobs(config: PipelineConfig, ref: str, *, tag: bool, path: str, rule_context: RuleContext | None = None) -> list[JobConfig]:
    """The jobs that run for a branch or tag of the project with this full path, in order, as their rules decide.

    May take two seconds on large files with many expressions. Raises PipelineConfigError if a job needs one that does not run, and if
    rules exceed a limit.
    """
    known: dict[RefPattern, bool] = {}
    known_lists: dict[int, bool] = {}

    def matches(pattern: RefPattern) -> bool:
        if pattern not in known:
            known[pattern] = pattern.matches(ref, tag=tag, path=path)
        return known[pattern]

    def any_of(patterns: Sequence[RefPattern]) -> bool:
        # Jobs share the lists of templates and aliases. All of them exist until the end, so that their identities are unique.
        if id(patterns) not in known_lists:
            known_lists[id(patterns)] = any(map(matches, patterns))
        return known_lists[id(patterns)]

    if len(ref) > MAX_REF_LENGTH:
        return []
    selected = [job for job in config.jobs if (not job.only or any_of(job.only)) and not (job.excepted and any_of(job.excepted))]
    context = rule_context if rule_context is not None else RuleContext()
    return _resolve_needs([decided for job in selected if (decided := _apply_rules(job, context)) is not None])


def _apply_rules(job: JobConfig, context: RuleContext) -> JobConfig | None:
    """The job as its first rule that applies has it; None if it does not run."""
    if job.rules is None:
        return job
    check_canceled()
    try:
        rule = context.first_rule(job.rules, job.options.get("variables"))
    except RuleLimitExceeded as error:
        raise PipelineConfigError.from_message(f"{quote(job.name)} job: rules: {error}.", job.line) from error
    if rule is None or rule.run_when is None:
        return None
    return replace(job, run_when=rule.run_when, allow_failure=job.allow_failure if rule.allow_failure is None else rule.allow_failure)


def _resolve_needs(jobs: list[JobConfig]) -> list[JobConfig]:
    """The jobs with what they need among their options; by default they get the artifacts of these only."""
    names = {job.name for job in jobs}
    found = []
    for job in jobs:
        if job.needs is not None:
            for need in job.needs:
                if need.job not in names and not need.optional:
                    raise PipelineConfigError.from_message(
                        f"{quote(job.name)} job: needs: {quote(need.job)} does not run here."
                        " Give both the same rules, or add `optional: true`.",
                        job.line,
                    )
            needs = [need for need in job.needs if need.job in names]
            artifacts = [need.job for need in needs if need.artifacts]
            job = replace(job, options={"dependencies": artifacts, **job.options, "needs": [need.job for need in needs]})
        found.append(job)
    return found


def group_by_stage(jobs: Sequence[Mapping[str, Any]]) -> dict[int, list[Mapping[str, Any]]]:
    """Stored jobs by the index of their stage, in the order of stages."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for job in sorted(jobs, key=lambda job: int(job["stage_index"])):
        found.setdefault(int(job["stage_index"]), []).append(job)
    return found


def _split_expression(text: str) -> tuple[str, bool, str | None] | None:
    """The source of an expression between slashes, whether it ignores case, and the path of the project; None for anything else.

    One pattern for all of it would read the rest of the text again for each slash: seconds for a file of many slashes.
    """
    if len(text) < 2 or not text.startswith("/"):
        return None
    if text.endswith("/"):
        return text[1:-1], False, None
    if len(text) > 2 and text.endswith("/i"):
        return text[1:-2], True, None
    # The path and what leads to it have no spaces.
    word = "" if text[-1].isspace() else text[1:].rsplit(maxsplit=1)[-1]
    found = _EXPRESSION_END_PATTERN.fullmatch(word)
    if found is None:
        return None
    return text[1 : len(text) - len(word) + found.end("source")], bool(found["flags"]), found["path"]
