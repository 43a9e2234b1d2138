"""The table from error codes to v3 statuses and bodies.

The graph returns a code (docs/decisions.md 19); here every code has its v3 status and message (docs/wire-facts.md 2.1, 2.2). Every body is
an object `{"message": string | {field: [string]}}`. A route overrides entries of the table with its `errors`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol

from rest_v3.route import Route

STATUS_BY_CODE: Mapping[str, int] = {
    "UNAUTHENTICATED": 401,
    "FORBIDDEN": 403,
    "INSUFFICIENT_SCOPE": 403,
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
"""Every error code of the graph, and its status."""

CODES_WITH_OWN_MESSAGE = frozenset(("CONFLICT", "NOT_MERGEABLE", "NOT_SET"))
"""Codes whose message is the graph's own ("Label already exists", "Branch cannot be merged")."""

NOUNS_NAMED_IN_404 = frozenset(("Project", "Commit"))
"""Nouns that a 404 names on every route."""

RETRY_AFTER_SECONDS = {429: "60", 503: "1"}
"""Seconds to wait, where the graph returns no number."""


class ErrorEntryProtocol(Protocol):
    """The interface of graph.operations.execution's error entries."""

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
class ErrorResponse:
    """A response other than success: status, body and headers."""

    status: int
    body: object
    headers: Mapping[str, str] = field(default_factory=dict)


def error_response(status: int, message: object | None = None, headers: Mapping[str, str] | None = None) -> ErrorResponse:
    """An error with its standard message: `error_response(401)` has {"message": "401 Unauthorized"}."""
    return ErrorResponse(status, {"message": message or standard_message(status)}, headers or {})


def standard_message(status: int) -> str:
    """The reason phrase of a status, except for the two that GitLab writes differently."""
    if status == HTTPStatus.NOT_FOUND:
        return "404 Not found"
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return "413 Request Entity Too Large"
    return f"{status} {HTTPStatus(status).phrase}"


def missing_parameter_message(name: str) -> str:
    """The message for a required parameter that is missing or blank."""
    return f'400 (Bad request) "{name}" not given'


def response_from_error(route: Route, error: ErrorEntryProtocol) -> ErrorResponse:
    """The response for an entry of the operation's `errors`."""
    code = str(error.code)
    status = STATUS_BY_CODE.get(code, 500)
    message: object = standard_message(status)
    if code == "NOT_FOUND":
        message = not_found_message(route, error.subject, error.reason)
    elif code in ("FORBIDDEN", "INSUFFICIENT_SCOPE") and error.reason:
        message = f"403 Forbidden - {error.reason}"
    elif code == "LIMIT_EXCEEDED" and error.retry_after is None:
        # Waiting does not help: the message says what to request instead.
        message = error.message or message
    headers = {}
    if status in RETRY_AFTER_SECONDS:
        headers["Retry-After"] = str(error.retry_after or RETRY_AFTER_SECONDS[status])
    return _apply_override(route, code, status, message, headers, {"Field": "", "message": error.message}, subject=error.subject)


def not_found_response(route: Route, subject: str | None) -> ErrorResponse:
    """The response when an object on the result path is null."""
    return _apply_override(route, "NOT_FOUND", 404, not_found_message(route, subject), {}, subject=subject)


def forbidden_response(route: Route) -> ErrorResponse:
    """The response when a guard denies permission."""
    return _apply_override(route, "FORBIDDEN", 403, standard_message(403), {})


def not_found_message(route: Route, subject: str | None, reason: str | None = None) -> str:
    if subject in NOUNS_NAMED_IN_404:
        return f"404 {subject} Not Found"
    missing = route.not_found_noun.get(subject or "") if isinstance(route.not_found_noun, Mapping) else route.not_found_noun
    if missing is None:
        return f"404 Not Found - {reason}" if reason else "404 Not found"
    return " ".join(("404", missing, "Not Found")) if missing else "404 Not Found"


def invalid_parameters_response(route: Route, code: str, message: object) -> ErrorResponse:
    """The response for parameters that are missing (REQUIRED) or invalid (INVALID), found before the operation runs."""
    return _apply_override(route, code, 400, message, {})


def response_from_user_errors(route: Route, errors: Sequence[Mapping[str, Any]], fields: Mapping[str, str]) -> ErrorResponse:
    """The response for a mutation's userErrors.

    `fields` maps input fields to the names of their parameters. The first error that is not about a value decides; errors about values are
    reported together, as {"message": {"title": ["is too long"]}}.
    """
    first = next((error for error in errors if error["code"] not in ("INVALID", "TAKEN")), errors[0])
    code = str(first["code"])
    status = STATUS_BY_CODE.get(code, 500)
    message: object
    if code in ("INVALID", "TAKEN"):
        message = _collect_messages(route, errors, fields)
    elif code == "REQUIRED":
        message = missing_parameter_message(v3_field_name(route, first.get("field"), fields))
    elif code in CODES_WITH_OWN_MESSAGE and first.get("message"):
        message = first["message"]
    else:
        message = standard_message(status)
    placeholders = {"Field": v3_field_name(route, first.get("field"), fields).capitalize(), "message": str(first["message"])}
    return _apply_override(route, code, status, message, {}, placeholders, subject=first.get("field"))


def v3_field_name(route: Route, name: str | None, fields: Mapping[str, str]) -> str:
    """The v3 name of a field: the route's own name, else the parameter that filled it, else its name in snake case."""
    if not name:
        return "base"
    return route.error_field_names.get(name) or fields.get(name) or re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def _collect_messages(route: Route, errors: Sequence[Mapping[str, Any]], fields: Mapping[str, str]) -> object:
    messages: dict[str, Any] = {}
    for error in errors:
        if error["code"] not in ("INVALID", "TAKEN"):
            continue
        name, message, value = v3_field_name(route, error.get("field"), fields), error["message"], error.get("value")
        if name in route.errors_by_value and value is not None:
            target = messages.setdefault(name, {}).setdefault(value, {})
            name, message = route.errors_by_value[name], message.removeprefix(f"{value!r} ")
        else:
            target = messages
        target.setdefault(name, []).append(message)
    if list(messages) == ["base"]:
        return "; ".join(messages["base"])
    return messages


def _apply_override(
    route: Route,
    code: str,
    status: int,
    message: object,
    headers: Mapping[str, str],
    placeholders: Mapping[str, str] | None = None,
    subject: str | None = None,
) -> ErrorResponse:
    override = route.errors.get(f"{code} {subject}", route.errors.get(code))
    if override is None:
        return ErrorResponse(status, {"message": message}, headers)
    if isinstance(override, tuple):
        status, override_message = override
        if placeholders is not None:
            override_message = _fill_in(override_message, placeholders)
        return ErrorResponse(status, override_message if status < 400 else {"message": override_message}, headers)
    if override < 400:
        return ErrorResponse(override, None, headers)
    # A status that the route chose has its own message, unless the error explains a value.
    has_standard_message = isinstance(message, str) and message == standard_message(status)
    return ErrorResponse(override, {"message": standard_message(override) if has_standard_message else message}, headers)


def _fill_in(message: object, placeholders: Mapping[str, str]) -> object:
    """The message of an override, a string or a list of strings, with its placeholders replaced."""
    if isinstance(message, str):
        return message.format_map(placeholders)
    return [_fill_in(part, placeholders) for part in message] if isinstance(message, list) else message
