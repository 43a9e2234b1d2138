"""Answers fields of a project that a commit determines from a cache, as long as the viewer and the refs of the project stay as they are."""

import re
from collections.abc import Hashable
from typing import Any

from graph.operations.git_answer_cache import GitAnswer
from graph.planner.ir.project_root import RevisionField
from graph.planner.run.state import PlanRun
from graph.rules.permissions.sql_policy import viewer_values
from storage.database.sessions import ReadSession

_ABBREVIATED_ID = re.compile("[0-9a-fA-F]{7,39}")
"""It may be ambiguous as soon as there are more objects, whatever the refs are."""


class CachedAnswer:
    """The answer of a field in one run: `found` is None if the field is to be executed, whose answer `put` then stores.

    The key has all that the policy and the field depend on: the viewer, the columns of the project with the viewer's levels, and the
    arguments. So a viewer who may no longer read the code, a project that was deleted and a branch that has moved have no entry.
    """

    __slots__ = ("_context", "_key", "_remaining", "found")

    def __init__(self, field: RevisionField, run: PlanRun, row: Any) -> None:
        """Raises TextLimitExceeded."""
        context = self._context = run.context
        self.found: GitAnswer | None = None
        self._key = _make_key(field, run, row)
        budget = context.budget
        self._remaining = budget.remaining if budget is not None else 0
        if self._key is not None and (found := context.services.git_answers.get(self._key)) is not None:
            self.found = found
            if budget is not None:
                budget.consume(found.text_length, found.max_text_length)

    def put(self, value: Any) -> None:
        """Stores the answer of the field, which nobody changes from now on; the field has reported no error."""
        budget = self._context.budget
        if self._key is not None and budget is not None:
            answer = GitAnswer(value, self._remaining - budget.remaining, budget.max_row_length)
            self._context.services.git_answers.put(self._key, answer)


def _make_key(field: RevisionField, run: PlanRun, row: Any) -> Hashable | None:
    """The key of the answer; None if a decision of the policy is recorded, or if the name or the refs may mean another commit later."""
    context, arguments = run.context, run.arguments[field.arguments]
    revision = arguments[field.argument_name]
    # An operation that writes may see refs that are never committed.
    if context.policy_context is not context or not isinstance(context.session, ReadSession):
        return None
    if revision is not None and _ABBREVIATED_ID.fullmatch(revision):
        return None
    return field.key, *viewer_values(context.viewer).values(), tuple(row), *arguments.values()
