"""Keyset pagination: pages stay exact while rows are inserted.

A cursor contains the names of the table and of the ordering, and the values of its columns in one row, ending with the id, so a page
continues exactly after that row. `offset` with `first` serves the page numbers of v3.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, or_, over, select
from sqlmodel import AutoString, col

from graph.context import Context
from graph.fields.connection_pages import ConnectionPage, Window, make_page
from graph.fields.cursors import decode_cursor, encode_cursor
from graph.rules.validation import is_storable
from storage.database.statements.compiled_statements import SqlDialect, literal_number
from storage.tables import Project, row_counts
from storage.tables.row_counts import RowCount


@dataclass(frozen=True)
class Order:
    """A list's ordering: a column of the table and a direction; the id breaks ties in the same direction.

    `first` is a boolean column: rows where it is true come before all others, in both directions.
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
        flag_columns = [] if self.first is None else [col(self.first)]
        return [*flag_columns, identity] if self.column.key == "id" else [*flag_columns, col(self.column), identity]


@dataclass(frozen=True)
class KeysetListing:
    """A list of one table's rows: conditions and ordering.

    `parent` is the foreign key of a list per parent, or a pair of columns if the key has two; None for a single list. `counters` are the
    conditions of the counters of the list, whose parents are projects (`RowCount`); None: its rows are counted. `association` is a table
    that joins the rows to their parents, and the condition by which it is joined; `parent` is then its column.
    """

    table: Any
    order: Order
    conditions: tuple[ColumnElement[bool], ...] = ()
    parent: Any = None
    counters: tuple[Any, ...] | None = None
    association: tuple[Any, ColumnElement[bool]] | None = None

    def where(self, *conditions: Any, counters: Sequence[Any] | None = None) -> "KeysetListing":
        """Returns the rows of the list that meet the conditions. `counters` are the same conditions on its counters, if they have any."""
        narrowed = None if self.counters is None or counters is None else (*self.counters, *counters)
        return replace(self, conditions=(*self.conditions, *conditions), counters=narrowed)

    @cached_property
    def _cursor_mark(self) -> str:
        """With the table, because most tables have orderings of the same names: a position in another list would skip rows of this one."""
        return f"{self.table.__tablename__}:{self.order.name}"

    @property
    def _parent_columns(self) -> list[Any]:
        if self.parent is None:
            return []
        return [col(each) for each in (self.parent if isinstance(self.parent, tuple) else (self.parent,))]

    def count_select(self) -> tuple[Select[Any], list[Any]]:
        """Returns the statement that selects the number of rows, of all parents, and its columns that are the parent's."""
        if self.counters is None:
            return self.select_from(func.count()).where(*self.conditions), self._parent_columns
        return select(row_counts.total()).select_from(RowCount).where(*self.counters), [col(RowCount.project_id)]

    def select_from(self, *subjects: Any) -> Select[Any]:
        """Returns a SELECT from the table, joined to its association if it has one."""
        found = select(*subjects).select_from(self.table)
        return found if self.association is None else found.join(*self.association)

    def cursor(self, row: Any) -> str:
        return self.cursor_of([getattr(row, column.key) for column in self.order.columns(self.table)])

    def cursor_of(self, values: Iterable[Any]) -> str:
        """Returns the cursor of a row with these values of the ordering's columns."""
        return encode_cursor(self._cursor_mark, *map(_serialize_value, values))

    def cursor_values(self, cursor: str) -> list[Any]:
        """Returns the values of the ordering's columns in the cursor's row. Raises BadRequest for an invalid cursor."""
        columns = self.order.columns(self.table)

        def parse_values(*values: Any) -> list[Any]:
            return [_parse_value(value, _python_type_of(column.type)) for value, column in zip(values, columns, strict=True)]

        return decode_cursor(cursor, self._cursor_mark, parse_values, list_description="this list in this order")

    def seek_condition(self, values: list[Any], *, later: bool) -> ColumnElement[bool]:
        """The condition that a row comes after (or before) the row with these values of the ordering's columns.

        The values may be parameters of a statement, except the boolean of an ordering's `first`.
        """
        columns = self.order.columns(self.table)
        if self.order.first is None:
            return self._row_comparison(columns, values, later=later)
        (flag, *columns), (value, *values) = columns, values
        condition = and_(flag.is_(value), self._row_comparison(columns, values, later=later))
        return or_(flag.is_(not value), condition) if value is later else condition

    def _row_comparison(self, columns: list[Any], values: list[Any], *, later: bool) -> ColumnElement[bool]:
        greater = later != self.order.descending
        identity = columns[-1] > values[-1] if greater else columns[-1] < values[-1]
        if len(columns) == 1:
            return identity  # type: ignore[no-any-return]
        leading = columns[0] > values[0] if greater else columns[0] < values[0]
        # The first test is redundant, but lets both databases use it as the range of an index.
        reached = columns[0] >= values[0] if greater else columns[0] <= values[0]
        return and_(reached, or_(leading, and_(columns[0] == values[0], identity)))

    def cursor_conditions(self, window: Window) -> list[ColumnElement[bool]]:
        """The conditions that a row is between the window's cursors. Raises BadRequest."""
        sides = ((window.after, True), (window.before, False))
        return [self.seek_condition(self.cursor_values(cursor), later=later) for cursor, later in sides if cursor is not None]

    def _select(self, window: Window, subject: Any) -> Select[Any]:
        return self.select_from(subject).where(*self.conditions, *self.cursor_conditions(window))

    def order_by(self, window: Window, column_named: Callable[[str], Any] | None = None) -> list[Any]:
        """Returns the ORDER BY expressions; `column_named` returns the columns if they are not the table's own."""
        descending = self.order.descending != window.backward
        columns = self.order.columns(self.table)
        if column_named is not None:
            columns = [column_named(column.key) for column in columns]
        order_by = [column.desc() if descending else column.asc() for column in columns]
        if self.order.first is not None:
            order_by[0] = columns[0].asc() if window.backward else columns[0].desc()
        return order_by

    async def page(self, context: Context, window: Window) -> ConnectionPage:
        """Reads a page of the whole list by one statement, and one more if it is counted."""
        return await self._page(context, window, self.count_select()[0])

    async def page_of_projects(self, context: Context, window: Window, project_ids: Sequence[int]) -> ConnectionPage:
        """Reads a page of the rows of all these projects as one list, by one statement, and one more if it is counted.

        `parent` is the column of the project. An index finds the first rows of each project, and the page is among them; sorting all rows
        would take the longer the more there are.
        """
        (column,) = self._parent_columns
        count_statement, (counted_column,) = self.count_select()
        count_statement = count_statement.where(counted_column.in_(project_ids))
        if len(project_ids) < 2:
            return await self.where(column.in_(project_ids))._page(context, window, count_statement)
        projects = select(col(Project.id).label("id")).where(col(Project.id).in_(project_ids)).subquery("projects")
        order_columns = [each for each in self.order.columns(self.table) if each.key != "id"]
        first_rows = self._select(window, col(self.table.id).label("id")).where(column == projects.c.id).order_by(*self.order_by(window))
        first_rows = first_rows.limit(literal_number(window.offset + window.size + 1))
        sql_dialect = SqlDialect(context.services.database.engine.dialect)
        if not sql_dialect.is_sqlite:
            first_rows = first_rows.add_columns(*order_columns)
        found, rows = sql_dialect.join_pages(projects, first_rows, self.table.__table__.alias("first_rows"))
        ids = select(rows.c.id).select_from(found).order_by(*self.order_by(window, lambda key: rows.c[key]))
        ids = ids.limit(literal_number(window.size + 1)).offset(window.offset)
        statement = select(self.table).where(col(self.table.id).in_(ids)).order_by(*self.order_by(window))
        return await self._make_page(context, window, statement, count_statement)

    async def _page(self, context: Context, window: Window, count_statement: Select[Any]) -> ConnectionPage:
        statement = self._select(window, self.table).order_by(*self.order_by(window)).limit(window.size + 1)
        if window.offset:
            statement = statement.offset(window.offset)
        return await self._make_page(context, window, statement, count_statement)

    async def _make_page(self, context: Context, window: Window, statement: Any, count_statement: Select[Any]) -> ConnectionPage:
        rows = await context.all(statement)

        async def fetch(keys: list[None]) -> dict[None, int]:
            return dict.fromkeys(keys, await context.value(count_statement) or 0)

        # One page may be the value of many fields, as the issues of a project below each of its labels: it is counted once.
        counts = context.loader(object(), fetch)

        async def count() -> int:
            return await counts.get(None) or 0

        return make_page(rows, window, self.cursor, count)

    async def pages(self, context: Context, window: Window, parents: Iterable[Any]) -> dict[Any, ConnectionPage]:
        """Reads a page for each parent by one statement for all, and one more if they are counted."""
        columns = self._parent_columns
        keys = list(parents)
        parent_condition = _parent_condition(columns, keys)
        count_statement, counted_parents = self.count_select()
        if len(keys) == 1:
            count_one = count_statement.where(_parent_condition(counted_parents, keys))
            return {keys[0]: await self.where(parent_condition)._page(context, window, count_one)}
        rows: dict[Any, list[Any]] = {key: [] for key in keys}
        for row, *parent in await context.tuples(self._pages_select(context, window, columns, keys)):
            rows[_key(parent)].append(row)

        async def fetch(missing_keys: list[Any]) -> dict[Any, int]:
            statement = count_statement.add_columns(*counted_parents).where(_parent_condition(counted_parents, missing_keys))
            return {_key(values): count for count, *values in await context.tuples(statement.group_by(*counted_parents))}

        counts = context.loader(object(), fetch)

        def make_counter(key: Any) -> Callable[[], Awaitable[int]]:
            async def count() -> int:
                return await counts.get(key) or 0

            return count

        return {key: make_page(rows[key], window, self.cursor, make_counter(key)) for key in keys}

    def _pages_select(self, context: Context, window: Window, columns: list[Any], keys: list[Any]) -> Select[Any]:
        """Returns the statement that selects the rows of the pages of several parents, in their order, each with the key of its parent."""
        sql_dialect = SqlDialect(context.services.database.engine.dialect)
        parents = None if self.association is not None or window.offset else _select_parents(columns, keys)
        if parents is None:
            return self._numbered_pages_select(window, columns, keys)
        # An index finds the first rows of each parent; numbering reads all rows of all of them.
        (column,) = columns
        first_rows = self._select(window, col(self.table.id).label("id")).where(column == parents.c.id)
        first_rows = first_rows.order_by(*self.order_by(window)).limit(literal_number(window.size + 1))
        found, rows = sql_dialect.join_pages(parents, first_rows, self.table.__table__.alias("first_rows"))
        ids = select(rows.c.id).select_from(found)
        return select(self.table, column.label("parent")).where(col(self.table.id).in_(ids)).order_by(column, *self.order_by(window))

    def _numbered_pages_select(self, window: Window, columns: list[Any], keys: list[Any]) -> Select[Any]:
        """As `_pages_select`, for all lists and windows."""
        row_number = over(func.row_number(), partition_by=columns, order_by=self.order_by(window)).label("row_number")
        labels = [column.label(f"parent{number}") for number, column in enumerate(columns)]
        numbered = self._select(window, col(self.table.id).label("id")).add_columns(row_number, *labels)
        inner = numbered.where(_parent_condition(columns, keys)).subquery()
        return (
            select(self.table, *(inner.c[label.name] for label in labels))
            .join(inner, inner.c.id == col(self.table.id))
            .where(inner.c.row_number > window.offset, inner.c.row_number <= window.offset + window.size + 1)
            .order_by(*(inner.c[label.name] for label in labels), inner.c.row_number)
        )

    def page_of_rows(self, rows: Iterable[Any], window: Window) -> ConnectionPage:
        """Makes a page of rows that are already loaded, without a statement."""
        keys = [column.key for column in self.order.columns(self.table)]

        def sort_key(row: Any) -> tuple[Any, ...]:
            return tuple(getattr(row, key) for key in keys)

        sorted_rows = sorted(rows, key=sort_key, reverse=self.order.descending)
        page_rows = sorted_rows
        for cursor, later in ((window.after, True), (window.before, False)):
            if cursor is not None:
                boundary, greater = tuple(self.cursor_values(cursor)), later != self.order.descending
                page_rows = [row for row in page_rows if (sort_key(row) > boundary if greater else sort_key(row) < boundary)]
        if window.backward:
            page_rows = page_rows[::-1]
        return make_page(page_rows[window.offset : window.offset + window.size + 1], window, self.cursor, lambda: len(sorted_rows))


