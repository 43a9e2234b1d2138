"""Measures a run of a plan: the objects, statements, rows and milliseconds of each node.

An analysis compiles a plan of its own, whose steps it replaces by ones that measure.
"""

from collections.abc import Awaitable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from graphql import GraphQLError

from graph.context import Context, Services
from graph.documents.documents import PreparedOperation
from graph.errors import OperationError
from graph.operations.executor import is_awaitable
from graph.planner.errors import PlanBailout
from graph.planner.explain import ExplainedNode, ExplainedStatement, ExplainError, Explanation, compile_plan, explain_plan
from graph.planner.ir.project_root import ProjectRoot
from graph.planner.ir.selection import Selection
from graph.planner.ir.steps import BatchNode, FieldStep, FieldValues
from graph.planner.run.levels import NODE_EXECUTORS, execute_node
from graph.planner.run.resolvers import STEP_STARTERS, begin_step
from graph.planner.run.state import PlanRun
from storage import tables
from storage.database.engine import DatabaseSession


async def analyze(
    services: Services, session: DatabaseSession, viewer: tables.User, prepared: PreparedOperation, variables: Mapping[str, Any]
) -> Explanation:
    """Runs a query for a viewer and measures its nodes. Raises ExplainError."""
    if prepared.kind != "query":
        raise ExplainError(f"only a query can be analyzed: this {prepared.kind} would run")
    dialect = services.database.engine.dialect
    compiled = compile_plan(prepared, variables, dialect, services.static_settings)
    if isinstance(compiled, str):
        return Explanation(unplanned=compiled)
    plan, values = compiled
    context = Context(services, session, viewer, "explain")
    explained = explain_plan(plan, context, values)
    for node in explained.by_step.values():
        node.statements.clear()
    for selection in explained.selections:
        _measure_steps(selection, explained.by_step)
    recorder = _StatementRecorder(session)
    explanation = Explanation(explained.nodes)
    start = perf_counter()
    try:
        result = await plan.run(context, values)
        if result.errors:
            explanation.stopped = str(result.errors[0].error)
    except (PlanBailout, OperationError, GraphQLError) as error:
        explanation.stopped = str(error) or "a null in a non-null position"
    finally:
        explanation.milliseconds = _milliseconds_since(start)
        recorder.stop()
        context.loaders.clear()
    for statement, raw_parameters in recorder.statements:
        statement.database_plan = await _database_plan(session, dialect.name, statement.sql, raw_parameters)
    if recorder.unassigned:
        explanation.nodes.append(ExplainedNode("", "outside of all nodes", statements=recorder.unassigned))
    return explanation


_CURRENT_NODE: ContextVar[ExplainedNode | None] = ContextVar("current_node", default=None)


def _milliseconds_since(start: float) -> float:
    return round((perf_counter() - start) * 1000, 3)


def _measure_steps(selection: Any, by_step: Mapping[int, ExplainedNode]) -> None:
    if isinstance(selection, ProjectRoot):
        selection.other_batch_steps[:] = [_measured_node(each, by_step) for each in selection.other_batch_steps]
        return
    selection.steps = [
        _MeasuredStep(each.key, each.completer, each.position, each.is_nullable, each, by_step[id(each)]) for each in selection.steps
    ]
    selection.batch_steps = [_measured_node(each, by_step) for each in selection.batch_steps]
    if isinstance(selection, Selection):
        # Its steps are measured one by one.
        selection.serialize_values = None


def _measured_node(node: Any, by_step: Mapping[int, ExplainedNode]) -> "_MeasuredNode":
    explained = by_step[id(node)]
    return _MeasuredNode(getattr(node, "key", explained.key), node, explained)


@dataclass(frozen=True, slots=True, eq=False)
class _MeasuredNode(BatchNode):
    """Runs a node and adds its objects and time to the explained one."""

    key: str
    node: BatchNode
    explained: ExplainedNode


async def _execute_measured(measured: _MeasuredNode, run: PlanRun, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
    explained, start = measured.explained, perf_counter()
    explained.values = (explained.values or 0) + len(objects)
    token = _CURRENT_NODE.set(explained)
    try:
        await execute_node(measured.node, run, objects, answers)
    finally:
        _CURRENT_NODE.reset(token)
        explained.milliseconds = round((explained.milliseconds or 0) + _milliseconds_since(start), 3)


NODE_EXECUTORS[_MeasuredNode] = _execute_measured


@dataclass(frozen=True, slots=True, eq=False)
class _MeasuredStep(FieldStep):
    """Begins a field and adds its objects and time to the explained node."""

    step: FieldStep
    explained: ExplainedNode


def _begin_measured(measured: _MeasuredStep, run: PlanRun, objects: Sequence[Any]) -> FieldValues:
    explained, start = measured.explained, perf_counter()
    explained.values = (explained.values or 0) + len(objects)
    token = _CURRENT_NODE.set(explained)
    try:
        values = begin_step(measured.step, run, objects)
    finally:
        _CURRENT_NODE.reset(token)
    explained.milliseconds = max(explained.milliseconds or 0, _milliseconds_since(start))
    return [_measure(value, explained, start) if is_awaitable(value) else value for value in values]


STEP_STARTERS[_MeasuredStep] = _begin_measured


async def _measure(value: Awaitable[Any], explained: ExplainedNode, start: float) -> Any:
    token = _CURRENT_NODE.set(explained)
    try:
        return await value
    finally:
        _CURRENT_NODE.reset(token)
        explained.milliseconds = max(explained.milliseconds or 0, _milliseconds_since(start))


class _StatementRecorder:
    """Records the statements of a session, each at the node that runs it.

    A loader's statement is recorded at the first node that requests a key.
    """

    def __init__(self, session: Any) -> None:
        self.statements: list[tuple[ExplainedStatement, Sequence[Any]]] = []
        self.unassigned: list[ExplainedStatement] = []
        self._session = session
        self._fetch = session.fetch
        session.fetch = self._recorded_fetch

    def stop(self) -> None:
        """Stops recording."""
        del self._session.fetch

    async def _recorded_fetch(self, sql: str, parameters: Sequence[Any], *columns: Any) -> Sequence[Sequence[Any]]:
        start = perf_counter()
        rows: Sequence[Sequence[Any]] = await self._fetch(sql, parameters, *columns)
        statement = ExplainedStatement(sql, list(parameters), len(rows), _milliseconds_since(start))
        node = _CURRENT_NODE.get()
        (self.unassigned if node is None else node.statements).append(statement)
        self.statements.append((statement, parameters))
        return rows


async def _database_plan(session: DatabaseSession, dialect: str, sql: str, parameters: Sequence[Any]) -> list[str]:
    """The lines of the database's own plan. PostgreSQL runs the statement once more for it."""
    if dialect != "sqlite":
        return [str(row[0]) for row in await session.fetch(f"EXPLAIN (ANALYZE, COSTS OFF) {sql}", parameters)]
    lines, depths = [], {0: -1}
    for number, parent, _, detail in await session.fetch(f"EXPLAIN QUERY PLAN {sql}", parameters):
        depths[number] = depths.get(parent, -1) + 1
        lines.append("  " * depths[number] + str(detail))
    return lines
