"""The state of one run of a plan: its context, its arguments, and the work that it has begun."""

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graph.context import Context
from graph.errors import OperationError
from graph.planner.errors import ErrorPosition, FieldError, PlanBailout, RowError
from graph.planner.ir.steps import FieldValues
from graph.planner.sql.select_builder import SelectBuilder
from graph.planner.sql.statements import PlanStatements
from graph.rules.permissions.sql_policy import viewer_values


@dataclass(slots=True)
class PlanRun:
    """One run of a plan; `arguments` are those of each field that takes any."""

    context: Context
    variables: Any
    fragments: Mapping[str, Any]
    arguments: Sequence[dict[str, Any]]
    statements: PlanStatements
    errors: list[FieldError] = field(default_factory=list)
    row_errors: list[RowError] = field(default_factory=list)

    def viewer_values(self, select_builder: SelectBuilder) -> dict[str, Any]:
        """The values of the viewer's parameters in a statement. Raises PlanBailout where it has any and there is no viewer."""
        if not select_builder.needs_viewer:
            return {}
        viewer = self.context.viewer_or_none
        if viewer is None:
            raise PlanBailout
        return viewer_values(viewer)

    def report(self, position: ErrorPosition | None, error: OperationError) -> None:
        """Adds an error of a field, whose value stays null. Raises it again below a list, where graphql-core reports it.

        `report_row` reports an error of a nullable field there.
        """
        if position is None:
            raise error
        self.errors.append(FieldError(position, error))

    def report_row(self, answer: dict[str, Any], key: str, error: OperationError) -> None:
        """Adds an error of a nullable field of one object below a list, and sets the field to null in its answer."""
        answer[key] = None
        self.row_errors.append(RowError(answer, key, error))


@dataclass(slots=True)
class PendingWork:
    """The work of the levels begun so far that must be awaited: `coroutines` complete these `values`."""

    coroutines: list[Coroutine[Any, Any, None]]
    values: list[FieldValues]

    def close(self) -> None:
        """Closes coroutines that nothing will await."""
        close_coroutines(self.coroutines)
        for values in self.values:
            close_coroutines(values)


def close_coroutines(values: Sequence[Any]) -> None:
    """Closes the coroutines among these values."""
    for value in values:
        if isinstance(value, Coroutine):
            value.close()