def _select_parents(columns: list[Any], keys: list[Any]) -> Any:
    """Selects the ids of the rows with these keys; None unless the key is one column that refers to an id, and an index begins with it."""
    if len(columns) > 1:
        return None
    column = columns[0].property.columns[0] if hasattr(columns[0], "property") else columns[0]
    has_index = any(index.columns[0] is column for index in getattr(column.table, "indexes", ()) if index.columns)
    targets = [key.column for key in column.foreign_keys if key.column.name == "id"]
    if not has_index or not targets:
        return None
    return select(targets[0].label("id")).where(targets[0].in_(keys)).subquery("parents")


def _key(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)


def _parent_condition(columns: list[Any], keys: list[Any]) -> Any:
    """The condition that a row belongs to one of these parents."""
    if len(columns) == 1:
        return columns[0] == keys[0] if len(keys) == 1 else columns[0].in_(keys)
    first, second = columns
    grouped: dict[Any, list[Any]] = {}
    for leading, following in keys:
        grouped.setdefault(leading, []).append(following)
    return or_(*(and_(first == leading, second.in_(following)) for leading, following in grouped.items()))


def _serialize_value(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value


def _python_type_of(column_type: Any) -> type:
    """The Python type of a column's values."""
    # SQLModel's AutoString does not define its Python type.
    return str if isinstance(column_type, AutoString) else column_type.python_type


def _parse_value(value: Any, kind: type) -> Any:
    if issubclass(kind, datetime):
        parsed = datetime.fromisoformat(value)
        if parsed.tzinfo is None:
            raise ValueError("a cursor's timestamp must have a UTC offset")
        # Raises OverflowError if the year is out of range in UTC.
        return parsed.astimezone(UTC)
    if issubclass(kind, date):
        return date.fromisoformat(value)
    # The exact type, because a bool is an int.
    if type(value) is not kind or (isinstance(value, int) and not -(2**31) <= value < 2**31):
        raise ValueError("not a value of this ordering")
    if isinstance(value, str) and not is_storable(value):
        raise ValueError("no row has these characters")
    return value
