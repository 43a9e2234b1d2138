"""The guard of a row: whether the caller may do this at all, asked before a parameter is called wrong."""

from collections.abc import Mapping
from typing import Any

from rest_v3.errors import Refusal, forbidden, not_found
from rest_v3.operations import Operation, Selected
from rest_v3.route import Route


class Guard:
    """An operation of `viewerCan {…}` booleans, asked in the order in which they stand."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation

    def judge(self, route: Route, data: Mapping[str, Any]) -> Refusal | None:
        """404 for a null on the way, 403 for a false; the first one in the operation's order decides."""
        return self._look(route, self.operation.selected, data)

    def _look(self, route: Route, selected: Mapping[str, Selected], data: Mapping[str, Any]) -> Refusal | None:
        for key, part in selected.items():
            value = data.get(key)
            if part.below:
                if value is None:
                    return not_found(route, part.type_name)
                if isinstance(value, dict) and (found := self._look(route, part.below, value)) is not None:
                    return found
            elif value is False:
                return forbidden(route)
        return None
