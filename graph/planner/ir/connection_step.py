"""Pages of declared connections: one statement selects the rows of the pages of a whole level.

The statement selects the ids of a page in the order of the list and joins the rest to them, so that only the rows of the page are
joined. For several parents it selects a page for each by a lateral join, so that an index serves each of them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from sqlalchemy import Integer, func, select

from graph.fields.connections import ConnectionPage, KeysetListing, Window, make_page
from graph.fields.declarations import ToMany, bind_filter_to_viewer, cached_repr, make_window
from graph.planner.codegen.row_serializer import split_by_lengths
from graph.planner.ir.row_view import ConstantPart, RowView
from graph.planner.ir.steps import BatchNode
from graph.planner.run.row_views import execute_view
from graph.planner.run.state import PlanRun
from graph.planner.sql.parent_join import ParentJoin, ProjectStatement, ProjectSubquery
from graph.planner.sql.select_builder import SelectBuilder
from storage.caches import CacheBounds, LruCache
from storage.database.compiled_statements import CompiledStatement, literal_number, named_parameter, substitute_table

PAGE_STATEMENT_CACHE_BOUNDS = CacheBounds("page statements", max_entries=2_000, max_bytes=6 * 2**20)
"""For all plans together: keys contain the values of filters."""


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


@dataclass(slots=True)
class EdgesSelection:
    """`edges` of a connection, by response key."""

    parts: list[tuple[str, EdgePart]]

    @property
    def has_cursors(self) -> bool:
        return any(isinstance(part, CursorField) for _, part in self.parts)


ConnectionPart = ConstantPart | TotalCount | PageInfoFields | EdgesSelection | RowView
"""A view is that of `nodes`."""


@dataclass(slots=True)
class ConnectionSelection:
    """What is selected of a connection, by response key."""

    parts: list[tuple[str, ConnectionPart]] = field(default_factory=list)

    def add(self, key: str, part: ConnectionPart) -> None:
        self.parts.append((key, part))

    @property
    def has_total(self) -> bool:
        return any(isinstance(part, TotalCount) for _, part in self.parts)

    @property
    def has_page_info(self) -> bool:
        """Whether the answer says that a page has rows behind it, for which one more row is read."""
        return any(isinstance(part, PageInfoFields) for _, part in self.parts)

    @property
    def has_cursors(self) -> bool:
        return any(isinstance(part, EdgesSelection | PageInfoFields) and part.has_cursors for _, part in self.parts)


@dataclass(slots=True)
class PageStatement:
    """A statement for pages with certain arguments.

    The values of the ordering begin at `order_offset`; at `extra_index` is the total or, for several parents, the position of the parent;
    at `id_index` the row's own id where the project is joined. `count_statement` counts where the page has no rows to do so.
    `is_descending` says how Python sorts the rows by the values of the ordering; None: the database has sorted them.
    """

    listing: KeysetListing
    page: CompiledStatement
    count_statement: CompiledStatement | None
    order_offset: int
    extra_index: int
    id_index: int
    processors: list[Any]
    is_descending: bool | None
    cache_keys: set[Any]
    """The keys of all statements of the field, of which this has one."""

    def sort(self, rows: Sequence[Any]) -> Sequence[Any]:
        if self.is_descending is None or len(rows) < 2:
            return rows
        order_offset, extra_index = self.order_offset, self.extra_index
        return sorted(rows, key=lambda row: row[order_offset:extra_index], reverse=self.is_descending)

    def cursor(self, row: Any) -> str:
        values = zip(row[self.order_offset : self.extra_index], self.processors, strict=True)
        return self.listing.cursor_of(value if process is None else process(value) for value, process in values)


@dataclass(slots=True)
class LevelPages:
    """The pages of all parents: all rows in one list, and what is known of each page.

    `parent_indexes` are the positions of the rows' parents; None: the rows are in the order of the pages.
    """

    rows: Sequence[Any]
    totals: list[int]
    cursor: Callable[[Any], str]
    parent_indexes: list[int] | None = None
    pages: list[ConnectionPage] | None = None
    """Known where the answer says whether rows precede or follow, or where pages are read from their end."""

    def group_by_page(self, values: list[Any]) -> list[list[Any]]:
        """Values of the rows, page by page."""
        if self.parent_indexes is None:
            return [values] if self.pages is None else split_by_lengths(values, [len(page.nodes) for page in self.pages])
        return group_by_index(self.parent_indexes, values, len(self.totals))


def group_by_index(indexes: Iterable[int], values: Iterable[Any], number: int) -> list[list[Any]]:
    found: list[list[Any]] = [[] for _ in range(number)]
    for index, value in zip(indexes, values, strict=True):
        found[index].append(value)
    return found


def statement_size(key: tuple[Any, ...], statement: PageStatement) -> int:
    """Estimates the bytes of a statement. The values of its filter stand in the key, and are bound to it."""
    return (
        statement.page.size
        + (statement.count_statement.size if statement.count_statement is not None else 0)
        + 2_000
        + 2 * _count_characters(key)
    )


def _count_characters(part: Any) -> int:
    if isinstance(part, tuple):
        return sum(map(_count_characters, part))
    return len(part) if isinstance(part, str) else 0


_PAGE_STATEMENTS: LruCache[Any, PageStatement] = LruCache(
    PAGE_STATEMENT_CACHE_BOUNDS, statement_size, lambda key, statement: statement.cache_keys.discard(key)
)
_STEP_IDS = count()


class ConnectionStep(BatchNode):
    """A page of rows for each object of a level.

    `subfield` is the part that replaces the connection in the answer, if any.
    """

    def __init__(
        self,
        key: str,
        declared: ToMany,
        arguments: int | None,
        select_builder: SelectBuilder,
        connected: ConnectionSelection,
        subfield: str | None,
    ) -> None:
        self.key = key
        self._declared = declared
        self._arguments = arguments
        self._select_builder = select_builder
        self._parent_join = ParentJoin(declared.listing.parent, select_builder.sql_dialect)
        self.connected = connected
        self._subfield = subfield
        self._step_id = next(_STEP_IDS)
        self._cache_keys: set[Any] = set()

    def __del__(self, statements: Any = _PAGE_STATEMENTS) -> None:
        """Its statements go with its plan."""
        for key in self._cache_keys:
            statements.pop(key)

    @property
    def key_attribute(self) -> str:
        """The attribute of the parents that their rows refer to."""
        return self._declared.key_attribute

    @property
    def checks_policy(self) -> bool:
        """Whether the policy looks at the objects."""
        return self._declared.action is not None

    @property
    def parent_is_project(self) -> bool:
        """Where the objects are projects: whether it takes no more of them than their ids."""
        return self.key_attribute == "id" and not isinstance(self._declared.listing.parent, tuple)

    @property
    def is_sqlite(self) -> bool:
        return self._select_builder.sql_dialect.is_sqlite

    async def execute(self, run: PlanRun, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
        """Raises what the policy and the arguments raise."""
        arguments = self._bind_arguments(run)
        await self._declared.require(run.context, arguments, objects)
        window = make_window(arguments)
        parents = [getattr(each, self.key_attribute) for each in objects]
        distinct = list(dict.fromkeys(parents))
        many = len(distinct) > 1
        statement = self._get_statement(arguments, window, many)
        values = self._parameter_values(statement, window, distinct)
        rows = await run.context.session.fetch(statement.page.sql, statement.page.bind(values), statement.page.text_columns)
        filled = await self._serialize_level(
            run, await self._read_level(run, statement, window, values, statement.sort(rows), len(distinct))
        )
        by_parent = dict(zip(distinct, filled, strict=True))
        for parent, answer in zip(parents, answers, strict=True):
            answer[self.key] = by_parent[parent]

    def join_project(self, run: PlanRun, subquery: ProjectSubquery) -> ProjectStatement:
        """Raises what the arguments raise."""
        arguments = self._bind_arguments(run)
        window = make_window(arguments)
        statement = self._get_statement(arguments, window, False, subquery)

        async def build_result(project: Any, rows: Sequence[Any]) -> Any:
            await self._declared.require(run.context, arguments, (project,))
            id_index = statement.id_index
            found = [row for row in rows if row[id_index] is not None]
            values = self._parameter_values(statement, window, [project.id])
            (filled,) = await self._serialize_level(run, await self._read_level(run, statement, window, values, found, 1))
            return filled

        return ProjectStatement(statement.page, self._parameter_values(statement, window, None), statement.id_index + 1, build_result)

    def statements_for(self, run: PlanRun, *, is_list: bool) -> list[tuple[CompiledStatement, dict[str, Any]]]:
        """The statements of pages and of their totals, with the values of all parameters except the parents."""
        arguments = self._bind_arguments(run)
        window = make_window(arguments)
        statement = self._get_statement(arguments, window, is_list)
        values = self._parameter_values(statement, window, None)
        counts = [] if statement.count_statement is None or not is_list else [statement.count_statement]
        return [(each, values) for each in (statement.page, *counts)]

    def _bind_arguments(self, run: PlanRun) -> dict[str, Any]:
        return bind_filter_to_viewer(run.context, run.arguments[self._arguments]) if self._arguments is not None else {}

    def _parameter_values(self, statement: PageStatement, window: Window, parents: list[Any] | None) -> dict[str, Any]:
        """The values of the statement's parameters; `parents` None: they are not known yet."""
        values: dict[str, Any] = {"offset": window.offset}
        if parents is not None:
            values |= self._parent_join.parameter_values(parents)
        for name, cursor in (("after", window.after), ("before", window.before)):
            if cursor is not None:
                values |= {f"{name}{number}": value for number, value in enumerate(statement.listing.cursor_values(cursor))}
        return values

    async def _read_level(
        self, run: PlanRun, statement: PageStatement, window: Window, values: dict[str, Any], rows: Sequence[Any], number: int
    ) -> LevelPages:
        """The pages of so many parents in the rows that the statement gave."""
        many = number > 1
        extra_index = statement.extra_index
        totals = [0] * number
        if statement.count_statement is not None:
            if not many and rows:
                totals = [rows[0][extra_index]]
            elif many or not window.size or window.offset or window.after or window.before:
                for total, parent_index in await run.context.session.fetch(
                    statement.count_statement.sql, statement.count_statement.bind(values)
                ):
                    totals[parent_index] = total
        parent_indexes = [row[extra_index] for row in rows] if many else None
        if not self.connected.has_page_info and not window.backward:
            return LevelPages(rows, totals, statement.cursor, parent_indexes)
        each = group_by_index(parent_indexes, rows, number) if parent_indexes is not None else [list(rows)]
        pages = [make_page(page, window, statement.cursor) for page in each]
        return LevelPages([row for page in pages for row in page.nodes], totals, statement.cursor, pages=pages)

    def _get_statement(
        self, arguments: dict[str, Any], window: Window, many: bool, subquery: ProjectSubquery | None = None
    ) -> PageStatement:
        order = arguments.get("order_by")
        listing: KeysetListing | None = None
        cursors: Any = (window.after is not None, window.before is not None)
        if cursors != (False, False):
            listing = self._declared.filtered_listing(arguments)
            if listing.order.first is not None:
                # How such a list goes on depends on the value.
                cursors = (window.after, window.before)
        within = many if subquery is None else subquery.by_path, subquery is None
        key = (
            self._step_id,
            *within,
            self._declared.filter_key(arguments),
            cached_repr(order),
            window.size,
            window.backward,
            window.offset > 0,
            cursors,
        )
        found = _PAGE_STATEMENTS.get(key)
        if found is None:
            found = self._compile(listing or self._declared.filtered_listing(arguments), window, many, subquery)
            self._cache_keys.add(key)
            _PAGE_STATEMENTS.put(key, found)
        return found

    def _compile(self, listing: KeysetListing, window: Window, many: bool, subquery: ProjectSubquery | None) -> PageStatement:
        select_builder, root, parent_join, connected = self._select_builder, self._select_builder.root, self._parent_join, self.connected
        parameter_names = {*parent_join.parameter_names, "offset"}
        columns = listing.order.columns(listing.table)
        cursor_conditions = []
        for name, cursor, later in (("after", window.after, True), ("before", window.before, False)):
            if cursor is None:
                continue
            values = listing.cursor_values(cursor)
            bound = [
                select_builder.sql_dialect.hide_from_planner(named_parameter(f"{name}{number}", column.type))
                for number, column in enumerate(columns)
            ]
            parameter_names |= {f"{name}{number}" for number in range(len(columns))}
            if listing.order.first is not None:
                bound[0] = values[0]
            cursor_conditions.append(listing.seek_condition(bound, later=later))
        ordering = listing.order_by(window, root.column)
        # Sorted again by the statement, the rows of a page would be written and read once more, with all that was joined to them.
        sorts_in_python = listing.order.first is None and select_builder.sql_dialect.has_python_order(columns)
        names = [column.key for column in columns] if connected.has_cursors or sorts_in_python else []
        extra_columns = [*map(root.column, names), *([] if subquery is None else [root.column("id")])]
        page_columns = ["id"] if select_builder.sql_dialect.is_sqlite else select_builder.find_root_columns(*ordering, *extra_columns)
        page: Any = select(*(listing.table.__table__.c[name] for name in page_columns)).where(*listing.conditions, *cursor_conditions)
        page = page.order_by(*listing.order_by(window)).limit(literal_number(window.size + connected.has_page_info))
        if window.offset:
            page = page.offset(named_parameter("offset", Integer))
        count = select(func.count()).select_from(listing.table).where(*listing.conditions)
        if subquery is not None:
            frame = parent_join.for_project_subquery(subquery, page, count, root.table, with_total=connected.has_total)
        else:
            frame = (parent_join.for_many_parents if many else parent_join.for_one_parent)(page, count, root.table)
        statement = select_builder.build_select(frame.from_clause).add_columns(*map(root.column, names))
        order_offset = len(select_builder.expressions)
        extra_index = id_index = order_offset + len(names)
        if many or connected.has_total:
            statement = statement.add_columns(frame.extra_column)
            id_index += 1
        if subquery is not None:
            statement = statement.add_columns(root.column("id"), *subquery.columns)
            parameter_names |= subquery.parameter_names
        if not sorts_in_python:
            statement = statement.order_by(*ordering)
        if frame.page is not None:
            statement = substitute_table(frame.page, root.table, statement)
        dialect, parameters = select_builder.sql_dialect.dialect, frozenset(parameter_names)
        count_statement = CompiledStatement(frame.count_statement, dialect, parameters) if connected.has_total else None
        processors = [root.processor(name) for name in names]
        is_descending = listing.order.descending is not window.backward if sorts_in_python else None
        # Its conditions hold the values of the filter once more.
        listing = replace(listing, conditions=())
        return PageStatement(
            listing,
            CompiledStatement(statement, dialect, parameters),
            count_statement,
            order_offset,
            extra_index,
            id_index,
            processors,
            is_descending,
            self._cache_keys,
        )

    async def _serialize_level(self, run: PlanRun, level: LevelPages) -> list[Any]:
        answers: list[dict[str, Any]] = [{} for _ in level.totals]
        for key, part in self.connected.parts:
            found: list[Any]
            if isinstance(part, RowView):
                found = level.group_by_page(await execute_view(part, run, level.rows))
            elif isinstance(part, TotalCount):
                found = level.totals
            elif isinstance(part, ConstantPart):
                found = [part.value] * len(answers)
            elif isinstance(part, EdgesSelection):
                found = level.group_by_page(await _serialize_edges(run, part, level))
            else:
                found = [_serialize_page_info(part.fields, page) for page in level.pages or ()]
            for answer, value in zip(answers, found, strict=True):
                answer[key] = value
        subfield = self._subfield
        return answers if subfield is None else [answer[subfield] for answer in answers]


async def _serialize_edges(run: PlanRun, edges: EdgesSelection, level: LevelPages) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{} for _ in level.rows]
    for key, part in edges.parts:
        values: list[Any]
        if isinstance(part, CursorField):
            values = [level.cursor(row) for row in level.rows]
        elif isinstance(part, ConstantPart):
            values = [part.value] * len(found)
        else:
            values = await execute_view(part, run, level.rows)
        for entry, value in zip(found, values, strict=True):
            entry[key] = value
    return found


PAGE_INFO_FIELDS: dict[str, Callable[[Any], Any]] = {
    "hasNextPage": lambda page: page.has_next,
    "hasPreviousPage": lambda page: page.has_previous,
    "startCursor": lambda page: page.cursor(page.nodes[0]) if page.nodes else None,
    "endCursor": lambda page: page.cursor(page.nodes[-1]) if page.nodes else None,
    "__typename": lambda page: "PageInfo",
}


def _serialize_page_info(parts: list[tuple[str, str]], page: Any) -> dict[str, Any]:
    return {key: PAGE_INFO_FIELDS[name](page) for key, name in parts}
