"""`rules` of a job: the first that applies decides whether and when the job runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from graph.rules.builds.job_variables import ref_slug
from graph.rules.ci.commit_files import CommitFiles
from graph.rules.ci.rule_conditions import Condition
from storage.git.refs.ref_names import NULL_ID
from storage.tables import RunWhen

MAX_RULES = 50
"""Rules of one job."""
MAX_PATTERNS = 50
"""Patterns of `changes` or `exists`."""


@dataclass(frozen=True, slots=True)
class JobRule:
    """A rule; it applies if all of its conditions do. `run_when` is None for `never`; `allow_failure` is None if it says nothing."""

    condition: Condition | None = None
    changes: tuple[str, ...] | None = None
    exists: tuple[str, ...] | None = None
    run_when: RunWhen | None = RunWhen.ON_SUCCESS
    allow_failure: bool | None = None


@dataclass(frozen=True, slots=True)
class RuleContext:
    """What rules look at. `variables` are those of the push; without `files` all patterns are found."""

    variables: Mapping[str, str] = field(default_factory=dict)
    files: CommitFiles | None = None

    def applies(self, rule: JobRule, configured: Mapping[str, str]) -> bool:
        """Whether the rule applies to a job with these variables in the file."""
        if rule.condition is not None and not rule.condition.holds({**self.variables, **configured}):
            return False
        if self.files is None:
            return True
        has_changed = rule.changes is None or self.files.has_changed(rule.changes)
        return has_changed and (rule.exists is None or self.files.has_any(rule.exists))


def push_variables(project_id: int | None, ref: str, *, tag: bool, sha: str, before: str | None, source: str) -> dict[str, str]:
    """The variables that conditions may use: those of jobs that are known at the push, under their names of 8.5 and of 9.0.

    `source` is `push` or `trigger`.
    """
    values = {
        "CI": "true",
        "GITLAB_CI": "true",
        "CI_BUILD_REF": sha,
        "CI_COMMIT_SHA": sha,
        "CI_BUILD_BEFORE_SHA": before or NULL_ID,
        "CI_COMMIT_BEFORE_SHA": before or NULL_ID,
        "CI_BUILD_REF_NAME": ref,
        "CI_COMMIT_REF_NAME": ref,
        "CI_BUILD_REF_SLUG": ref_slug(ref),
        "CI_COMMIT_REF_SLUG": ref_slug(ref),
        "CI_PIPELINE_SOURCE": source,
        **({"CI_BUILD_TAG": ref, "CI_COMMIT_TAG": ref} if tag else {"CI_COMMIT_BRANCH": ref}),
    }
    return values if project_id is None else {**values, "CI_PROJECT_ID": str(project_id)}
