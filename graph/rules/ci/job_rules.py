"""`rules` of a job: the first that applies decides whether and when the job runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graph.rules.builds.job_variables import ref_slug
from graph.rules.ci.commit_files import CommitFiles
from graph.rules.ci.expressions import ExpressionSearches, SearchTooLong
from graph.rules.ci.rule_conditions import Condition
from storage.git.refs.ref_names import NULL_ID
from storage.tables import RunWhen

MAX_RULES = 50
"""Rules of one job."""
MAX_PATTERNS = 50
"""Patterns of `changes` or `exists`."""
MAX_COMPARISONS = 1_000_000
"""Comparisons and patterns of all rules that are evaluated for one branch or tag."""


class RuleLimitExceeded(Exception):
    """Evaluating rules takes too long; the message says which limit was exceeded."""


@dataclass(frozen=True, slots=True)
class JobRule:
    """A rule; it applies if all of its conditions do. `run_when` is None for `never`; `allow_failure` is None if it says nothing.

    `comparisons` is the number of comparisons and patterns to evaluate.
    """

    condition: Condition | None = None
    changes: tuple[str, ...] | None = None
    exists: tuple[str, ...] | None = None
    run_when: RunWhen | None = RunWhen.ON_SUCCESS
    allow_failure: bool | None = None
    comparisons: int = 0


@dataclass(slots=True)
class RuleContext:
    """The input of the rules of a file for one branch or tag. `variables` are those of the push; without `files` all patterns are found.

    Jobs that share rules and variables, by `extends` or aliases, share the result.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    files: CommitFiles | None = None
    searches: ExpressionSearches = field(default_factory=ExpressionSearches)
    comparisons: int = 0
    _found: dict[tuple[int, int], tuple[JobRule | None, Sequence[JobRule], Mapping[str, str] | None]] = field(
        default_factory=dict, init=False
    )
    """Results by the identities of rules and variables, with both, so that the identities remain theirs."""

    def first_rule(self, rules: Sequence[JobRule], configured: Mapping[str, str] | None) -> JobRule | None:
        """The first rule that applies to a job with these variables in the file. Raises RuleLimitExceeded."""
        key = id(rules), id(configured)
        if key not in self._found:
            variables = {**self.variables, **(configured or {})}
            try:
                rule = next((rule for rule in rules if self._applies(rule, variables)), None)
            except SearchTooLong as error:
                raise RuleLimitExceeded(str(error)) from error
            self._found[key] = rule, rules, configured
        return self._found[key][0]

    def _applies(self, rule: JobRule, variables: Mapping[str, str]) -> bool:
        self.comparisons += rule.comparisons
        if self.comparisons > MAX_COMPARISONS:
            raise RuleLimitExceeded(f"the rules of the file have more than {MAX_COMPARISONS:,} comparisons and patterns to evaluate")
        if rule.condition is not None and not rule.condition.holds(variables, self.searches):
            return False
        if self.files is None:
            return True
        has_changed = rule.changes is None or self.files.has_changed(rule.changes, self.searches)
        return has_changed and (rule.exists is None or self.files.has_any(rule.exists, self.searches))


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
