"""Which of the viewer's issues and merge requests a list has."""

from enum import Enum
from typing import Annotated, Any

import strawberry
from sqlmodel import col

from graph.context import Context


@strawberry.enum(description="How issues and merge requests are related to the viewer.")
class WorkScope(Enum):
    CREATED = "created"
    ASSIGNED = "assigned"


SCOPE_ARGUMENT = {
    "scope": (Annotated[WorkScope, strawberry.argument(description="How they are related to the viewer.")], WorkScope.CREATED)
}
"""The argument `scope` of a connection."""


def is_in_scope(context: Context, table: Any, scope: WorkScope) -> Any:
    """The condition that rows of issues or of merge requests are in this scope for the viewer."""
    column = table.author_id if scope is WorkScope.CREATED else table.assignee_id
    return col(column) == context.viewer.id
