"""Runs `Relations`: one statement for the relations of a level's objects."""

from collections.abc import Sequence
from typing import Any

from graph.planner.errors import PlanBailout
from graph.planner.ir.relations import Relations
from graph.planner.run.awaiting import run_to_completion
from graph.planner.run.levels import NODE_EXECUTORS, begin_level
from graph.planner.run.resolvers import is_loaded
from graph.planner.run.row_views import execute_view
from graph.planner.run.state import PlanRun
from graph.planner.sql.parent_join import ProjectStatement, ProjectSubquery
from graph.planner.sql.row_select import compile_relations_with_project, compile_rows_by_id
from storage.database.statements.compiled_statements import CompiledStatement


async def _execute_relations(node: Relations, run: PlanRun, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
    """Raises PlanBailout where a row is missing and there are no fallback steps."""
    if node.fallback_steps and all(is_loaded(step, run, objects) for step in node.fallback_steps):
        # Such as those of an issue that was just created without a milestone.
        await run_to_completion(lambda work: begin_level(run, objects, answers, node.fallback_steps, (), work))
        return
    statement = relations_statement(node, run)
    ids = node.select_builder.sql_dialect.bind_list(list({each.id for each in objects}))
    rows = await run.context.session.fetch(
        statement.sql, statement.bind({"ids": ids, **run.viewer_values(node.select_builder)}), statement.text_columns
    )
    filled = await execute_view(node.view, run, rows)
    id_index = node.id_index
    by_id = {row[id_index]: each for row, each in zip(rows, filled, strict=True)}
    missing: list[tuple[Any, dict[str, Any]]] = []
    for each, answer in zip(objects, answers, strict=True):
        found = by_id.get(each.id)
        if found is None:
            missing.append((each, answer))
        else:
            answer.update(found)
    if missing:
        if not node.fallback_steps:
            raise PlanBailout
        missing_objects, missing_answers = [each for each, _ in missing], [answer for _, answer in missing]
        await run_to_completion(lambda work: begin_level(run, missing_objects, missing_answers, node.fallback_steps, (), work))


NODE_EXECUTORS[Relations] = _execute_relations


def join_relations_to_project(node: Relations, run: PlanRun, subquery: ProjectSubquery) -> ProjectStatement:
    """The statement that finds the project and selects its relations."""
    variant = "project", subquery.by_path
    statement = run.statements.find(node.node_id, variant, lambda: compile_relations_with_project(node.select_builder, subquery))

    async def build_result(project: Any, rows: Sequence[Any]) -> Any:
        (found,) = await execute_view(node.view, run, rows)
        return found

    return ProjectStatement(statement, run.viewer_values(node.select_builder), len(node.select_builder.expressions), build_result)


def relations_statement(node: Relations, run: PlanRun) -> CompiledStatement:
    """The statement, whose parameter is the list `ids`."""
    return run.statements.find(node.node_id, (), lambda: compile_rows_by_id(node.select_builder))
