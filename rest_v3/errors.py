"""From codes to statuses and bodies: one table.

The graph names what went wrong (DECISIONS 19); here every code has its v3 status and text (wire-facts 2.1, 2.2). Every
body is an object `{"message": text | {field: [text]}}`. A row overrides a line of the table by its `errors`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol

from rest_v3.route import Route

STATUSES: Mapping[str, int] = {
    "UNAUTHENTICATED": 401,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "LIMIT_EXCEEDED": 429,
    "UNAVAILABLE": 503,
    "BAD_REQUEST": 400,
    "PERSISTED_QUERY_NOT_SUPPORTED": 400,
    "INTERNAL": 500,
    "INVALID": 400,
    "REQUIRED": 400,
    "TAKEN": 400,
    "CONFLICT": 409,
    "NOT_ALLOWED": 405,
    "NOT_MERGEABLE": 405,
    "NOT_SET": 406,
    "TOO_LARGE": 413,
}
"""Every code the graph may answer, and its status."""

SPOKEN = frozenset(("CONFLICT", "NOT_MERGEABLE", "NOT_SET"))
"""Codes whose text is the graph's own sentence ("Label already exists", "Branch cannot be merged")."""

NAMED = frozenset(("Project", "Commit"))
"""Nouns that a 404 names on every row."""

RETRY_AFTER = {429: "60", 503: "1"}
"""Seconds to wait, where the graph does not say."""


class Problem(Protocol):
    """What the endpoint reads of graph.execute's Problem."""

    @property
    def code(self) -> Any: ...
    @property
    def message(self) -> str: ...
    @property
    def path(self) -> Any: ...
    @property
    def subject(self) -> str | None: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def retry_after(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer other than success: status, body and the headers that belong to it."""

    status: int
    body: object
    headers: Mapping[str, str] = field(default_factory=dict)


def refusal(status: int, message: object | None = None, headers: Mapping[str, str] | None = None) -> Refusal:
    """An error with its usual text: `refusal(401)` says {"message": "401 Unauthorized"}."""
    return Refusal(status, {"message": message or standard_text(status)}, headers or {})


def standard_text(status: int) -> str:
    """The status line's text, but for the two that the server of the time spelled its own way."""
    if status == HTTPStatus.NOT_FOUND:
        return "404 Not found"
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return "413 Request Entity Too Large"
    return f"{status} {HTTPStatus(status).phrase}"


def not_given(name: str) -> str:
    """The message for a required parameter that is missing or blank."""
    return f'400 (Bad request) "{name}" not given'


def from_problem(route: Route, problem: Problem) -> Refusal:
    """The answer for an entry of the operation's `errors`."""
    code = str(problem.code)
    status = STATUSES.get(code, 500)
    message: object = standard_text(status)
    if code == "NOT_FOUND":
        message = not_found_text(route, problem.subject, problem.reason)
    elif code == "FORBIDDEN" and problem.reason:
        message = f"403 Forbidden - {problem.reason}"
    headers = {}
    if status in RETRY_AFTER:
        headers["Retry-After"] = str(problem.retry_after or RETRY_AFTER[status])
    return _overridden(route, code, status, message, headers)


def not_found(route: Route, subject: str | None) -> Refusal:
    """The answer where something on the way to the answer is null."""
    return _overridden(route, "NOT_FOUND", 404, not_found_text(route, subject), {})


def forbidden(route: Route) -> Refusal:
    """The answer where a guard says no."""
    return _overridden(route, "FORBIDDEN", 403, standard_text(403), {})


def not_found_text(route: Route, subject: str | None, reason: str | None = None) -> str:
    if subject in NAMED:
        return f"404 {subject} Not Found"
    missing = route.missing.get(subject or "") if isinstance(route.missing, Mapping) else route.missing
    if missing is None:
        return f"404 Not Found - {reason}" if reason else "404 Not found"
    return " ".join(("404", missing, "Not Found")) if missing else "404 Not Found"


def unreadable(route: Route, code: str, message: object) -> Refusal:
    """The answer for parameters that are missing (REQUIRED) or cannot be read (INVALID), before the graph is asked."""
    return _overridden(route, code, 400, message, {})


def from_user_errors(route: Route, errors: Sequence[Mapping[str, Any]], fields: Mapping[str, str]) -> Refusal:
    """The answer for a mutation's userErrors.

    `fields` are the parameters by the names of the input fields they fill. The first error that is not about a value
    decides; errors about values are told together, as {"message": {"title": ["is too long"]}}.
    """
    first = next((error for error in errors if error["code"] not in ("INVALID", "TAKEN")), errors[0])
    code = str(first["code"])
    status = STATUSES.get(code, 500)
    message: object
    if code in ("INVALID", "TAKEN"):
        message = _messages(route, errors, fields)
    elif code == "REQUIRED":
        message = not_given(field_name(route, first.get("field"), fields))
    elif code in SPOKEN and first.get("message"):
        message = first["message"]
    else:
        message = standard_text(status)
    words = {"Field": field_name(route, first.get("field"), fields).capitalize(), "message": str(first["message"])}
    return _overridden(route, code, status, message, {}, words)


def field_name(route: Route, name: str | None, fields: Mapping[str, str]) -> str:
    """The v3 name of a field: what the row says, else the parameter that filled it, else its snake case."""
    if not name:
        return "base"
    return route.fields.get(name) or fields.get(name) or re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def _messages(route: Route, errors: Sequence[Mapping[str, Any]], fields: Mapping[str, str]) -> object:
    gathered: dict[str, Any] = {}
    for error in errors:
        if error["code"] not in ("INVALID", "TAKEN"):
            continue
        name, message, value = field_name(route, error.get("field"), fields), error["message"], error.get("value")
        if name in route.by_value and value is not None:
            told = gathered.setdefault(name, {}).setdefault(value, {})
            name, message = route.by_value[name], message.removeprefix(f"{value!r} ")
        else:
            told = gathered
        told.setdefault(name, []).append(message)
    if list(gathered) == ["base"]:
        return "; ".join(gathered["base"])
    return gathered


def _overridden(
    route: Route, code: str, status: int, message: object, headers: Mapping[str, str], words: Mapping[str, str] | None = None
) -> Refusal:
    override = route.errors.get(code)
    if override is None:
        return Refusal(status, {"message": message}, headers)
    if isinstance(override, tuple):
        status, said = override
        if words is not None and isinstance(said, str):
            said = said.format_map(words)
        return Refusal(status, said if status < 400 else {"message": said}, headers)
    if override < 400:
        return Refusal(override, None, headers)
    # A status that the row chose brings its own words, unless the message explains a value.
    reworded = isinstance(message, str) and message == standard_text(status)
    return Refusal(override, {"message": standard_text(override) if reworded else message}, headers)
