"""How the rows of a page hang on its parent: on one that is known, on each of many, or on the project that the same statement finds."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import and_, select, true
from sqlmodel import col

from storage.database.compiled_statements import CompiledStatement, SqlDialect, literal_number, named_parameter
from storage.tables.members import project_lookup


class ProjectSubquery:
    """The project that an operation enters by its id or its path, as a part of the statement: these columns of it, and the levels that the
    viewer has in it. `is_materialized`: rows are joined to it, for each of which it would be looked up."""

    def __init__(self, columns: list[Any], *, by_path: bool, is_materialized: bool) -> None:
        rows, levels, conditions = project_lookup(by_path=by_path)
        labeled_levels = [level.label(f"level{number}") for number, level in enumerate(levels)]
        found = select(*columns, *labeled_levels).select_from(rows).where(*conditions)
        self.rows: Any = found.cte("entered").prefix_with("MATERIALIZED") if is_materialized else found.subquery("entered")
        self.by_path = by_path
        self.columns = list(self.rows.c)
        self.parameter_names = frozenset(("user_id", "namespace", "path") if by_path else ("user_id", "id"))

    @property
    def id(self) -> Any:
        return self.rows.c.id


class ProjectStatement(NamedTuple):
    """What comes with the project that is entered: the statement, the values of its own parameters, where the columns of the entrance begin
    in its rows, and what makes the answer of the project and the rows, and raises what the policy raises."""

    statement: CompiledStatement
    values: dict[str, Any]
    project_offset: int
    build_result: Callable[[Any, Sequence[Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class PageFrame:
    """What a page is read within: `from_clause` are what all that is wanted of it is selected from, `extra_column` is what stands in each
    row of the parents' places or the total, `count_statement` counts for itself and gives (total, place). `page` is the part of
    `from_clause` that stands for the table; None where that is itself among them."""

    from_clause: Any
    extra_column: Any
    count_statement: Any
    page: Any = None


class ParentJoin:
    """How rows hang on their parents: by a column, or by a pair of them."""

    def __init__(self, parent: Any, sql_dialect: SqlDialect) -> None:
        self._columns: list[Any] = [col(each) for each in (parent if isinstance(parent, tuple) else (parent,))]
        self._sql_dialect = sql_dialect
        self._single_names = [f"parent{number}" for number in range(len(self._columns))]
        self._list_names = [f"parents{number}" for number in range(len(self._columns))]
        self.parameter_names = frozenset((*self._single_names, *self._list_names))

    def parameter_values(self, parents: list[Any]) -> dict[str, Any]:
        """The values of the parameters."""
        keys = parents if len(self._columns) > 1 else [(parent,) for parent in parents]
        if len(parents) == 1:
            return dict(zip(self._single_names, keys[0], strict=True))
        return self._sql_dialect.bind_keys(self._list_names, keys)

    # `page` selects the wanted columns of the rows of a page, or on SQLite their ids, and `count` counts those of a list, both whatever
    # they hang on; `table` is the table under the name by which it is known outside.

    def for_one_parent(self, page: Any, count: Any, table: Any) -> PageFrame:
        found, counted = page.where(self._parent_condition()), count.where(self._parent_condition())
        total, count_statement = counted.scalar_subquery(), counted.add_columns(literal_number(0))
        if self._sql_dialect.is_sqlite:
            ids = found.subquery("page")
            return PageFrame(ids.join(table, table.c.id == ids.c.id), total, count_statement)
        rows = found.subquery(table.name)
        return PageFrame(rows, total, count_statement, rows)

    def for_many_parents(self, page: Any, count: Any, table: Any) -> PageFrame:
        parents = self._sql_dialect.key_table(self._list_names, [column.type for column in self._columns])
        on = and_(*(column == parents.c[name] for column, name in zip(self._columns, self._list_names, strict=True)))
        position = parents.c.position
        counted = count.add_columns(position).join(parents, on).group_by(position)
        if self._sql_dialect.is_sqlite:
            rows = parents.join(table, table.c.id.in_(page.where(on).correlate(parents)))
            return PageFrame(rows, position, counted)
        found = page.where(on).lateral(table.name)
        return PageFrame(parents.join(found, true()), position, counted, found)

    def for_project_subquery(self, subquery: ProjectSubquery, page: Any, count: Any, table: Any, *, with_total: bool) -> PageFrame:
        """On PostgreSQL."""
        (column,) = self._columns
        rows, total = subquery.rows, None
        if with_total:
            # Once as well.
            totals = count.join(subquery.rows, column == subquery.id).cte("counted").prefix_with("MATERIALIZED")
            rows, (total,) = rows.join(totals, true()), totals.c
        found = page.where(column == subquery.id).lateral(table.name)
        return PageFrame(rows.outerjoin(found, true()), total, count.where(self._parent_condition()).add_columns(literal_number(0)), found)

    def _parent_condition(self) -> Any:
        return and_(*(column == named_parameter(name, column.type) for column, name in zip(self._columns, self._single_names, strict=True)))
