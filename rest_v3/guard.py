"""The guard of a row: whether the caller may do this at all, asked before a parameter is called wrong."""

from collections.abc import Mapping, Sequence
from typing import Any

from rest_v3.errors import Problem, Refusal, forbidden, from_problem, not_found
from rest_v3.operations import Operation, Selected
from rest_v3.route import Route


class Guard:
    """An operation of things that must be there and `viewerCan {…}` booleans, asked in the order in which they stand."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation

    def judge(self, route: Route, outcome: Any) -> Refusal | None:
        """404 for a null on the way, or what its error says, 403 for a false; the first one in the operation's order decides.

        A thing that could not be asked for, because the parameter that names it is missing or unreadable, speaks against nobody:
        that is the 400 which the guard is asked about.
        """
        if outcome.data is None:
            return from_problem(route, outcome.errors[0])
        return self._look(route, self.operation.selected, outcome.data, (), outcome.errors)

    def _look(
        self, route: Route, selected: Mapping[str, Selected], data: Mapping[str, Any], way: tuple[str, ...], problems: Sequence[Problem]
    ) -> Refusal | None:
        for key, part in selected.items():
            value = data.get(key)
            here = (*way, key)
            if value is None and part.below:
                problem = next((each for each in problems if tuple(each.path or ())[: len(here)] == here), None)
                if problem is None:
                    return not_found(route, part.type_name)
                if str(problem.code) != "BAD_REQUEST":
                    return from_problem(route, problem)
            elif value is False:
                return forbidden(route)
            elif isinstance(value, dict) and (found := self._look(route, part.below, value, here, problems)) is not None:
                return found
        return None
