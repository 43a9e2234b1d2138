"""The guard of a route: checks whether the caller may do this at all, before a parameter error is reported."""

from collections.abc import Mapping, Sequence
from typing import Any

from rest_v3.errors import ErrorEntryProtocol, ErrorResponse, forbidden_response, not_found_response, response_from_error
from rest_v3.operations import RouteOperation, SelectedField
from rest_v3.route import Route


class RouteGuard:
    """An operation of required objects and `viewerCan {…}` booleans, checked in the order of the selection."""

    def __init__(self, operation: RouteOperation) -> None:
        self.operation = operation

    def evaluate(self, route: Route, result: Any) -> ErrorResponse | None:
        """404 for a required object that is null, or its error's status; 403 for a false. The first in the operation's order decides.

        An object that cannot be requested, because the parameter that names it is missing or invalid, is skipped: its error is the 400 that
        the guard precedes.
        """
        if result.data is None:
            return response_from_error(route, result.errors[0])
        return self._find_denial(route, self.operation.root_fields, result.data, (), result.errors)

    def _find_denial(
        self,
        route: Route,
        selected: Mapping[str, SelectedField],
        data: Mapping[str, Any],
        path: tuple[str, ...],
        errors: Sequence[ErrorEntryProtocol],
    ) -> ErrorResponse | None:
        for key, part in selected.items():
            value = data.get(key)
            key_path = (*path, key)
            if value is None and part.subfields:
                error = next((each for each in errors if tuple(each.path or ())[: len(key_path)] == key_path), None)
                if error is None:
                    return not_found_response(route, part.type_name)
                if str(error.code) != "BAD_REQUEST":
                    return response_from_error(route, error)
            elif value is False:
                return forbidden_response(route)
            elif isinstance(value, dict) and (denial := self._find_denial(route, part.subfields, value, key_path, errors)) is not None:
                return denial
        return None
