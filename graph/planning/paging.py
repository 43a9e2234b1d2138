"""The pages of declared connections: the rows of a level's pages come by one statement, with all that is selected of them.

The statement takes the page's ids in the order of the list, and joins to them what is wanted; so no more rows are joined than are shown.
For several parents it takes a page for each, so that an index gives each of them.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Integer, and_, func, select
from sqlmodel import col

from graph.connections import Listing, Window, paged
from graph.declare import ToMany, window_of
from graph.planning.running import Run, split
from graph.planning.sources import Wanted
from graph.planning.views import Constant, View
from storage.compiled import Compiled, Spelling, literal_number, parameter

MOST_STATEMENTS = 32
"""Of one connection in one plan: the values of filters stand in them."""


@dataclass(slots=True)
class Edges:
    """`parts` are by their key in the answer: a constant, a view of the node, or None for the cursor."""

    parts: list[tuple[str, Any]]

    @property
    def has_cursors(self) -> bool:
        return any(part is None for _, part in self.parts)


@dataclass(slots=True)
class Connected:
    """What is selected of a connection, by the key in the answer: a constant, a view of `nodes`, `Edges`, the (key, name) pairs of
    `pageInfo`, or None for `totalCount`."""

    parts: list[tuple[str, Any]] = field(default_factory=list)

    def add(self, key: str, part: Any) -> None:
        self.parts.append((key, part))

    @property
    def has_total(self) -> bool:
        return any(part is None for _, part in self.parts)

    @property
    def has_cursors(self) -> bool:
        for _, part in self.parts:
            if isinstance(part, Edges) and part.has_cursors:
                return True
            if isinstance(part, list) and any(name in ("startCursor", "endCursor") for _, name in part):
                return True
        return False


@dataclass(slots=True)
class Statement:
    """A statement for the pages of some arguments. `ordered` is where the values of the ordering begin, `last` where the total or, of
    several parents, the parent stands; `count` counts for itself what the page cannot tell."""

    listing: Listing
    page: Compiled
    count: Compiled | None
    ordered: int
    last: int
    processors: list[Any]

    def cursor(self, row: Any) -> str:
        values = zip(row[self.ordered : self.last], self.processors, strict=True)
        return self.listing.cursor_of(value if process is None else process(value) for value, process in values)


class Hanging:
    """How rows hang on their parents: by a column, or by a pair of them."""

    def __init__(self, parent: Any, spelling: Spelling) -> None:
        self.columns: list[Any] = [col(each) for each in (parent if isinstance(parent, tuple) else (parent,))]
        self._spelling = spelling
        self._ones = [f"parent{number}" for number in range(len(self.columns))]
        self._lists = [f"parents{number}" for number in range(len(self.columns))]
        self.parameters = frozenset((*self._ones, *self._lists))

    def values(self, parents: list[Any]) -> dict[str, Any]:
        """The values of the parameters."""
        keys = parents if len(self.columns) > 1 else [(parent,) for parent in parents]
        if len(parents) == 1:
            return dict(zip(self._ones, keys[0], strict=True))
        return self._spelling.listed_keys(self._lists, keys)

    def parent_of(self, row: Any, place: int) -> Any:
        """The parent that a row names from this place on."""
        return row[place] if len(self.columns) == 1 else tuple(row[place : place + len(self.columns)])

    def on_one(self) -> Any:
        return and_(*(column == parameter(name, column.type) for column, name in zip(self.columns, self._ones, strict=True)))

    def on_many(self) -> tuple[Any, Any]:
        """The table of the parents, and the condition that a row hangs on one of them."""
        parents = self._spelling.keys(self._lists, [column.type for column in self.columns])
        return parents, and_(*(column == key for column, key in zip(self.columns, parents.c, strict=True)))


class Pages:
    """A field that is a page of rows for each object of a level. `shown` is what of the connection stands in its place, if not all."""

    def __init__(self, key: str, declared: ToMany, arguments: int | None, wanted: Wanted, connected: Connected, shown: str | None) -> None:
        self._key = key
        self._declared = declared
        self._arguments = arguments
        self._wanted = wanted
        self._hanging = Hanging(declared.listing.parent, wanted.spelling)
        self._connected = connected
        self._shown = shown
        self._statements: OrderedDict[Any, Statement] = OrderedDict()

    @property
    def needs(self) -> tuple[str, ...] | None:
        """The attributes of the objects; None: all, for the policy to look at."""
        return (self._declared.of,) if self._declared.action is None else None

    async def fill_in(self, run: Run, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
        """Raises what the policy and the arguments raise."""
        arguments = run.arguments[self._arguments] if self._arguments is not None else {}
        declared = self._declared
        await declared.require(run.context, arguments, objects)
        parents = [getattr(each, declared.of) for each in objects]
        pages = await self._pages(run, arguments, window_of(arguments), list(dict.fromkeys(parents)))
        filled = await self._filled(run, list(pages.values()))
        by_parent = dict(zip(pages, filled, strict=True))
        key, shown = self._key, self._shown
        for parent, answer in zip(parents, answers, strict=True):
            found = by_parent[parent]
            answer[key] = found if shown is None else found[shown]

    async def _pages(self, run: Run, arguments: dict[str, Any], window: Window, parents: list[Any]) -> dict[Any, Any]:
        many = len(parents) > 1
        statement = self._statement(arguments, window, many)
        values: dict[str, Any] = {"offset": window.offset, **self._hanging.values(parents)}
        for name, cursor in (("after", window.after), ("before", window.before)):
            if cursor is not None:
                values |= {f"{name}{number}": value for number, value in enumerate(statement.listing.position(cursor))}
        fetch = run.context.session.fetch
        rows = await fetch(statement.page.text, statement.page.values(values))
        last = statement.last
        if not many:
            total = rows[0][last] if rows and self._connected.has_total else 0
            if self._connected.has_total and not rows and (window.offset or window.after or window.before):
                assert statement.count is not None  # noqa: S101 - it is made wherever the total is asked for
                ((total,),) = await fetch(statement.count.text, statement.count.values(values))
            return {parents[0]: (paged(list(rows), window, statement.cursor), total)}
        parent_of = self._hanging.parent_of
        counts: dict[Any, int] = {}
        if statement.count is not None:
            counts = {parent_of(row, 0): row[-1] for row in await fetch(statement.count.text, statement.count.values(values))}
        found: dict[Any, list[Any]] = {parent: [] for parent in parents}
        for row in rows:
            found[parent_of(row, last)].append(row)
        return {parent: (paged(each, window, statement.cursor), counts.get(parent, 0)) for parent, each in found.items()}

    def _statement(self, arguments: dict[str, Any], window: Window, many: bool) -> Statement:
        order = arguments.get("order_by")
        listing: Listing | None = None
        cursors: Any = (window.after is not None, window.before is not None)
        if cursors != (False, False):
            listing = self._declared.narrowed(arguments)
            if listing.order.first is not None:
                # How such a list goes on depends on the value.
                cursors = (window.after, window.before)
        key = (many, self._declared.narrowing(arguments), repr(order), window.size, window.backward, window.offset > 0, cursors)
        found = self._statements.get(key)
        if found is None:
            found = self._statements[key] = self._made(listing or self._declared.narrowed(arguments), window, many)
            if len(self._statements) > MOST_STATEMENTS:
                self._statements.popitem(last=False)
        return found

    def _made(self, listing: Listing, window: Window, many: bool) -> Statement:
        wanted, root = self._wanted, self._wanted.root
        hanging = self._hanging
        given = {*hanging.parameters, "offset"}
        beyond = []
        for name, cursor, later in (("after", window.after, True), ("before", window.before, False)):
            if cursor is None:
                continue
            columns, values = listing.order.columns(listing.table), listing.position(cursor)
            bound = [parameter(f"{name}{number}", column.type) for number, column in enumerate(columns)]
            given |= {f"{name}{number}" for number in range(len(columns))}
            if listing.order.first is not None:
                bound[0] = values[0]
            beyond.append(listing.beyond(bound, later=later))
        ids: Any = select(col(listing.table.id).label("id")).where(*listing.conditions, *beyond)
        ids = ids.order_by(*listing.ordering(window)).limit(literal_number(window.size + 1))
        if window.offset:
            ids = ids.offset(parameter("offset", Integer))
        count: Any = select(*(hanging.columns if many else ()), func.count()).where(*listing.conditions)
        if many:
            parents, on = hanging.on_many()
            rows = wanted.spelling.each(parents, ids.where(on), root.table)
            count = count.select_from(parents.join(listing.table, on)).group_by(*hanging.columns)
        else:
            page = ids.where(hanging.on_one()).subquery("page")
            rows = page.join(root.table, root.table.c.id == page.c.id)
            count = count.select_from(listing.table).where(hanging.on_one())
        statement = wanted.select(rows)
        ordered = last = len(wanted.items)
        names = [column.key for column in listing.order.columns(listing.table)] if self._connected.has_cursors else []
        statement = statement.add_columns(*map(root.column, names))
        last += len(names)
        if many:
            statement = statement.add_columns(*(root.column(column.key) for column in hanging.columns))
        elif self._connected.has_total:
            statement = statement.add_columns(count.scalar_subquery())
        statement = statement.order_by(*listing.ordering(window, root.column))
        dialect, parameters = wanted.spelling.dialect, frozenset(given)
        counting = Compiled(count, dialect, parameters) if self._connected.has_total else None
        processors = [root.processor(name) for name in names]
        return Statement(listing, Compiled(statement, dialect, parameters), counting, ordered, last, processors)

    async def _filled(self, run: Run, pages: list[Any]) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = [{} for _ in pages]
        for key, part in self._connected.parts:
            found: list[Any]
            if part is None:
                found = [total for _, total in pages]
            elif isinstance(part, Constant):
                found = [part.value] * len(pages)
            elif isinstance(part, View):
                found = await _nodes(run, part, pages)
            elif isinstance(part, Edges):
                found = await _edges(run, part, pages)
            else:
                found = [_info(part, page) for page, _ in pages]
            for answer, value in zip(answers, found, strict=True):
                answer[key] = value
        return answers


async def _nodes(run: Run, view: View, pages: list[Any]) -> list[list[dict[str, Any]]]:
    flat = await view.fill(run, [row for page, _ in pages for row in page.nodes])
    return split(flat, [len(page.nodes) for page, _ in pages])


async def _edges(run: Run, edges: Edges, pages: list[Any]) -> list[list[dict[str, Any]]]:
    found: list[list[dict[str, Any]]] = [[{} for _ in page.nodes] for page, _ in pages]
    for key, part in edges.parts:
        values: list[list[Any]]
        if part is None:
            values = [[page.cursor(row) for row in page.nodes] for page, _ in pages]
        elif isinstance(part, Constant):
            values = [[part.value] * len(page.nodes) for page, _ in pages]
        else:
            values = await _nodes(run, part, pages)
        for entries, given in zip(found, values, strict=True):
            for entry, value in zip(entries, given, strict=True):
                entry[key] = value
    return found


INFO: dict[str, Callable[[Any], Any]] = {
    "hasNextPage": lambda page: page.has_next,
    "hasPreviousPage": lambda page: page.has_previous,
    "startCursor": lambda page: page.cursor(page.nodes[0]) if page.nodes else None,
    "endCursor": lambda page: page.cursor(page.nodes[-1]) if page.nodes else None,
    "__typename": lambda page: "PageInfo",
}


def _info(parts: list[tuple[str, str]], page: Any) -> dict[str, Any]:
    return {key: INFO[name](page) for key, name in parts}
