"""How the rows of a page hang on its parent: on one that is known, on each of many, or on the project that the same statement finds."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import and_, select, true
from sqlmodel import col

from storage.compiled import Compiled, Spelling, literal_number, parameter
from storage.tables.members import entrance


class EnteredProject:
    """The project that an operation enters by its id or its path, as a part of the statement: these columns of it, and the levels that the
    viewer has in it. `once`: rows are joined to it, for each of which it would be looked up."""

    def __init__(self, columns: list[Any], *, by_path: bool, once: bool) -> None:
        rows, levels, conditions = entrance(by_path=by_path)
        named = [level.label(f"level{number}") for number, level in enumerate(levels)]
        found = select(*columns, *named).select_from(rows).where(*conditions)
        self.rows: Any = found.cte("entered").prefix_with("MATERIALIZED") if once else found.subquery("entered")
        self.by_path = by_path
        self.columns = list(self.rows.c)
        self.parameters = frozenset(("user_id", "namespace", "path") if by_path else ("user_id", "id"))

    @property
    def id(self) -> Any:
        return self.rows.c.id


class Entering(NamedTuple):
    """What comes with the project that is entered: the statement, the values of its own parameters, where the columns of the entrance begin
    in its rows, and what makes the answer of the project and the rows, and raises what the policy raises."""

    statement: Compiled
    values: dict[str, Any]
    place: int
    answer: Callable[[Any, Sequence[Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Frame:
    """What a page is read within: `rows` are what all that is wanted of it is selected from, `beside` is what stands in each row of the
    parents' places or the total, `count` counts for itself and gives (total, place). `page` is the part of `rows` that stands for the
    table; None where that is itself among them."""

    rows: Any
    beside: Any
    count: Any
    page: Any = None


class Hanging:
    """How rows hang on their parents: by a column, or by a pair of them."""

    def __init__(self, parent: Any, spelling: Spelling) -> None:
        self._columns: list[Any] = [col(each) for each in (parent if isinstance(parent, tuple) else (parent,))]
        self._spelling = spelling
        self._ones = [f"parent{number}" for number in range(len(self._columns))]
        self._lists = [f"parents{number}" for number in range(len(self._columns))]
        self.parameters = frozenset((*self._ones, *self._lists))

    def values(self, parents: list[Any]) -> dict[str, Any]:
        """The values of the parameters."""
        keys = parents if len(self._columns) > 1 else [(parent,) for parent in parents]
        if len(parents) == 1:
            return dict(zip(self._ones, keys[0], strict=True))
        return self._spelling.listed_keys(self._lists, keys)

    # `page` selects the wanted columns of the rows of a page, or on SQLite their ids, and `count` counts those of a list, both whatever
    # they hang on; `table` is the table under the name by which it is known outside.

    def on_one(self, page: Any, count: Any, table: Any) -> Frame:
        found, counted = page.where(self._on_one()), count.where(self._on_one())
        beside, alone = counted.scalar_subquery(), counted.add_columns(literal_number(0))
        if self._spelling.is_sqlite:
            ids = found.subquery("page")
            return Frame(ids.join(table, table.c.id == ids.c.id), beside, alone)
        rows = found.subquery(table.name)
        return Frame(rows, beside, alone, rows)

    def on_many(self, page: Any, count: Any, table: Any) -> Frame:
        parents = self._spelling.keys(self._lists, [column.type for column in self._columns])
        on = and_(*(column == parents.c[name] for column, name in zip(self._columns, self._lists, strict=True)))
        place = parents.c.place
        counted = count.add_columns(place).join(parents, on).group_by(place)
        if self._spelling.is_sqlite:
            rows = parents.join(table, table.c.id.in_(page.where(on).correlate(parents)))
            return Frame(rows, place, counted)
        found = page.where(on).lateral(table.name)
        return Frame(parents.join(found, true()), place, counted, found)

    def on_entered(self, entrance: EnteredProject, page: Any, count: Any, table: Any, *, counted: bool) -> Frame:
        """On PostgreSQL."""
        (column,) = self._columns
        rows, total = entrance.rows, None
        if counted:
            # Once as well.
            totals = count.join(entrance.rows, column == entrance.id).cte("counted").prefix_with("MATERIALIZED")
            rows, (total,) = rows.join(totals, true()), totals.c
        found = page.where(column == entrance.id).lateral(table.name)
        return Frame(rows.outerjoin(found, true()), total, count.where(self._on_one()).add_columns(literal_number(0)), found)

    def _on_one(self) -> Any:
        return and_(*(column == parameter(name, column.type) for column, name in zip(self._columns, self._ones, strict=True)))
