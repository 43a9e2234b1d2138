"""What an outcome is as JSON, and in headers, for all doors."""

import re
from typing import Any

from graph.outcomes import Outcome, Problem
from graph.rates import NO_LIMIT, Charge

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


def rate_headers(charge: Charge | None) -> dict[str, str]:
    """How a viewer stands, as headers; none where nothing is limited. `X-RateLimit-Reset` is in seconds since 1970."""
    return {name.decode("ascii"): value.decode("ascii") for name, value in rate_pairs(charge)}


def rate_pairs(charge: Charge | None) -> list[tuple[bytes, bytes]]:
    """The same as ASGI has them."""
    if charge is None or charge.limit == NO_LIMIT:
        return []
    return [
        (b"x-ratelimit-limit", b"%d" % charge.limit),
        (b"x-ratelimit-cost", b"%d" % charge.cost),
        (b"x-ratelimit-used", b"%d" % charge.used),
        (b"x-ratelimit-remaining", b"%d" % charge.remaining),
        (b"x-ratelimit-reset", b"%d" % int(charge.resets_at.timestamp())),
    ]


def never_ran(outcome: Outcome) -> bool:
    """Whether nothing was executed: an error of a field has the field's path, one of the request has none."""
    return outcome.data is None and any(problem.path is None for problem in outcome.errors)
