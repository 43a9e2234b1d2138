"""The relations of objects that a resolver returned."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from graph.planner.ir.row_view import RowView
from graph.planner.ir.steps import BatchNode, FieldStep
from graph.planner.sql.select_builder import SelectBuilder
from graph.planner.sql.statements import NodeId, next_node_id


@dataclass(frozen=True, slots=True, eq=False)
class Relations(BatchNode):
    """The parts of `view` for each object of a level, by one statement. `id_index` is the index of a row's own id.

    A mutation may have deleted the object that it returns; `fallback_steps` then load its relations. `key_attributes` are the attributes
    of an object on which its relations depend, so that they can be read before the mutation; None if they depend on more.
    """

    select_builder: SelectBuilder
    view: RowView
    id_index: int
    fallback_steps: Sequence[FieldStep] = ()
    key_attributes: tuple[str, ...] | None = None
    node_id: NodeId = field(default_factory=next_node_id, init=False)

    @property
    def keys(self) -> set[str]:
        return {key for key, _ in self.view.parts}
