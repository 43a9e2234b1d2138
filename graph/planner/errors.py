"""Errors of plans: those that a plan reports itself, and how it hands an operation to graphql-core, before a run or during one."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from graph.errors import OperationError

ResponsePath = tuple[str, ...]
"""The response keys from the root of the operation to a field, without list indexes."""


class Unplannable(Exception):
    """The operation contains something that only graphql-core can execute. The message names it.

    Raised while a plan is compiled.
    """


class WrongArguments(Unplannable):
    """An argument has a constant that is not of its type, which graphql-core reports."""


class PlanBailout(Exception):
    """A run met what only graphql-core reports, such as a null in a non-null position."""


class ErrorPosition(NamedTuple):
    """The position of a field that an answer has once, which is not below a list."""

    path: ResponsePath
    null_path: ResponsePath
    """The position that an error of the field nulls: its own, or that of the nearest nullable parent; () is the data."""


class FieldError(NamedTuple):
    """An error of a field, which a plan reports without graphql-core."""

    position: ErrorPosition
    error: OperationError


class PlanResult(NamedTuple):
    """The result of a plan, with the errors in the order in which they occurred."""

    data: dict[str, Any] | None
    errors: Sequence[FieldError]


def null_error_positions(data: dict[str, Any], errors: Sequence[FieldError]) -> PlanResult:
    """Nulls the positions that errors null (section 6.4.4 of the GraphQL specification).

    As in graphql-core, an error at or below a position that an earlier error has nulled is dropped. Raises PlanBailout where an output
    format has replaced an object on the path.
    """
    reported: list[FieldError] = []
    nulled: set[ResponsePath] = set()
    for each in errors:
        path, null_path = each.position
        if any(path[:length] in nulled for length in range(len(path) + 1)):
            continue
        nulled.add(null_path)
        reported.append(each)
        parent: Any = data
        for key in null_path[:-1]:
            parent = parent[key]
            if not isinstance(parent, dict):
                raise PlanBailout
        if null_path:
            parent[null_path[-1]] = None
    return PlanResult(None if () in nulled else data, reported)
