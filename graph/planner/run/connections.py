"""Runs `ConnectionStep`: fetches the pages of a level, and serializes them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graph.errors import OperationError
from graph.fields.connection_pages import ConnectionPage, Window, make_page
from graph.fields.declarations import bind_filter_to_viewer, cached_repr, make_window
from graph.fields.filter_values import varying_values, with_distinct_values
from graph.fields.keyset_listing import KeysetListing
from graph.planner.codegen.row_serializer import split_by_lengths
from graph.planner.ir.connection_step import ConnectionStep, CursorField, EdgesSelection, TotalCount
from graph.planner.ir.row_view import ConstantPart, RowView
from graph.planner.run.levels import NODE_EXECUTORS
from graph.planner.run.row_views import execute_view
from graph.planner.run.state import PlanRun
from graph.planner.sql.page_select import PageStatement, compile_page
from graph.planner.sql.parent_join import ProjectStatement, ProjectSubquery
from graph.rules.permissions.sql_policy import SQL_VIEWER
from storage.database.statements.compiled_statements import COMPILATIONS, CompiledStatement


async def _execute_connection(node: ConnectionStep, run: PlanRun, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
    """Raises what the policy and the arguments raise below a list."""
    if COMPILATIONS.are_new:
        await COMPILATIONS.let_others_run()
    try:
        arguments = _bind_arguments(node, run)
        objects, answers = await _filter_allowed(node, run, arguments, objects, answers)
        if not objects:
            return
        parents = node.parent_keys(objects)
        distinct = list(dict.fromkeys(parents))
        window = make_window(arguments)
        statement = _find_statement(node, run, arguments, window, many=len(distinct) > 1)
        values = _parameter_values(node, run, statement, arguments, window, distinct)
    except OperationError as error:
        run.report(node.position, error)
        return
    rows = await run.context.session.fetch(statement.page.sql, statement.page.bind(values), statement.page.text_columns)
    level = await _read_level(node, run, statement, window, values, statement.sort(rows), len(distinct))
    by_parent = dict(zip(distinct, await _serialize_level(node, run, level), strict=True))
    for parent, answer in zip(parents, answers, strict=True):
        answer[node.key] = by_parent[parent]


NODE_EXECUTORS[ConnectionStep] = _execute_connection


async def _filter_allowed(
    node: ConnectionStep, run: PlanRun, arguments: dict[str, Any], objects: Sequence[Any], answers: list[dict[str, Any]]
) -> tuple[Sequence[Any], list[dict[str, Any]]]:
    """The objects, with their answers, whose lists the viewer may read. Below a list the refusal of another one is reported.

    Raises the refusal where it cannot be.
    """
    try:
        await node.declared.require(run.context, arguments, objects)
        return objects, answers
    except OperationError:
        if node.position is not None or not node.is_nullable:
            raise
    allowed: list[tuple[Any, dict[str, Any]]] = []
    for each, answer in zip(objects, answers, strict=True):
        try:
            await node.declared.require(run.context, arguments, (each,))
            allowed.append((each, answer))
        except OperationError as error:
            run.report_row(answer, node.key, error)
    return [each for each, _ in allowed], [answer for _, answer in allowed]


def join_page_to_project(node: ConnectionStep, run: PlanRun, subquery: ProjectSubquery) -> ProjectStatement:
    """Raises what the arguments raise."""
    arguments = _bind_arguments(node, run)
    window = make_window(arguments)
    statement = _find_statement(node, run, arguments, window, many=False, subquery=subquery)

    async def build_result(project: Any, rows: Sequence[Any]) -> Any:
        try:
            await node.declared.require(run.context, arguments, (project,))
        except OperationError as error:
            run.report(node.position, error)
            return None
        id_index = statement.id_index
        found = [row for row in rows if row[id_index] is not None]
        values = _parameter_values(node, run, statement, arguments, window, [project.id])
        (filled,) = await _serialize_level(node, run, await _read_level(node, run, statement, window, values, found, 1))
        return filled

    return ProjectStatement(
        statement.page, _parameter_values(node, run, statement, arguments, window, None), statement.project_offset, build_result
    )


def page_statements(node: ConnectionStep, run: PlanRun, *, many: bool) -> list[tuple[CompiledStatement, dict[str, Any]]]:
    """The statements of pages and of their totals, with the values of all parameters except the parents."""
    arguments = _bind_arguments(node, run)
    window = make_window(arguments)
    statement = _find_statement(node, run, arguments, window, many=many)
    values = _parameter_values(node, run, statement, arguments, window, None)
    counts = [] if statement.count_statement is None or not many else [statement.count_statement]
    return [(each, values) for each in (statement.page, *counts)]


def _bind_arguments(node: ConnectionStep, run: PlanRun) -> dict[str, Any]:
    return bind_filter_to_viewer(run.context, run.arguments[node.arguments]) if node.arguments is not None else {}


def _find_statement(
    node: ConnectionStep,
    run: PlanRun,
    arguments: dict[str, Any],
    window: Window,
    *,
    many: bool,
    subquery: ProjectSubquery | None = None,
) -> PageStatement:
    declared = node.declared
    listing: KeysetListing | None = None
    cursors: Any = (window.after is not None, window.before is not None)
    viewer = SQL_VIEWER
    if declared.viewer_conditions is not None:
        viewer = replace(SQL_VIEWER, is_admin=run.context.viewer.admin)
    if cursors != (False, False):
        listing = declared.filtered_listing(arguments, viewer)
        if listing.order.first is not None:
            # How such a list goes on depends on the value.
            cursors = (window.after, window.before)
    variant = (
        many if subquery is None else subquery.by_path,
        subquery is None,
        viewer.is_admin if declared.viewer_conditions is not None else None,
        declared.filter_key(arguments),
        cached_repr(arguments.get("order_by")),
        window.size,
        window.backward,
        window.offset > 0,
        cursors,
    )

    def compile_statement() -> PageStatement:
        distinct, names_by_id = with_distinct_values(arguments.get("filter"))
        filtered = declared.filtered_listing({**arguments, "filter": distinct}, viewer)
        needs = node.connected.needs
        return compile_page(
            node.select_builder, node.parent_join, needs, filtered, window, many=many, subquery=subquery, varying=names_by_id
        )

    return run.statements.find(node.node_id, variant, compile_statement)


def _parameter_values(
    node: ConnectionStep,
    run: PlanRun,
    statement: PageStatement,
    arguments: dict[str, Any],
    window: Window,
    parents: list[Any] | None,
) -> dict[str, Any]:
    """The values of the statement's parameters; `parents` None: they are not known yet."""
    values: dict[str, Any] = {
        "offset": window.offset,
        **run.viewer_values(node.select_builder),
        **varying_values(arguments.get("filter")),
    }
    if parents is not None:
        values |= node.parent_join.parameter_values(parents)
    for name, cursor in (("after", window.after), ("before", window.before)):
        if cursor is not None:
            values |= {f"{name}{number}": value for number, value in enumerate(statement.listing.cursor_values(cursor))}
    return values


# The pages of a level


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


async def _read_level(
    node: ConnectionStep, run: PlanRun, statement: PageStatement, window: Window, values: dict[str, Any], rows: Sequence[Any], number: int
) -> LevelPages:
    """The pages of `number` parents in the rows of the statement."""
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
    if not node.connected.has_page_info and not window.backward:
        return LevelPages(rows, totals, statement.cursor, parent_indexes)
    each = group_by_index(parent_indexes, rows, number) if parent_indexes is not None else [list(rows)]
    pages = [make_page(page, window, statement.cursor) for page in each]
    return LevelPages([row for page in pages for row in page.nodes], totals, statement.cursor, pages=pages)


# Their answers


async def _serialize_level(node: ConnectionStep, run: PlanRun, level: LevelPages) -> list[Any]:
    answers: list[dict[str, Any]] = [{} for _ in level.totals]
    for key, part in node.connected.parts:
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
    subfield = node.subfield
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
