"""Keyset connections: pages that stay exact while rows are inserted.

A cursor holds the ordering's name and the values of its columns in one row, ending with the id, so a page continues exactly after that row.
`offset` beside `first` serves the page numbers of v3.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any, Generic, TypeVar

import strawberry
from sqlalchemy import ColumnElement, Select, and_, func, or_, over, select
from sqlmodel import AutoString, col

from graph.context import Context
from graph.cost import LARGEST_PAGE, PAGE
from graph.cursors import cursor_of, place_of
from graph.errors import BadRequest, LimitExceeded
from graph.rules.naming import storable

T = TypeVar("T")

DEFAULT_SIZE = PAGE
MAXIMUM_SIZE = LARGEST_PAGE
MAXIMUM_OFFSET = 2**31 - 1


@strawberry.enum(description="Which way a list is sorted.")
class OrderDirection(Enum):
    ASC = "asc"
    DESC = "desc"


@strawberry.type(description="Where a page lies in its list.")
class PageInfo:
    has_next_page: bool = strawberry.field(description="Whether the list goes on after this page.")
    has_previous_page: bool = strawberry.field(description="Whether the list has rows before this page.")
    start_cursor: str | None = strawberry.field(description="The cursor of the first row; null on an empty page.")
    end_cursor: str | None = strawberry.field(description="The cursor of the last row; null on an empty page.")


@strawberry.type(description="A row of a list with its cursor.")
class Edge(Generic[T]):
    cursor: str = strawberry.field(description="Pass it as `after` or `before` to continue from this row.")
    node: T = strawberry.field(description="The row.")


@strawberry.type(description="A page of a list.")
class Connection(Generic[T]):
    nodes: list[T] = strawberry.field(description="The rows of the page.")
    edges: list[Edge[T]] = strawberry.field(description="The rows with their cursors.")
    page_info: PageInfo = strawberry.field(description="Where the page lies.")
    total_count: int = strawberry.field(description="How many rows the whole list has; counted only when asked for.")


@strawberry.type(name="Connection", description="A page of a list whose length may not be known.")
class UncountedConnection(Generic[T]):
    nodes: list[T] = strawberry.field(description="The rows of the page.")
    edges: list[Edge[T]] = strawberry.field(description="The rows with their cursors.")
    page_info: PageInfo = strawberry.field(description="Where the page lies.")
    total_count: int | None = strawberry.field(
        description="How many rows the whole list has; null where counting them would cost the whole list."
    )


@dataclass(frozen=True)
class Order:
    """A list's ordering: a column of the table and a direction; the id breaks ties in the same direction.

    `first` is a column of truth values: rows where it is true stand before all others, whatever the direction.
    """

    column: Any
    descending: bool = False
    first: Any = None

    @property
    def name(self) -> str:
        leading = "" if self.first is None else f"{self.first.key}+"
        return f"{leading}{'-' if self.descending else ''}{self.column.key}"

    def columns(self, table: Any) -> list[Any]:
        identity = col(table.id)
        leading = [] if self.first is None else [col(self.first)]
        return [*leading, identity] if self.column.key == "id" else [*leading, col(self.column), identity]


@dataclass(frozen=True)
class Window:
    """The part of a list that is asked for, checked. `size` rows, from the start or, `backward`, from the end."""

    size: int
    after: str | None = None
    before: str | None = None
    backward: bool = False
    offset: int = 0

    @classmethod
    def of(
        cls, first: int | None, after: str | None, last: int | None = None, before: str | None = None, offset: int | None = None
    ) -> "Window":
        """Raises BadRequest for arguments that contradict each other, LimitExceeded for more than 100 rows."""
        if first is not None and last is not None:
            raise BadRequest("Give `first` or `last`, not both.")
        size = first if first is not None else last if last is not None else DEFAULT_SIZE
        if size < 0:
            raise BadRequest("`first` and `last` cannot be negative.")
        if size > MAXIMUM_SIZE:
            raise LimitExceeded(f"A page has at most {MAXIMUM_SIZE} rows; ask for `first: {MAXIMUM_SIZE}` and continue with `after`.")
        if offset is not None and (offset < 0 or offset > MAXIMUM_OFFSET or after or before or last is not None):
            raise BadRequest("`offset` goes with `first` alone, and is not negative.")
        return cls(size, after, before, last is not None, offset or 0)


@dataclass
class Page:
    """What a connection resolves to. `count` is called only when `totalCount` is asked for; None where the list is not counted."""

    nodes: Sequence[Any]
    has_next: bool
    has_previous: bool
    cursor: Callable[[Any], str]
    count: Callable[[], int | Awaitable[int]] | None = None
    ends: tuple[Any, Any] | None = None
    """The first and the last row, where they are not those of `nodes`."""

    def showing(self, nodes: Sequence[Any]) -> "Page":
        """The page with some of its rows left out; it begins and ends where it did, so that its neighbours join on."""
        return replace(self, nodes=nodes, ends=self.ends or ((self.nodes[0], self.nodes[-1]) if self.nodes else None))

    @property
    def edges(self) -> list[Edge[Any]]:
        return [Edge(cursor=self.cursor(node), node=node) for node in self.nodes]

    @property
    def page_info(self) -> PageInfo:
        first, last = self.ends or ((self.nodes[0], self.nodes[-1]) if self.nodes else (None, None))
        return PageInfo(
            has_next_page=self.has_next,
            has_previous_page=self.has_previous,
            start_cursor=self.cursor(first) if first is not None else None,
            end_cursor=self.cursor(last) if last is not None else None,
        )

    @property
    def total_count(self) -> int | Awaitable[int] | None:
        return self.count() if self.count is not None else None


@dataclass(frozen=True)
class Listing:
    """A list of one table's rows: which, in what order. `parent` is the column by which rows hang on different parents, if they do;
    a pair of columns where it takes both to name one."""

    table: Any
    order: Order
    conditions: tuple[ColumnElement[bool], ...] = ()
    parent: Any = None

    def where(self, *conditions: Any) -> "Listing":
        return replace(self, conditions=(*self.conditions, *conditions))

    def cursor(self, row: Any) -> str:
        return self.cursor_of([getattr(row, column.key) for column in self.order.columns(self.table)])

    def cursor_of(self, values: Iterable[Any]) -> str:
        """The cursor of a row of which the columns of the ordering have these values."""
        return cursor_of(self.order.name, *map(_spell, values))

    def position(self, cursor: str) -> list[Any]:
        """The values of the ordering's columns in the cursor's row. Raises BadRequest for what is no cursor of this list."""
        columns = self.order.columns(self.table)

        def read(*values: Any) -> list[Any]:
            return [_parse(value, _kind_of(column.type)) for value, column in zip(values, columns, strict=True)]

        return place_of(cursor, self.order.name, read, of="this list in this order")

    def beyond(self, values: list[Any], *, later: bool) -> ColumnElement[bool]:
        """The condition that a row stands later (or earlier) in the list than the row of these values of the ordering's columns.

        They may be parameters of a statement, but for the truth value of an ordering's `first`.
        """
        columns = self.order.columns(self.table)
        if self.order.first is None:
            return self._after_values(columns, values, later=later)
        (flag, *columns), (value, *values) = columns, values
        beyond = and_(flag.is_(value), self._after_values(columns, values, later=later))
        return or_(flag.is_(not value), beyond) if value is later else beyond

    def _after_values(self, columns: list[Any], values: list[Any], *, later: bool) -> ColumnElement[bool]:
        greater = later != self.order.descending
        identity = columns[-1] > values[-1] if greater else columns[-1] < values[-1]
        if len(columns) == 1:
            return identity  # type: ignore[no-any-return]
        leading = columns[0] > values[0] if greater else columns[0] < values[0]
        # The first test repeats what the second implies, so that both databases take it as the range of an index.
        reached = columns[0] >= values[0] if greater else columns[0] <= values[0]
        return and_(reached, or_(leading, and_(columns[0] == values[0], identity)))

    def bounds(self, window: Window) -> list[ColumnElement[bool]]:
        """The conditions that a row lies between the window's cursors. Raises BadRequest."""
        sides = ((window.after, True), (window.before, False))
        return [self.beyond(self.position(cursor), later=later) for cursor, later in sides if cursor is not None]

    def _select(self, window: Window, subject: Any) -> Select[Any]:
        return select(subject).where(*self.conditions, *self.bounds(window))

    def ordering(self, window: Window, named: Callable[[str], Any] | None = None) -> list[Any]:
        """What to sort by; `named` gives the columns by their names where they are not the table's own."""
        descending = self.order.descending != window.backward
        columns = self.order.columns(self.table)
        if named is not None:
            columns = [named(column.key) for column in columns]
        ordering = [column.desc() if descending else column.asc() for column in columns]
        if self.order.first is not None:
            ordering[0] = columns[0].asc() if window.backward else columns[0].desc()
        return ordering

    async def page(self, context: Context, window: Window) -> Page:
        """One page of the whole list: one statement, and one more when it is counted."""
        statement = self._select(window, self.table).order_by(*self.ordering(window)).limit(window.size + 1)
        if window.offset:
            statement = statement.offset(window.offset)
        rows = await context.all(statement)

        async def count() -> int:
            known = _known_count(window, rows)
            return (
                known
                if known is not None
                else await context.value(select(func.count()).select_from(self.table).where(*self.conditions)) or 0
            )

        return paged(rows, window, self.cursor, count)

    async def pages(self, context: Context, window: Window, parents: Iterable[Any]) -> dict[Any, Page]:
        """A page for each parent: one statement for all, and one more when they are counted."""
        columns: list[Any] = [col(each) for each in (self.parent if isinstance(self.parent, tuple) else (self.parent,))]
        keys = list(parents)
        among = _among(columns, keys)
        if len(keys) == 1:
            return {keys[0]: await self.where(among).page(context, window)}
        place = over(func.row_number(), partition_by=columns, order_by=self.ordering(window)).label("place")
        inner = self._select(window, col(self.table.id).label("id")).add_columns(place).where(among).subquery()
        wanted = (
            select(self.table)
            .join(inner, inner.c.id == col(self.table.id))
            .where(inner.c.place > window.offset, inner.c.place <= window.offset + window.size + 1)
            .order_by(*columns, inner.c.place)
        )
        rows: dict[Any, list[Any]] = {key: [] for key in keys}
        for row in await context.all(wanted):
            rows[_key([getattr(row, column.key) for column in columns])].append(row)

        async def fetch(asked: list[Any]) -> dict[Any, int]:
            statement = select(*columns, func.count()).where(*self.conditions, _among(columns, asked)).group_by(*columns)
            return {_key(values): count for *values, count in await context.tuples(statement)}

        counts = context.loader(object(), fetch)

        def counter(key: Any) -> Callable[[], Awaitable[int]]:
            async def count() -> int:
                known = _known_count(window, rows[key])
                return known if known is not None else await counts.get(key) or 0

            return count

        return {key: paged(rows[key], window, self.cursor, counter(key)) for key in keys}

    def page_of(self, rows: Iterable[Any], window: Window) -> Page:
        """One page of rows that are all at hand: nothing is asked."""
        keys = [column.key for column in self.order.columns(self.table)]

        def place(row: Any) -> tuple[Any, ...]:
            return tuple(getattr(row, key) for key in keys)

        whole = sorted(rows, key=place, reverse=self.order.descending)
        part = whole
        for cursor, later in ((window.after, True), (window.before, False)):
            if cursor is not None:
                edge, greater = tuple(self.position(cursor)), later != self.order.descending
                part = [row for row in part if (place(row) > edge if greater else place(row) < edge)]
        if window.backward:
            part = part[::-1]
        return paged(part[window.offset : window.offset + window.size + 1], window, self.cursor, lambda: len(whole))


