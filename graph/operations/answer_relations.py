"""The relations of a mutation's object in its answer, such as the author and the labels of an issue."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from graph.context import Context


class AnswerRelations(Protocol):
    """Reads the relations of the object together with the object, before the mutation changes it: the answer then takes no statement.

    What is read so is part of the answer unless the mutation changes one of the keys by which the object refers to others, or clears the
    loaders (`Context.loaders`), because it changes what was loaded.
    """

    def add_to(self, statement: Any, context: "Context") -> Any:
        """Adds the columns of the relations to a constant statement that selects the object from its table."""
        ...

    def prime(self, row: Any, values: Sequence[Any], context: "Context") -> None:
        """Keeps the values of these columns that were read with the object."""
        ...
