"""The selection of one type: what a plan reads off its objects, and the steps for the rest."""

from dataclasses import dataclass

from graph.planner.codegen.object_serializer import ObjectSerializer
from graph.planner.ir.steps import BatchNode, FieldStep


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """What is selected of the objects of one type.

    `steps` are evaluated for each object, `batch_steps` for all of them at once.
    """

    serialize: ObjectSerializer
    steps: list[FieldStep]
    batch_steps: list[BatchNode]
    column_keys: tuple[str, ...] = ()
    """The response keys that `serialize` fills in, for explanations."""

    @property
    def is_async(self) -> bool:
        return bool(self.steps or self.batch_steps)
