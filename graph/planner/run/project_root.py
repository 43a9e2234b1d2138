"""Runs `ProjectRoot`: finds the project, checks that the viewer may see it, and runs what is selected of it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from graph.planner.errors import PlanBailout
from graph.planner.ir.connection_step import ConnectionStep
from graph.planner.ir.project_root import ProjectRoot
from graph.planner.ir.row_by_number import RowByNumber
from graph.planner.run.awaiting import run_to_completion
from graph.planner.run.connections import join_page_to_project
from graph.planner.run.levels import begin_level, execute_node
from graph.planner.run.row_by_number import join_row_to_project
from graph.planner.run.state import PlanRun
from graph.planner.sql.parent_join import ProjectStatement, ProjectSubquery
from graph.planner.sql.row_select import compile_project
from graph.rules.lookup import parse_project_key
from graph.rules.policy import can_see_project
from graph.rules.project_access import key_parameters, prime_missing_project, prime_project


class PreparedProjectStatement(NamedTuple):
    """The statement of a project root in one run, and the values of its parameters."""

    key: Any
    statement: ProjectStatement
    values: dict[str, Any]


@execute_node.register
async def _execute_project_root(node: ProjectRoot, run: PlanRun, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
    """Raises what the policy and the arguments raise, and PlanBailout where there is no such project."""
    context, selection = run.context, node.selection
    key, project_statement, values = prepare_project_statement(node, run)
    statement = project_statement.statement
    rows = await context.session.fetch(statement.sql, statement.bind(values), statement.text_columns)
    if not rows:
        prime_missing_project(context, key)
        raise PlanBailout
    found = rows[0][project_statement.project_offset :]
    project = node.projects.make(found)
    prime_project(context, project, found[node.column_count : node.column_count + 3], key if node.has_all_columns else None)
    if not await can_see_project(context, project):
        raise PlanBailout
    filled = selection.serialize((project,))
    if node.joined_step is not None:
        filled[0][node.joined_step.key] = await project_statement.build_result(project, rows)
    if selection.steps or node.other_batch_steps:
        await run_to_completion(lambda work: begin_level(run, (project,), filled, selection.steps, node.other_batch_steps, work))
    for answer in answers:
        answer[node.key] = filled[0]


def prepare_project_statement(node: ProjectRoot, run: PlanRun) -> PreparedProjectStatement:
    """Raises what the arguments raise, and PlanBailout for a viewer or a project that does not exist."""
    viewer = run.context.viewer_or_none
    key = parse_project_key(run.arguments[node.arguments][node.argument_name])
    if viewer is None or key is None:
        raise PlanBailout
    subquery = node.subqueries[not isinstance(key, int)]
    statement = _joined_statement(node, run, subquery)
    return PreparedProjectStatement(key, statement, {"user_id": viewer.id, **key_parameters(key), **statement.values})


def _joined_statement(node: ProjectRoot, run: PlanRun, subquery: ProjectSubquery) -> ProjectStatement:
    """The statement of the project, and of the field that is joined to it."""
    joined_step = node.joined_step
    if isinstance(joined_step, RowByNumber):
        return join_row_to_project(joined_step, run, subquery)
    if isinstance(joined_step, ConnectionStep):
        return join_page_to_project(joined_step, run, subquery)
    statement = run.statements.find(node.node_id, (subquery.by_path,), lambda: compile_project(subquery, node.sql_dialect))
    return ProjectStatement(statement, {}, 0, _return_no_result)


async def _return_no_result(project: Any, rows: Sequence[Any]) -> None:
    return None
