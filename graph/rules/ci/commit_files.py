"""The files of a pushed commit, as `rules: changes` and `rules: exists` ask for them."""

import re
from collections.abc import Iterable
from functools import cached_property

from graph.rules.ci.expressions import ExpressionSearches, compile_expression
from storage.git import trees
from storage.git.diffs.changed_paths import list_changed_paths
from storage.git.refs.ref_names import NULL_ID
from storage.git.repository import DamagedRepository, Repository, UnknownCommit

MAX_LISTED_PATHS = 10_000
"""Paths of a commit that `exists` compares with a pattern; in a larger commit every pattern is found."""
MAX_PATTERN_LENGTH = 255

_SPECIAL_PATTERN = re.compile(r"\*\*/|\*\*|\*|\?|\{|\}|,|[^*?{},]+")
_SPECIAL = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/\n]*", "?": "[^/\n]", "{": "(?:", "}": ")"}


def glob_expression(pattern: str) -> str:
    r"""The RE2 expression of a pattern for whole lines; an invalid one if its braces do not match.

    >>> glob_expression("src/**/*.{c,h}")
    '(?m)^src/(?:.*/)?[^/\n]*\\.(?:c|h)$'
    """
    depth, parts = 0, []
    for part in _SPECIAL_PATTERN.findall(pattern):
        parts.append("|" if part == "," and depth else _SPECIAL.get(part) or re.escape(part))
        depth += (part == "{") - (part == "}")
    return f"(?m)^{''.join(parts)}$"


class CommitFiles:
    """The files of a commit, and those that a push of it changed. Used by the repository's thread.

    Unknown files count as changed and as existing: those of a new branch, and those beyond the limits.
    """

    def __init__(self, repository: Repository, sha: str, before: str | None) -> None:
        self._repository = repository
        self._sha = sha
        self._before = before if before != NULL_ID else None
        self._changed: dict[str, bool] = {}
        self._existing: dict[str, bool] = {}

    def has_changed(self, patterns: Iterable[str], searches: ExpressionSearches) -> bool:
        """Whether a changed path matches one of the patterns. Each pattern is searched once. Raises SearchTooLong."""
        return any(_matches(self._changed_paths, pattern, self._changed, searches) for pattern in patterns)

    def has_any(self, patterns: Iterable[str], searches: ExpressionSearches) -> bool:
        """As `has_changed`, of all paths."""
        return any(_matches(self._paths, pattern, self._existing, searches) for pattern in patterns)

    @cached_property
    def _changed_paths(self) -> str | None:
        before = self._repository.peel_to_commit(self._before) if self._before is not None else None
        if before is None:
            return None
        try:
            found = list_changed_paths(self._repository, self._sha, before)
        except (DamagedRepository, UnknownCommit):
            return None
        return "\n".join((*found.added, *found.modified, *found.removed)) if found.is_complete else None

    @cached_property
    def _paths(self) -> str | None:
        try:
            page = trees.TreeListing(self._repository, self._sha, recursive=True).page(trees.ListingPage(MAX_LISTED_PATHS))
        except (DamagedRepository, UnknownCommit, LookupError, trees.ListingTimeout):
            return None
        return None if len(page) > MAX_LISTED_PATHS else "\n".join(entry.path for entry in page)


def _matches(paths: str | None, pattern: str, known: dict[str, bool], searches: ExpressionSearches) -> bool:
    if paths is None:
        return True
    if pattern not in known:
        expression = glob_expression(pattern)
        known[pattern] = searches.contains_line(paths, compile_expression(expression, max_length=len(expression)))
    return known[pattern]
