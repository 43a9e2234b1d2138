"""Errors of plans: those that a plan reports itself, and how it hands an operation to graphql-core, before a run or during one."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from graph.errors import OperationError

ResponsePath = tuple[str, ...]
"""The response keys from the root of the operation to a field, without list indexes."""
AnswerPath = tuple[str | int, ...]
"""The same with list indexes, as in the errors of an answer."""


class Unplannable(Exception):
    """The operation contains something that only graphql-core can execute. The message names it.

    Raised while a plan is compiled.
    """


class WrongArguments(Unplannable):
    """An argument has a constant that is not of its type, which graphql-core reports."""


class PlanBailout(Exception):
    """A run encountered a result that only graphql-core reports, such as a null in a non-null position."""


class ErrorPosition(NamedTuple):
    """The position of a field that an answer has once, which is not below a list."""

    path: ResponsePath
    null_path: ResponsePath
    """The position that an error of the field nulls: its own, or that of the nearest nullable parent; () is the data."""


class FieldError(NamedTuple):
    """An error of a field, which a plan reports without graphql-core."""

    position: ErrorPosition
    error: OperationError


class RowError(NamedTuple):
    """An error of a nullable field of one object below a list: the answer of the object, and the response key of the field."""

    answer: dict[str, Any]
    key: str
    error: OperationError


class ReportedError(NamedTuple):
    """An error as the answer has it."""

    path: AnswerPath
    error: OperationError


class PlanResult(NamedTuple):
    """The result of a plan, with the errors in the order in which they occurred, and then those below lists in that of the answer."""

    data: dict[str, Any] | None
    errors: Sequence[ReportedError]


def locate_row_errors(data: dict[str, Any], errors: Sequence[RowError]) -> list[ReportedError]:
    """The errors with the paths of their objects, each of which may have several positions.

    Raises PlanBailout for an object that is not in the answer, for example because an output format has replaced it.
    """
    by_answer: dict[int, list[RowError]] = {}
    for each in errors:
        by_answer.setdefault(id(each.answer), []).append(each)
    found, located = list[ReportedError](), set[int]()

    def walk(value: Any, path: AnswerPath) -> None:
        if isinstance(value, dict):
            for each in by_answer.get(id(value), ()):
                located.add(id(value))
                found.append(ReportedError((*path, each.key), each.error))
            for key, below in value.items():
                if isinstance(below, dict | list):
                    walk(below, (*path, key))
        else:
            for index, below in enumerate(value):
                if isinstance(below, dict | list):
                    walk(below, (*path, index))

    walk(data, ())
    if len(located) < len(by_answer):
        raise PlanBailout
    return found


def null_error_positions(data: dict[str, Any], errors: Sequence[FieldError]) -> PlanResult:
    """Nulls the positions that errors null (section 6.4.4 of the GraphQL specification).

    As in graphql-core, an error at or below a position that an earlier error has nulled is dropped. Raises PlanBailout where an output
    format has replaced an object on the path.
    """
    reported: list[ReportedError] = []
    nulled: set[ResponsePath] = set()
    for each in errors:
        path, null_path = each.position
        if any(path[:length] in nulled for length in range(len(path) + 1)):
            continue
        nulled.add(null_path)
        reported.append(ReportedError(path, each.error))
        parent: Any = data
        for key in null_path[:-1]:
            parent = parent[key]
            if not isinstance(parent, dict):
                raise PlanBailout
        if null_path:
            parent[null_path[-1]] = None
    return PlanResult(None if () in nulled else data, reported)
