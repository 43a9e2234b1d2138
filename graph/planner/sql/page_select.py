"""The statements of pages of a list: for one parent, for many, or for the project that the same statement finds.

A statement selects the ids of a page in the order of the list and joins the rest to them, so that only the rows of the page are
joined. For several parents it selects a page for each by a lateral join, so that an index serves each of them. On PostgreSQL the lists of
names of all rows are read at once, such as the titles of their labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from sqlalchemy import Integer

from graph.fields.connection_pages import Window
from graph.fields.keyset_listing import KeysetListing
from graph.planner.sql.parent_join import ListCount, ParentJoin, ProjectSubquery
from graph.planner.sql.select_builder import VIEWER_PARAMETERS, SelectBuilder
from storage.database.statements.compiled_statements import CompiledStatement, SqlDialect, literal_number, named_parameter, substitute_table


@dataclass(frozen=True, slots=True)
class PageNeeds:
    """What is selected of a page beside the columns of its rows."""

    total: bool
    cursors: bool
    next_row: bool
    """One more row, which shows whether the page is the last."""


@dataclass(frozen=True, slots=True)
class PageStatement:
    """A statement for pages with certain arguments.

    The values of the ordering are at `order_indexes`; at `extra_index` is the total or, for several parents, the position of the parent;
    at `id_index` the row's own id where the project is joined, whose columns begin at `project_offset`. `count_statement` counts where the
    page has no rows to do so.
    `is_descending` says how Python sorts the rows by the values of the ordering; None: the database has sorted them.
    """

    listing: KeysetListing
    page: CompiledStatement
    count_statement: CompiledStatement | None
    order_indexes: list[int]
    extra_index: int
    id_index: int | None
    project_offset: int
    processors: list[Any]
    is_descending: bool | None

    @property
    def size(self) -> int:
        """Estimated memory in bytes."""
        return 2_000 + self.page.size + (self.count_statement.size if self.count_statement is not None else 0)

    def sort(self, rows: Sequence[Any]) -> Sequence[Any]:
        if self.is_descending is None or len(rows) < 2:
            return rows
        return sorted(rows, key=itemgetter(*self.order_indexes), reverse=self.is_descending)

    def cursor(self, row: Any) -> str:
        values = zip(self.order_indexes, self.processors, strict=True)
        return self.listing.cursor_of(row[index] if process is None else process(row[index]) for index, process in values)


def _cursor_conditions(
    listing: KeysetListing, window: Window, columns: Sequence[Any], sql_dialect: SqlDialect
) -> tuple[list[Any], list[str]]:
    """The conditions of the cursors of a page, and the names of their parameters, as `after0`. Raises what `cursor_values` raises."""
    conditions, names = [], list[str]()
    for name, cursor, later in (("after", window.after, True), ("before", window.before, False)):
        if cursor is None:
            continue
        values = listing.cursor_values(cursor)
        own_names = [f"{name}{number}" for number in range(len(columns))]
        bound = [sql_dialect.hide_from_planner(named_parameter(each, column.type)) for each, column in zip(own_names, columns, strict=True)]
        if listing.order.first is not None:
            bound[0] = values[0]
        conditions.append(listing.seek_condition(bound, later=later))
        names += own_names
    return conditions, names


def compile_page(
    select_builder: SelectBuilder,
    parent_join: ParentJoin,
    needs: PageNeeds,
    listing: KeysetListing,
    window: Window,
    *,
    many: bool,
    subquery: ProjectSubquery | None,
    varying: Mapping[int, str],
) -> PageStatement:
    """The statement of the pages of one parent, of `many`, or of the project of `subquery`.

    `varying` are the names of parameters by the ids of those values in the conditions that differ between runs.
    """
    sql_dialect, root = select_builder.sql_dialect, select_builder.root
    columns = listing.order.columns(listing.table)
    cursor_conditions, cursor_names = _cursor_conditions(listing, window, columns, sql_dialect)
    parameter_names = {*parent_join.parameter_names, *VIEWER_PARAMETERS, *cursor_names, "offset"}
    ordering = listing.order_by(window, root.column)
    # Sorted again by the statement, the rows of a page would be written and read once more, with all that was joined to them.
    sorts_in_python = listing.order.first is None and sql_dialect.has_python_order(columns)
    names = [column.key for column in columns] if needs.cursors or sorts_in_python else []
    extra_columns = [*map(root.column, names), *([] if subquery is None else [root.column("id")])]
    page_columns = ["id"] if sql_dialect.is_sqlite else select_builder.find_root_columns(*ordering, *extra_columns)
    page: Any = listing.select_from(*(listing.table.__table__.c[name] for name in page_columns))
    page = (
        page.where(*listing.conditions, *cursor_conditions)
        .order_by(*listing.order_by(window))
        .limit(literal_number(window.size + needs.next_row))
    )
    if window.offset:
        page = page.offset(named_parameter("offset", Integer))
    count = ListCount(*listing.count_select())
    is_read_twice = bool(select_builder.name_lists) and not sql_dialect.is_sqlite
    if subquery is not None:
        frame = parent_join.for_project_subquery(subquery, page, count, root.table, with_total=needs.total, is_read_twice=is_read_twice)
    else:
        make_frame = parent_join.for_many_parents if many else parent_join.for_one_parent
        frame = make_frame(page, count, root.table, is_read_twice=is_read_twice)
    statement = select_builder.build_select(frame.from_clause, frame.page if is_read_twice else None)
    indexes: dict[str, int] = {}
    appended: list[str] = []
    for name in names if subquery is None else (*names, "id"):
        index = root.find_index(name)
        if index is None:
            index = len(select_builder.expressions) + len(appended)
            appended.append(name)
        indexes[name] = index
    extra_index = project_offset = len(select_builder.expressions) + len(appended)
    statement = statement.add_columns(*map(root.column, appended))
    if many or needs.total:
        statement = statement.add_columns(frame.extra_column)
        project_offset += 1
    if subquery is not None:
        statement = statement.add_columns(*subquery.columns)
        parameter_names |= subquery.parameter_names
    if not sorts_in_python:
        statement = statement.order_by(*ordering)
    if frame.page is not None:
        statement = substitute_table(frame.page, root.table, statement)
    parameters = frozenset(parameter_names)
    count_statement = CompiledStatement(frame.count_statement, sql_dialect.dialect, parameters, varying) if needs.total else None
    processors = [root.processor(name) for name in names]
    is_descending = listing.order.descending is not window.backward if sorts_in_python else None
    # Its conditions hold the values of the filter once more.
    listing = replace(listing, conditions=(), counters=None)
    return PageStatement(
        listing,
        CompiledStatement(statement, sql_dialect.dialect, parameters, varying),
        count_statement,
        [indexes[name] for name in names],
        extra_index,
        indexes.get("id"),
        project_offset,
        processors,
        is_descending,
    )
