"""Runs `Relations`: one statement for the relations of a level's objects."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graph.context import Context
from graph.planner.errors import PlanBailout
from graph.planner.ir.relations import Relations
from graph.planner.run.awaiting import run_to_completion
from graph.planner.run.levels import NODE_EXECUTORS, NODE_STARTERS, begin_level
from graph.planner.run.resolvers import is_loaded
from graph.planner.run.row_views import execute_view
from graph.planner.run.state import PendingWork, PlanRun
from graph.planner.sql.parent_join import ProjectStatement, ProjectSubquery
from graph.planner.sql.row_select import compile_relations_with_project, compile_rows_by_id
from graph.planner.sql.statements import PlanStatements
from storage.database.statements.compiled_statements import CompiledStatement
from storage.database.statements.statement_cache import CompiledSelect


@dataclass(frozen=True, slots=True)
class PlannedRelations:
    """The relations of the object of a mutation's payload (`graph/operations/answer_relations.py`)."""

    node: Relations
    statements: PlanStatements

    def add_to(self, statement: Any, context: Context) -> CompiledSelect:
        node, database = self.node, context.services.database
        # The statement is one of few constants.
        variant = "object", id(statement)
        return self.statements.find(
            node.node_id, variant, lambda: database.statement_cache.compile(node.select_builder.join_relations(statement))
        )

    def prime(self, row: Any, values: Sequence[Any], context: Context) -> None:
        context.loader(self.node, _fetch_nothing).prime(_key_of(self.node, row), values)


async def _fetch_nothing(keys: list[Any]) -> dict[Any, Any]:
    return {}


def _key_of(node: Relations, row: Any) -> tuple[Any, ...]:
    assert node.key_attributes is not None  # noqa: S101 - others are not read before the mutation
    return tuple([getattr(row, name) for name in node.key_attributes])


def _known_row(node: Relations, run: PlanRun, objects: Sequence[Any]) -> Any:
    """The driver's row of an object whose relations were read before a mutation changed it; None if they must be read."""
    loader = run.context.loaders.get(node)
    if loader is None or len(objects) > 1:
        return None
    key = _key_of(node, objects[0])
    return loader.get_loaded(key) if loader.is_loaded(key) else None


def _begin_relations(node: Relations, run: PlanRun, objects: Sequence[Any], answers: list[dict[str, Any]], work: PendingWork) -> bool:
    if not node.fallback_steps:
        return False
    known = _known_row(node, run, objects)
    if known is not None and not node.view.is_async:
        answers[0].update(node.view.serialize((known,))[0])
        return True
    if known is None and all(is_loaded(step, run, objects) for step in node.fallback_steps):
        # Such as those of an issue that was just created without a milestone.
        begin_level(run, objects, answers, node.fallback_steps, (), work)
        return True
    return False


NODE_STARTERS[Relations] = _begin_relations


async def _execute_relations(node: Relations, run: PlanRun, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
    """Raises PlanBailout where a row is missing and there are no fallback steps."""
    known = _known_row(node, run, objects)
    rows = await _fetch_relations(node, run, objects) if known is None else [known]
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


async def _fetch_relations(node: Relations, run: PlanRun, objects: Sequence[Any]) -> Sequence[Any]:
    statement = relations_statement(node, run)
    values = {"ids": node.select_builder.sql_dialect.bind_list(list({each.id for each in objects}))}
    values |= run.viewer_values(node.select_builder)
    return await run.context.session.fetch(statement.sql, statement.bind(values), statement.text_columns)


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
