"""Pages of declared connections, and what is selected of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from graph.fields.declarations import ToMany
from graph.planner.errors import ErrorPosition
from graph.planner.ir.row_view import ConstantPart, RowView
from graph.planner.ir.steps import BatchNode
from graph.planner.sql.page_select import PageNeeds
from graph.planner.sql.parent_join import ParentJoin
from graph.planner.sql.select_builder import SelectBuilder
from graph.planner.sql.statements import NodeId, next_node_id


@dataclass(frozen=True, slots=True)
class CursorField:
    """`cursor` of an edge."""


@dataclass(frozen=True, slots=True)
class TotalCount:
    """`totalCount` of a connection."""


@dataclass(frozen=True, slots=True)
class PageInfoFields:
    """`pageInfo` of a connection: its (response key, field name) pairs."""

    fields: list[tuple[str, str]]

    @property
    def has_cursors(self) -> bool:
        return any(name in ("startCursor", "endCursor") for _, name in self.fields)


EdgePart = ConstantPart | CursorField | RowView
"""A view is that of `node`."""


@dataclass(frozen=True, slots=True)
class EdgesSelection:
    """`edges` of a connection, by response key."""

    parts: list[tuple[str, EdgePart]]

    @property
    def has_cursors(self) -> bool:
        return any(isinstance(part, CursorField) for _, part in self.parts)


ConnectionPart = ConstantPart | TotalCount | PageInfoFields | EdgesSelection | RowView
"""A view is that of `nodes`."""


@dataclass(frozen=True, slots=True)
class ConnectionSelection:
    """What is selected of a connection, by response key."""

    parts: list[tuple[str, ConnectionPart]]

    @property
    def needs(self) -> PageNeeds:
        """What the statement of a page selects for these parts, beside the columns of the rows."""
        return PageNeeds(self.has_total, self.has_cursors, self.has_page_info)

    @property
    def has_total(self) -> bool:
        return any(isinstance(part, TotalCount) for _, part in self.parts)

    @property
    def has_page_info(self) -> bool:
        """Whether the answer says that a page has rows behind it."""
        return any(isinstance(part, PageInfoFields) for _, part in self.parts)

    @property
    def has_cursors(self) -> bool:
        return any(isinstance(part, EdgesSelection | PageInfoFields) and part.has_cursors for _, part in self.parts)


@dataclass(frozen=True, slots=True, eq=False)
class ConnectionStep(BatchNode):
    """A page of rows for each object of a level, by one statement."""

    key: str
    position: ErrorPosition | None
    is_nullable: bool
    declared: ToMany
    arguments: int | None
    """The index in `PlanRun.arguments`."""
    select_builder: SelectBuilder
    parent_join: ParentJoin
    connected: ConnectionSelection
    subfield: str | None
    """The key of the part that replaces the connection in the answer, if any."""
    node_id: NodeId = field(default_factory=next_node_id, init=False)

    @property
    def key_attribute(self) -> str:
        """The attribute of the parents that their rows refer to."""
        return self.declared.key_attribute

    def parent_keys(self, parents: Sequence[Any]) -> list[Any]:
        """What the rows of these objects refer to; None for the list of all rows."""
        return [None] * len(parents) if self.declared.listing.parent is None else list(map(attrgetter(self.key_attribute), parents))

    @property
    def checks_policy(self) -> bool:
        """Whether the policy reads the objects."""
        return self.declared.action is not None

    @property
    def parent_is_project(self) -> bool:
        """Where the objects are projects: whether it takes no more of them than their ids."""
        return self.key_attribute == "id" and not isinstance(self.declared.listing.parent, tuple)

    @property
    def is_sqlite(self) -> bool:
        return self.select_builder.sql_dialect.is_sqlite
