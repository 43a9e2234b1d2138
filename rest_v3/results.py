"""Reads the result of a route's operation: the value at its result path, or the error response."""

from dataclasses import dataclass
from typing import Any

from graphql import get_named_type, is_composite_type

from rest_v3.errors import ErrorResponse, response_from_error, response_from_user_errors
from rest_v3.operations import RouteOperation, SelectedField
from rest_v3.route import InvalidRouteError, Route

PARTIAL_RESULT_CODES = frozenset(("NOT_FOUND", "FORBIDDEN", "UNAVAILABLE"))
"""Errors that may leave a null inside a response: a missing pack does not fail a page of builds."""


@dataclass(frozen=True, slots=True)
class PathStep:
    """A key of the result path, and the noun that is missing where it is null; None where null is valid."""

    key: str
    missing_noun: str | None


class RouteResultReader:
    """Reads the results of one route. Raises InvalidRouteError when its operation does not select the result path."""

    def __init__(self, route: Route, operation: RouteOperation) -> None:
        self._route = route
        self._operation = operation
        self._steps, self.target = self._resolve_path()
        self.path = tuple(step.key for step in self._steps)
        """The response keys of the result path."""

    def error_of(self, result: Any) -> ErrorResponse | None:
        """The error response of a result, if it has an error."""
        data = result.data
        if result.errors:
            error = self._decisive_error(result)
            if error is not None:
                return response_from_error(self._route, error)
        if self._operation.is_mutation and data is not None:
            for key in self._operation.root_fields:
                errors = data[key]["userErrors"]
                if errors:
                    return response_from_user_errors(self._route, errors, self._operation.variables_by_input_field)
        return None

    def _decisive_error(self, result: Any) -> Any:
        """The first error that is more than a null inside the response."""
        if result.data is None or not self._steps:
            return result.errors[0]
        if self.locate(result.data)[0] is None:
            return result.errors[0]
        result_path = list(self.path)
        for error in result.errors:
            path = list(error.path or ())
            if str(error.code) not in PARTIAL_RESULT_CODES or len(path) <= len(result_path) or path[: len(result_path)] != result_path:
                return error
        return None

    def locate(self, data: Any) -> tuple[Any, str | None]:
        """The value at the result path, and the noun of a null on the path."""
        value = data
        if not self._steps:
            return None, None
        for step in self._steps:
            value = value[step.key]
            if value is None:
                return None, step.missing_noun
        return value, None

    def _resolve_path(self) -> tuple[tuple[PathStep, ...], SelectedField | None]:
        if self._route.result_path is None:
            return (), None
        steps: list[PathStep] = []
        selected = self._operation.root_fields
        target: SelectedField | None = None
        for key in self._route.result_path.split("."):
            if key not in selected:
                raise InvalidRouteError(f"{self._route.call}: {self._operation.name} does not select {self._route.result_path}")
            target = selected[key]
            named = get_named_type(target.type)
            steps.append(PathStep(key, named.name if is_composite_type(named) else None))
            selected = target.subfields
        return tuple(steps), target


def read_value(data: Any, path: str) -> Any:
    """The value at a path of keys: `read_value({"project": {"fileLimit": 9}}, "project.fileLimit")` is 9."""
    for key in path.split("."):
        data = data[key]
    return data