def paged(rows: list[Any], window: Window, cursor: Callable[[Any], str], count: Callable[[], int | Awaitable[int]] | None = None) -> Page:
    """The page of the rows that were found: those of the window and, where the list goes on, one more."""
    more = len(rows) > window.size
    nodes = rows[: window.size]
    if window.backward:
        nodes.reverse()
    return Page(
        nodes=nodes,
        has_next=window.before is not None if window.backward else more,
        has_previous=more if window.backward else window.after is not None or window.offset > 0,
        cursor=cursor,
        count=count,
    )


async def shown(pages: dict[int, Page], seen: Callable[[list[Any]], Awaitable[list[Any]]]) -> dict[int, Page]:
    """The pages with those of their rows that `seen` gives, which is asked once for the rows of all; the counts stay."""
    left = {row.id for row in await seen([row for page in pages.values() for row in page.nodes])}
    return {key: page.showing([row for row in page.nodes if row.id in left]) for key, page in pages.items()}


def _known_count(window: Window, rows: Sequence[Any]) -> int | None:
    """How many rows a whole list has, where a page that begins with it, of one row more than asked for, tells."""
    tells = (
        not window.backward and window.after is None and window.before is None and len(rows) <= window.size and (rows or not window.offset)
    )
    return window.offset + len(rows) if tells else None


