"""The project that an operation looks up, and what its statement selects beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from graph.planner.errors import ErrorPosition
from graph.planner.ir.connection_step import ConnectionStep
from graph.planner.ir.relations import Relations
from graph.planner.ir.row_by_number import RowByNumber
from graph.planner.ir.row_view import RowObjects
from graph.planner.ir.selection import Selection
from graph.planner.ir.steps import BatchNode
from graph.planner.sql.parent_join import ProjectSubquery
from graph.planner.sql.statements import NodeId, next_node_id
from storage.database.statements.compiled_statements import SqlDialect


@dataclass(frozen=True, slots=True, eq=False)
class RevisionField:
    """A field of a project whose whole answer is determined by a commit and the field's arguments. `argument_name` is that of the commit.

    `key` identifies the field in the keys of a cache, which therefore hold no reference to the plan.
    """

    argument_name: str
    arguments: int
    """The index in `PlanRun.arguments`."""
    key: object = field(default_factory=object, init=False)


@dataclass(frozen=True, slots=True, eq=False)
class ProjectRoot(BatchNode):
    """The project of a path or an id, which the argument `argument_name` has.

    One row of the project or its relations are joined to its statement, or one page where nothing else is selected.
    """

    key: str
    position: ErrorPosition | None
    selection: Selection
    arguments: int
    """The index in `PlanRun.arguments`."""
    argument_name: str
    sql_dialect: SqlDialect
    joined_step: RowByNumber | Relations | ConnectionStep | None
    """The field, or the relations, that the statement of the project selects as well."""
    other_batch_steps: list[BatchNode]
    subqueries: Mapping[bool, ProjectSubquery]
    """The project of an id (False), and of a path (True)."""
    has_all_columns: bool
    """Whether all columns of the project are selected; otherwise those that the policy reads, and those that names of commits depend on."""
    column_count: int
    projects: RowObjects
    revision_field: RevisionField | None
    """The only field that is selected, a step, if it is one. It is executed with all columns of the project."""
    node_id: NodeId = field(default_factory=next_node_id, init=False)
