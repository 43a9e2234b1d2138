"""The pages of declared connections: the rows of a level's pages come by one statement, with all that is selected of them.

The statement takes the page's ids in the order of the list, and joins to them what is wanted; so no more rows are joined than are shown.
For several parents it takes a page for each, so that an index gives each of them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from sqlalchemy import Integer, func, select

from graph.connections import Listing, Page, Window, paged
from graph.declare import ToMany, for_viewer, spelled, window_of
from graph.planning.completing import split
from graph.planning.hanging import EnteredProject, Entering, Hanging
from graph.planning.running import Run
from graph.planning.sources import Wanted
from graph.planning.views import Constant, View
from storage.caches import CacheBounds, LruCache
from storage.compiled import Compiled, literal_number, parameter, standing_for

PAGE_STATEMENTS = CacheBounds("page statements", max_entries=2_000, max_bytes=6 * 2**20)
"""Of all plans together: the values of filters stand in them."""


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
    def goes_on(self) -> bool:
        """Whether it is to be told that a page has rows behind it, for which one row more is read."""
        return any(isinstance(part, list) for _, part in self.parts)

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
    several parents, the parent's place among them stands, `own` where the row's own id stands beside an entrance; `count` counts for
    itself what the page cannot tell. `descending` says how to sort the rows by the values of the ordering; None: they come sorted."""

    listing: Listing
    page: Compiled
    count: Compiled | None
    ordered: int
    last: int
    own: int
    processors: list[Any]
    descending: bool | None
    keys: set[Any]
    """The keys of all statements of the field, of which this has one."""

    def sorted(self, rows: Sequence[Any]) -> Sequence[Any]:
        if self.descending is None or len(rows) < 2:
            return rows
        ordered, last = self.ordered, self.last
        return sorted(rows, key=lambda row: row[ordered:last], reverse=self.descending)

    def cursor(self, row: Any) -> str:
        values = zip(row[self.ordered : self.last], self.processors, strict=True)
        return self.listing.cursor_of(value if process is None else process(value) for value, process in values)


@dataclass(slots=True)
class Level:
    """The pages of all parents: the rows on show, all in one list, and what is known of each page. `places` are the rows' parents, by
    their places among all; None: the rows stand page by page."""

    rows: Sequence[Any]
    totals: list[int]
    cursor: Callable[[Any], str]
    places: list[int] | None = None
    pages: list[Page] | None = None
    """Known where it is asked whether there are rows behind and before them, or where they are read from their ends."""

    def by_page(self, values: list[Any]) -> list[list[Any]]:
        """What was made of the rows, page by page."""
        if self.places is None:
            return [values] if self.pages is None else split(values, [len(page.nodes) for page in self.pages])
        return grouped(self.places, values, len(self.totals))


def grouped(places: Iterable[int], values: Iterable[Any], number: int) -> list[list[Any]]:
    found: list[list[Any]] = [[] for _ in range(number)]
    for place, value in zip(places, values, strict=True):
        found[place].append(value)
    return found


def statement_size(key: tuple[Any, ...], statement: Statement) -> int:
    """Estimates the bytes of a statement. The values of its filter stand in the key, and are bound to it."""
    return statement.page.size + (statement.count.size if statement.count is not None else 0) + 2_000 + 2 * _characters(key)


def _characters(part: Any) -> int:
    if isinstance(part, tuple):
        return sum(map(_characters, part))
    return len(part) if isinstance(part, str) else 0


_STATEMENTS: LruCache[Any, Statement] = LruCache(PAGE_STATEMENTS, statement_size, lambda key, statement: statement.keys.discard(key))
_NUMBERS = count()


