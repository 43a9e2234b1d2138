"""Single rows of a project, by number or id."""

from dataclasses import dataclass, field

from graph.fields.declarations import ByNumber
from graph.planner.errors import ErrorPosition
from graph.planner.ir.row_view import RowView
from graph.planner.ir.steps import BatchNode
from graph.planner.sql.select_builder import SelectBuilder
from graph.planner.sql.statements import NodeId, next_node_id


@dataclass(frozen=True, slots=True, eq=False)
class RowByNumber(BatchNode):
    """One row for each object of a level, which are projects, by one statement with everything that is selected of them."""

    key: str
    position: ErrorPosition | None
    declared: ByNumber
    arguments: int | None
    """The index in `PlanRun.arguments`."""
    select_builder: SelectBuilder
    view: RowView
    project_id_index: int
    """The index of a row's project in the statement."""
    node_id: NodeId = field(default_factory=next_node_id, init=False)
