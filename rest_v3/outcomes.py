"""What the outcome of a row's operation says: the value that the row gives, or why there is none."""

from dataclasses import dataclass
from typing import Any

from graphql import get_named_type, is_composite_type

from rest_v3.errors import Refusal, from_problem, from_user_errors
from rest_v3.operations import Operation, Selected
from rest_v3.route import BadRowError, Route

PARTIAL = frozenset(("NOT_FOUND", "FORBIDDEN", "UNAVAILABLE"))
"""Errors that leave a null inside an answer without spoiling it: a missing pack does not fail a page of builds."""


@dataclass(frozen=True, slots=True)
class Step:
    """A key on the way to the answer, and the noun that is missing where it is null; None where null is a lawful value."""

    key: str
    noun: str | None


class Outcomes:
    """Reads the outcomes of one row. Raises BadRowError when its operation does not ask for what it gives."""

    def __init__(self, route: Route, operation: Operation) -> None:
        self._route = route
        self._operation = operation
        self._steps, self.target = self._way()
        self.way = tuple(step.key for step in self._steps)
        """The response keys on the way to what the row gives."""

    def refusal(self, outcome: Any) -> Refusal | None:
        """The refusal that an outcome stands for, if it is one."""
        data = outcome.data
        if outcome.errors:
            problem = self._decisive(outcome)
            if problem is not None:
                return from_problem(self._route, problem)
        if self._operation.is_mutation and data is not None:
            for key in self._operation.selected:
                errors = data[key]["userErrors"]
                if errors:
                    return from_user_errors(self._route, errors, self._operation.fields)
        return None

    def _decisive(self, outcome: Any) -> Any:
        """The first error that is not a mere null inside the answer."""
        if outcome.data is None or not self._steps:
            return outcome.errors[0]
        if self.locate(outcome.data)[0] is None:
            return outcome.errors[0]
        way = list(self.way)
        for problem in outcome.errors:
            path = list(problem.path or ())
            if str(problem.code) not in PARTIAL or len(path) <= len(way) or path[: len(way)] != way:
                return problem
        return None

    def locate(self, data: Any) -> tuple[Any, str | None]:
        """The value that the row gives, and the noun of what is null on the way to it."""
        value = data
        if not self._steps:
            return None, None
        for step in self._steps:
            value = value[step.key]
            if value is None:
                return None, step.noun
        return value, None

    def _way(self) -> tuple[tuple[Step, ...], Selected | None]:
        if self._route.gives is None:
            return (), None
        steps: list[Step] = []
        selected = self._operation.selected
        target: Selected | None = None
        for key in self._route.gives.split("."):
            if key not in selected:
                raise BadRowError(f"{self._route.call}: {self._operation.name} does not ask for {self._route.gives}")
            target = selected[key]
            named = get_named_type(target.type)
            steps.append(Step(key, named.name if is_composite_type(named) else None))
            selected = target.below
        return tuple(steps), target
