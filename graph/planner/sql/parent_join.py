"""Joins the rows of a page to one parent, many, or the project that the same statement finds."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import and_, select, true
from sqlalchemy.inspection import inspect
from sqlmodel import col

from storage import tables
from storage.database.statements.compiled_statements import CompiledStatement, SqlDialect, literal_number, named_parameter
from storage.tables.accounts.members import project_lookup

LEVEL_COLUMNS = 3
"""The viewer's access levels behind the columns of a project."""


class ProjectSubquery:
    """The project of an id or path, as a subquery: its columns, and the viewer's access levels.

    `is_materialized`: evaluated once although rows are joined to it.
    """

    def __init__(self, columns: list[Any], *, by_path: bool, is_materialized: bool) -> None:
        rows, levels, conditions = project_lookup(by_path=by_path)
        labeled_levels = [level.label(f"level{number}") for number, level in enumerate(levels)]
        found = select(*columns, *labeled_levels).select_from(rows).where(*conditions)
        self.rows: Any = found.cte("found_project").prefix_with("MATERIALIZED") if is_materialized else found.subquery("found_project")
        self.by_path = by_path
        self.columns = list(self.rows.c)
        self.parameter_names = frozenset(("user_id", "namespace", "path") if by_path else ("user_id", "id"))

    @property
    def id(self) -> Any:
        return self.rows.c.id


@cache
def project_subquery(names: tuple[str, ...], *, by_path: bool, is_materialized: bool) -> ProjectSubquery:
    """The subquery with these attributes of the project.

    Cached for all plans, because its columns take more memory than the rest of a plan.
    """
    columns = inspect(tables.Project).columns
    return ProjectSubquery([columns[name] for name in names], by_path=by_path, is_materialized=is_materialized)


class ProjectStatement(NamedTuple):
    """A statement that finds a project and what is joined to it.

    `values` are those of its own parameters; the columns of the project begin at `project_offset`; `build_result` makes the answer
    from the project and the rows, and raises what the policy raises.
    """

    statement: CompiledStatement
    values: dict[str, Any]
    project_offset: int
    build_result: Callable[[Any, Sequence[Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class PageFrame:
    """The FROM clause of a page.

    `extra_column` is the position of the parent, or the total; `count_statement` selects (total, position) alone. `page` is the
    subquery that replaces the table; None where the table itself is in the clause.
    """

    from_clause: Any
    extra_column: Any
    count_statement: Any
    page: Any = None


class ListCount(NamedTuple):
    """The statement that counts the rows of a list, and its columns that are the parent's."""

    statement: Any
    parents: list[Any]


class ParentJoin:
    """The condition that joins rows to their parents: by one column, or by a pair. Without one, all rows have the one parent None."""

    def __init__(self, parent: Any, sql_dialect: SqlDialect) -> None:
        keys = () if parent is None else parent if isinstance(parent, tuple) else (parent,)
        self._columns: list[Any] = [col(each) for each in keys]
        self._sql_dialect = sql_dialect
        self._single_names = [f"parent{number}" for number in range(len(self._columns))]
        self._list_names = [f"parents{number}" for number in range(len(self._columns))]
        self.parameter_names = frozenset((*self._single_names, *self._list_names))

    def parameter_values(self, parents: list[Any]) -> dict[str, Any]:
        """The values of the parameters that bind these parents: keys, or tuples of keys if the condition has several columns."""
        if not self._columns:
            return {}
        keys = parents if len(self._columns) > 1 else [(parent,) for parent in parents]
        if len(parents) == 1:
            return dict(zip(self._single_names, keys[0], strict=True))
        return self._sql_dialect.bind_keys(self._list_names, keys)

    def for_one_parent(self, page: Any, count: ListCount, table: Any, *, is_read_twice: bool) -> PageFrame:
        """The FROM clause of the page of one parent.

        `page` selects the needed columns of a page, or on SQLite its ids, and `count` counts a list, both without a condition on parents.
        `table` is the alias that the rest of the statement uses. `is_read_twice`: the statement reads the page twice, so that it is a
        common table expression on PostgreSQL.
        """
        found = page.where(*self._parent_conditions(self._columns))
        counted = count.statement.where(*self._parent_conditions(count.parents))
        total, count_statement = counted.scalar_subquery(), counted.add_columns(literal_number(0))
        if self._sql_dialect.is_sqlite:
            ids = found.subquery("page")
            return PageFrame(ids.join(table, table.c.id == ids.c.id), total, count_statement)
        rows = found.cte(table.name) if is_read_twice else found.subquery(table.name)
        return PageFrame(rows, total, count_statement, rows)

    def for_many_parents(self, page: Any, count: ListCount, table: Any, *, is_read_twice: bool) -> PageFrame:
        """As `for_one_parent`, for the pages of a list of parents: a lateral join, which also selects the position of each parent."""
        parents = self._sql_dialect.key_table(self._list_names, [column.type for column in self._columns])
        on, counted_on = (
            and_(*(column == parents.c[name] for column, name in zip(columns, self._list_names, strict=True)))
            for columns in (self._columns, count.parents)
        )
        position = parents.c.position
        counted = count.statement.add_columns(position).join(parents, counted_on).group_by(position)
        rows, found = self._sql_dialect.join_pages(parents, page.where(on), table)
        if is_read_twice:
            pages = select(position.label("parent_position"), *found.c).select_from(rows).cte(table.name)
            return PageFrame(pages, pages.c.parent_position, counted, pages)
        return PageFrame(rows, position, counted, None if self._sql_dialect.is_sqlite else found)

    def for_project_subquery(
        self, subquery: ProjectSubquery, page: Any, count: ListCount, table: Any, *, with_total: bool, is_read_twice: bool
    ) -> PageFrame:
        """As `for_one_parent`, for the project that the same statement finds; PostgreSQL only. `with_total`: also selects the total."""
        (column,) = self._columns
        rows, total = subquery.rows, None
        if with_total:
            # Once as well.
            (counted,) = count.parents
            totals = count.statement.join(subquery.rows, counted == subquery.id).cte("counted").prefix_with("MATERIALIZED")
            rows, (total,) = rows.join(totals, true()), totals.c
        if is_read_twice:
            found = page.where(column == select(subquery.id).scalar_subquery()).cte(table.name)
        else:
            found = page.where(column == subquery.id).lateral(table.name)
        return PageFrame(
            rows.outerjoin(found, true()),
            total,
            count.statement.where(*self._parent_conditions(count.parents)).add_columns(literal_number(0)),
            found,
        )

    def _parent_conditions(self, columns: list[Any]) -> list[Any]:
        return [column == named_parameter(name, column.type) for column, name in zip(columns, self._single_names, strict=True)]