class Pages:
    """A field that is a page of rows for each object of a level. `shown` is what of the connection stands in its place, if not all."""

    def __init__(self, key: str, declared: ToMany, arguments: int | None, wanted: Wanted, connected: Connected, shown: str | None) -> None:
        self.key = key
        self._declared = declared
        self._arguments = arguments
        self._wanted = wanted
        self._hanging = Hanging(declared.listing.parent, wanted.spelling)
        self._connected = connected
        self._shown = shown
        self._number = next(_NUMBERS)
        self._keys: set[Any] = set()

    def __del__(self, statements: Any = _STATEMENTS) -> None:
        """Its statements go with its plan."""
        for key in self._keys:
            statements.pop(key)

    @property
    def of(self) -> str:
        """The attribute of the objects on which the rows hang."""
        return self._declared.of

    @property
    def is_judged(self) -> bool:
        """Whether the policy looks at the objects."""
        return self._declared.action is not None

    @property
    def hangs_on_projects(self) -> bool:
        """Where the objects are projects: whether it takes no more of them than their ids."""
        return self.of == "id" and not isinstance(self._declared.listing.parent, tuple)

    @property
    def is_sqlite(self) -> bool:
        return self._wanted.spelling.is_sqlite

    async def fill_in(self, run: Run, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
        """Raises what the policy and the arguments raise."""
        arguments = self._given(run)
        await self._declared.require(run.context, arguments, objects)
        window = window_of(arguments)
        parents = [getattr(each, self.of) for each in objects]
        distinct = list(dict.fromkeys(parents))
        many = len(distinct) > 1
        statement = self._statement(arguments, window, many)
        values = self._values(statement, window, distinct)
        rows = await run.context.session.fetch(statement.page.text, statement.page.values(values))
        filled = await self._filled(run, await self._level(run, statement, window, values, statement.sorted(rows), len(distinct)))
        by_parent = dict(zip(distinct, filled, strict=True))
        for parent, answer in zip(parents, answers, strict=True):
            answer[self.key] = by_parent[parent]

    def entering(self, run: Run, entrance: EnteredProject) -> Entering:
        """Raises what the arguments raise."""
        arguments = self._given(run)
        window = window_of(arguments)
        statement = self._statement(arguments, window, False, entrance)

        async def answer(project: Any, rows: Sequence[Any]) -> Any:
            await self._declared.require(run.context, arguments, (project,))
            own = statement.own
            found = [row for row in rows if row[own] is not None]
            values = self._values(statement, window, [project.id])
            (filled,) = await self._filled(run, await self._level(run, statement, window, values, found, 1))
            return filled

        return Entering(statement.page, self._values(statement, window, None), statement.own + 1, answer)

    def _given(self, run: Run) -> dict[str, Any]:
        return for_viewer(run.context, run.arguments[self._arguments]) if self._arguments is not None else {}

    def _values(self, statement: Statement, window: Window, parents: list[Any] | None) -> dict[str, Any]:
        """The values of the statement's parameters; `parents` None: they are not known yet."""
        values: dict[str, Any] = {"offset": window.offset}
        if parents is not None:
            values |= self._hanging.values(parents)
        for name, cursor in (("after", window.after), ("before", window.before)):
            if cursor is not None:
                values |= {f"{name}{number}": value for number, value in enumerate(statement.listing.position(cursor))}
        return values

    async def _level(
        self, run: Run, statement: Statement, window: Window, values: dict[str, Any], rows: Sequence[Any], number: int
    ) -> Level:
        """The pages of so many parents in the rows that the statement gave."""
        many = number > 1
        last = statement.last
        totals = [0] * number
        if statement.count is not None:
            if not many and rows:
                totals = [rows[0][last]]
            elif many or not window.size or window.offset or window.after or window.before:
                for total, place in await run.context.session.fetch(statement.count.text, statement.count.values(values)):
                    totals[place] = total
        places = [row[last] for row in rows] if many else None
        if not self._connected.goes_on and not window.backward:
            return Level(rows, totals, statement.cursor, places)
        each = grouped(places, rows, number) if places is not None else [list(rows)]
        pages = [paged(page, window, statement.cursor) for page in each]
        return Level([row for page in pages for row in page.nodes], totals, statement.cursor, pages=pages)

    def _statement(self, arguments: dict[str, Any], window: Window, many: bool, entrance: EnteredProject | None = None) -> Statement:
        order = arguments.get("order_by")
        listing: Listing | None = None
        cursors: Any = (window.after is not None, window.before is not None)
        if cursors != (False, False):
            listing = self._declared.narrowed(arguments)
            if listing.order.first is not None:
                # How such a list goes on depends on the value.
                cursors = (window.after, window.before)
        within = many if entrance is None else entrance.by_path, entrance is None
        key = (
            self._number,
            *within,
            self._declared.narrowing(arguments),
            spelled(order),
            window.size,
            window.backward,
            window.offset > 0,
            cursors,
        )
        found = _STATEMENTS.get(key)
        if found is None:
            found = self._made(listing or self._declared.narrowed(arguments), window, many, entrance)
            self._keys.add(key)
            _STATEMENTS.put(key, found)
        return found

    def _made(self, listing: Listing, window: Window, many: bool, entrance: EnteredProject | None) -> Statement:
        wanted, root, hanging, connected = self._wanted, self._wanted.root, self._hanging, self._connected
        given = {*hanging.parameters, "offset"}
        columns = listing.order.columns(listing.table)
        beyond = []
        for name, cursor, later in (("after", window.after, True), ("before", window.before, False)):
            if cursor is None:
                continue
            values = listing.position(cursor)
            bound = [wanted.spelling.unseen(parameter(f"{name}{number}", column.type)) for number, column in enumerate(columns)]
            given |= {f"{name}{number}" for number in range(len(columns))}
            if listing.order.first is not None:
                bound[0] = values[0]
            beyond.append(listing.beyond(bound, later=later))
        ordering = listing.ordering(window, root.column)
        # Sorted again by the statement, the rows of a page would be written and read once more, with all that was joined to them.
        sorts = listing.order.first is None and wanted.spelling.sorts_alike(columns)
        names = [column.key for column in columns] if connected.has_cursors or sorts else []
        beside = [*map(root.column, names), *([] if entrance is None else [root.column("id")])]
        kept = ["id"] if wanted.spelling.is_sqlite else wanted.columns(*ordering, *beside)
        page: Any = select(*(listing.table.__table__.c[name] for name in kept)).where(*listing.conditions, *beyond)
        page = page.order_by(*listing.ordering(window)).limit(literal_number(window.size + connected.goes_on))
        if window.offset:
            page = page.offset(parameter("offset", Integer))
        count = select(func.count()).select_from(listing.table).where(*listing.conditions)
        if entrance is not None:
            frame = hanging.on_entered(entrance, page, count, root.table, counted=connected.has_total)
        else:
            frame = (hanging.on_many if many else hanging.on_one)(page, count, root.table)
        statement = wanted.select(frame.rows).add_columns(*map(root.column, names))
        ordered = len(wanted.items)
        last = own = ordered + len(names)
        if many or connected.has_total:
            statement = statement.add_columns(frame.beside)
            own += 1
        if entrance is not None:
            statement = statement.add_columns(root.column("id"), *entrance.columns)
            given |= entrance.parameters
        if not sorts:
            statement = statement.order_by(*ordering)
        if frame.page is not None:
            statement = standing_for(frame.page, root.table, statement)
        dialect, parameters = wanted.spelling.dialect, frozenset(given)
        counting = Compiled(frame.count, dialect, parameters) if connected.has_total else None
        processors = [root.processor(name) for name in names]
        descending = listing.order.descending is not window.backward if sorts else None
        # Its conditions hold the values of the filter once more.
        listing = replace(listing, conditions=())
        return Statement(
            listing, Compiled(statement, dialect, parameters), counting, ordered, last, own, processors, descending, self._keys
        )

    async def _filled(self, run: Run, level: Level) -> list[Any]:
        answers: list[dict[str, Any]] = [{} for _ in level.totals]
        for key, part in self._connected.parts:
            found: list[Any]
            if part is None:
                found = level.totals
            elif isinstance(part, Constant):
                found = [part.value] * len(answers)
            elif isinstance(part, View):
                found = level.by_page(await part.fill(run, level.rows))
            elif isinstance(part, Edges):
                found = level.by_page(await _edges(run, part, level))
            else:
                found = [_info(part, page) for page in level.pages or ()]
            for answer, value in zip(answers, found, strict=True):
                answer[key] = value
        shown = self._shown
        return answers if shown is None else [answer[shown] for answer in answers]


async def _edges(run: Run, edges: Edges, level: Level) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{} for _ in level.rows]
    for key, part in edges.parts:
        values: list[Any]
        if part is None:
            values = [level.cursor(row) for row in level.rows]
        elif isinstance(part, Constant):
            values = [part.value] * len(found)
        else:
            values = await part.fill(run, level.rows)
        for entry, value in zip(found, values, strict=True):
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