def _key(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)


def _among(columns: list[Any], keys: list[Any]) -> Any:
    """The condition that a row hangs on one of these parents."""
    if len(columns) == 1:
        return columns[0] == keys[0] if len(keys) == 1 else columns[0].in_(keys)
    first, second = columns
    grouped: dict[Any, list[Any]] = {}
    for leading, following in keys:
        grouped.setdefault(leading, []).append(following)
    return or_(*(and_(first == leading, second.in_(following)) for leading, following in grouped.items()))


def _spell(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value


def _kind_of(column_type: Any) -> type:
    """The Python type of a column's values."""
    # Of its strings SQLModel only says that they are objects.
    return str if isinstance(column_type, AutoString) else column_type.python_type


def _parse(value: Any, kind: type) -> Any:
    if issubclass(kind, datetime):
        parsed = datetime.fromisoformat(value)
        if parsed.tzinfo is None:
            raise ValueError("a cursor's timestamp has its offset")
        # In UTC, as it is stored, a year may not be one any more.
        return parsed.astimezone(UTC)
    if issubclass(kind, date):
        return date.fromisoformat(value)
    # By the type itself: a truth value is an int.
    if type(value) is not kind or (isinstance(value, int) and not -(2**31) <= value < 2**31):
        raise ValueError("not a value of this ordering")
    if isinstance(value, str) and not storable(value):
        raise ValueError("no row has these characters")
    return value
