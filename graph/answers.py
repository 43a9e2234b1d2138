"""What an outcome is as JSON, for both doors."""

import re
from typing import Any

from graph.execute import Outcome, Problem

SUGGESTION = re.compile(r"\s*Did you mean .*\Z", re.DOTALL)


def entry_of(problem: Problem, request_id: str) -> dict[str, Any]:
    """One of `errors[]`. Names of fields that would fit are never suggested, since not everybody may introspect."""
    entry: dict[str, Any] = {"message": SUGGESTION.sub("", problem.message)}
    if problem.locations:
        entry["locations"] = problem.locations
    if problem.path is not None:
        entry["path"] = problem.path
    entry["extensions"] = {"code": problem.code.value, "requestId": request_id}
    return entry


def result_of(outcome: Outcome, request_id: str) -> dict[str, Any]:
    """The response of the specification's section 7.1; without `data` where nothing was executed."""
    if not outcome.errors:
        return {"data": outcome.data}
    errors = [entry_of(problem, request_id) for problem in outcome.errors]
    return {"errors": errors} if never_ran(outcome) else {"errors": errors, "data": outcome.data}


def never_ran(outcome: Outcome) -> bool:
    """Whether nothing was executed: an error of a field has the field's path, one of the request has none."""
    return outcome.data is None and any(problem.path is None for problem in outcome.errors)
