"""Serializes results as JSON and rate limits as headers, for all transports."""

from typing import Any

from graph.operations.rate_limits import NO_LIMIT, RateUsage
from graph.operations.results import ErrorEntry, OperationResult

SUGGESTION_START = "Did you mean "


def serialize_error(error: ErrorEntry, request_id: str) -> dict[str, Any]:
    """Serializes one of `errors[]`. Suggestions of field names are removed, because not every caller may introspect the schema."""
    # Not by a pattern: messages repeat literals of the document, and a pattern that begins with whitespace takes quadratic time for them.
    message, has_suggestion, _ = error.message.partition(SUGGESTION_START)
    entry: dict[str, Any] = {"message": message.rstrip() if has_suggestion else message}
    if error.locations:
        entry["locations"] = error.locations
    if error.path is not None:
        entry["path"] = error.path
    entry["extensions"] = {"code": error.code.value, "requestId": request_id}
    return entry


def serialize_result(result: OperationResult, request_id: str) -> dict[str, Any]:
    """Serializes a response of the specification's section 7.1; without `data` if nothing was executed."""
    if not result.errors:
        return {"data": result.data}
    errors = [serialize_error(problem, request_id) for problem in result.errors]
    return {"errors": errors} if is_request_error(result) else {"errors": errors, "data": result.data}


def rate_headers(usage: RateUsage | None) -> dict[str, str]:
    """Returns the rate limit headers; none without a limit. `X-RateLimit-Reset` is in seconds since 1970."""
    return {name.decode("ascii"): value.decode("ascii") for name, value in raw_rate_headers(usage)}


def raw_rate_headers(usage: RateUsage | None) -> list[tuple[bytes, bytes]]:
    """Returns the rate limit headers in ASGI's format."""
    if usage is None or usage.limit == NO_LIMIT:
        return []
    return [
        (b"x-ratelimit-limit", b"%d" % usage.limit),
        (b"x-ratelimit-cost", b"%d" % usage.cost),
        (b"x-ratelimit-used", b"%d" % usage.used),
        (b"x-ratelimit-remaining", b"%d" % usage.remaining),
        (b"x-ratelimit-reset", b"%d" % int(usage.resets_at.timestamp())),
    ]


def is_request_error(result: OperationResult) -> bool:
    """Whether nothing was executed: field errors have a path, request errors have none."""
    return result.data is None and any(problem.path is None for problem in result.errors)
