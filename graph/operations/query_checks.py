"""What the graph found out about a query and the values of its variables, for callers that send both again."""

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graph.documents.documents import ParsedOperation


class QueryChecks:
    """That a query is within the limits, its rows, and the coerced values of its variables. None of it depends on the viewer or on rows.

    It is empty until a query with a plan has run, and again when its document was dropped from its cache meanwhile. It has no mutations,
    whose variables may be passwords.
    """

    __slots__ = ("_operation", "rows", "values")

    def __init__(self) -> None:
        self._operation: weakref.ref[ParsedOperation] | None = None
        self.rows = 0
        self.values: Any = None

    @property
    def is_complete(self) -> bool:
        return self.values is not None

    def hold_for(self, operation: "ParsedOperation") -> bool:
        """Whether the checks are complete, and those of this parsed operation."""
        return self.values is not None and self._operation is not None and self._operation() is operation

    def begin(self, operation: "ParsedOperation", rows: int) -> None:
        """Begins the checks of a query within the limits; its values follow."""
        self._operation, self.rows, self.values = weakref.ref(operation), rows, None
