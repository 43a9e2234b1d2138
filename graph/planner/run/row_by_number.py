"""Runs `RowByNumber`: by a statement of its own, or by that of the project."""

from collections.abc import Sequence
from typing import Any

from graph.errors import NotFound, OperationError
from graph.fields.declarations import BY_NUMBER_MESSAGE
from graph.planner.ir.row_by_number import RowByNumber
from graph.planner.run.levels import NODE_EXECUTORS
from graph.planner.run.row_views import execute_view
from graph.planner.run.state import PlanRun
from graph.planner.sql.parent_join import ProjectStatement, ProjectSubquery
from graph.planner.sql.row_select import compile_row_by_number, compile_row_with_project
from graph.rules.lookup import require_one
from graph.rules.permissions.policy import require, require_all
from storage.database.statements.compiled_statements import CompiledStatement


async def _execute_row_by_number(node: RowByNumber, run: PlanRun, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
    """Raises what the policy raises, and NotFound where a project of several has no such row."""
    many = len(objects) > 1
    try:
        await require_all(run.context, node.declared.action, objects)
        statement, values = row_statement(node, run, many=many)
    except OperationError as error:
        run.report(node.position, error)
        return
    projects = [each.id for each in objects]
    parent_values = {"projects": node.select_builder.sql_dialect.bind_list(projects)} if many else {"project": projects[0]}
    rows = await run.context.session.fetch(statement.sql, statement.bind({**values, **parent_values}), statement.text_columns)
    found = dict(zip((row[node.project_id_index] for row in rows), await execute_view(node.view, run, rows), strict=True))
    for project, answer in zip(projects, answers, strict=True):
        if project in found:
            answer[node.key] = found[project]
        else:
            run.report(node.position, _not_found(node))


NODE_EXECUTORS[RowByNumber] = _execute_row_by_number


def row_statement(node: RowByNumber, run: PlanRun, *, many: bool) -> tuple[CompiledStatement, dict[str, Any]]:
    """The statement and the values of its parameters but the projects.

    Raises BadRequest for arguments that name no row, or two.
    """
    name, value = _lookup_column(node, run)
    statement = run.statements.find(node.node_id, (name, many), lambda: compile_row_by_number(node.select_builder, name, many=many))
    return statement, {"number": value, **run.viewer_values(node.select_builder)}


def join_row_to_project(node: RowByNumber, run: PlanRun, subquery: ProjectSubquery) -> ProjectStatement:
    """Raises BadRequest for arguments that name no row, or two."""
    name, value = _lookup_column(node, run)
    variant = "project", name, subquery.by_path
    statement = run.statements.find(node.node_id, variant, lambda: compile_row_with_project(node.select_builder, name, subquery))

    async def build_result(project: Any, rows: Sequence[Any]) -> Any:
        try:
            await require(run.context, node.declared.action, project)
            if rows[0][node.project_id_index] is None:
                raise _not_found(node)
        except OperationError as error:
            run.report(node.position, error)
            return None
        (found,) = await execute_view(node.view, run, rows)
        return found

    values = {"number": value, **run.viewer_values(node.select_builder)}
    return ProjectStatement(statement, values, len(node.select_builder.expressions), build_result)


def _lookup_column(node: RowByNumber, run: PlanRun) -> tuple[str, Any]:
    """The column that names the row, and its value. Raises BadRequest for both columns, or neither."""
    arguments = run.arguments[node.arguments] if node.arguments is not None else {}
    iid, database_id = arguments.get("iid"), arguments.get("database_id")
    require_one(BY_NUMBER_MESSAGE, iid, database_id)
    return ("iid", iid) if database_id is None else ("id", database_id)


def _not_found(node: RowByNumber) -> NotFound:
    return NotFound(node.declared.table.__name__)
