"""Runs `ProjectRoot`: finds the project, checks that the viewer may see it, and runs what is selected of it."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from graph.errors import NotFound, OperationError
from graph.planner.errors import PlanBailout
from graph.planner.ir.connection_step import ConnectionStep
from graph.planner.ir.project_root import ProjectRoot
from graph.planner.ir.relations import Relations
from graph.planner.ir.row_by_number import RowByNumber
from graph.planner.run.awaiting import run_to_completion
from graph.planner.run.connections import join_page_to_project
from graph.planner.run.levels import NODE_EXECUTORS, begin_level, execute_node
from graph.planner.run.relations import join_relations_to_project
from graph.planner.run.revision_fields import CachedAnswer
from graph.planner.run.row_by_number import join_row_to_project
from graph.planner.run.state import PlanRun
from graph.planner.sql.parent_join import LEVEL_COLUMNS, ProjectStatement, ProjectSubquery
from graph.planner.sql.row_select import compile_project
from graph.rules.lookup import parse_project_key
from graph.rules.permissions.policy import can_see_project
from graph.rules.permissions.project_access import key_parameters, prime_missing_project, prime_project
from storage import tables


class PreparedProjectStatement(NamedTuple):
    """The statement of a project root in one run, and the values of its parameters."""

    key: Any
    statement: ProjectStatement
    values: dict[str, Any]


async def _execute_project_root(node: ProjectRoot, run: PlanRun, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
    """Raises PlanBailout without a viewer."""
    context, selection = run.context, node.selection
    prepared = prepare_project_statement(node, run)
    if prepared is None:
        run.report(node.position, NotFound("Project"))
        return
    key, project_statement, values = prepared
    statement = project_statement.statement
    rows = await context.session.fetch(statement.sql, statement.bind(values), statement.text_columns)
    if not rows:
        prime_missing_project(context, key)
        run.report(node.position, NotFound("Project"))
        return
    found = rows[0][project_statement.project_offset :]
    cached = CachedAnswer(node.revision_field, run, found) if node.revision_field is not None else None
    if cached is not None and cached.found is not None:
        for answer in answers:
            answer[node.key] = {selection.steps[0].key: cached.found.value}
        return
    (project,) = node.projects.make((found,))
    prime_project(context, project, found[node.column_count : node.column_count + LEVEL_COLUMNS], key if node.has_all_columns else None)
    if not await can_see_project(context, project):
        run.report(node.position, NotFound("Project"))
        return
    if cached is not None:
        complete = await context.rows_by_id(tables.Project).get(project.id)
        if complete is None:
            # It was deleted meanwhile.
            run.report(node.position, NotFound("Project"))
            return
        project = complete
    filled = selection.serialize((project,))
    if node.joined_step is not None:
        result = await project_statement.build_result(project, rows)
        filled[0].update(result if isinstance(node.joined_step, Relations) else {node.joined_step.key: result})
    if selection.steps or node.other_batch_steps:
        await run_to_completion(lambda work: begin_level(run, (project,), filled, selection.steps, node.other_batch_steps, work))
    if cached is not None and not run.errors and not run.row_errors:
        cached.put(filled[0][selection.steps[0].key])
    for answer in answers:
        answer[node.key] = filled[0]


NODE_EXECUTORS[ProjectRoot] = _execute_project_root


def prepare_project_statement(node: ProjectRoot, run: PlanRun) -> PreparedProjectStatement | None:
    """None for a path that no project has. Raises PlanBailout without a viewer."""
    viewer = run.context.viewer_or_none
    if viewer is None:
        raise PlanBailout
    key = parse_project_key(run.arguments[node.arguments][node.argument_name])
    if key is None:
        return None
    subquery = node.subqueries[not isinstance(key, int)]
    statement = _joined_statement(node, run, subquery)
    return PreparedProjectStatement(key, statement, {"user_id": viewer.id, **key_parameters(key), **statement.values})


def _joined_statement(node: ProjectRoot, run: PlanRun, subquery: ProjectSubquery) -> ProjectStatement:
    """The statement of the project, and of the field that is joined to it if its arguments are valid."""
    joined_step = node.joined_step
    build_result: Callable[[Any, Sequence[Any]], Awaitable[Any]] = _return_no_result
    if isinstance(joined_step, Relations):
        return join_relations_to_project(joined_step, run, subquery)
    if joined_step is not None:
        try:
            if isinstance(joined_step, RowByNumber):
                return join_row_to_project(joined_step, run, subquery)
            return join_page_to_project(joined_step, run, subquery)
        except OperationError:
            # The field reports its arguments if the viewer may see the project.
            build_result = partial(_execute_alone, joined_step, run)
    statement = run.statements.find(node.node_id, (subquery.by_path,), lambda: compile_project(subquery, node.sql_dialect))
    return ProjectStatement(statement, {}, 0, build_result)


async def _return_no_result(project: Any, rows: Sequence[Any]) -> None:
    return None


async def _execute_alone(node: RowByNumber | ConnectionStep, run: PlanRun, project: Any, rows: Sequence[Any]) -> Any:
    """The value of a field that is not joined; null where it reports an error."""
    answer: dict[str, Any] = {node.key: None}
    await execute_node(node, run, (project,), [answer])
    return answer[node.key]
