"""Turns the driver's rows of a statement into answers."""

from collections.abc import Sequence
from typing import Any

from graph.planner.errors import PlanBailout
from graph.planner.ir.row_view import DriverRow, RelatedRow, RowView
from graph.planner.run.awaiting import MAX_UNSLICED_OBJECTS, run_to_completion
from graph.planner.run.levels import begin_level, execute_node
from graph.planner.run.state import PendingWork, PlanRun


async def execute_view(view: RowView, run: PlanRun, rows: Sequence[DriverRow]) -> list[dict[str, Any]]:
    """The complete answers."""
    if len(rows) > MAX_UNSLICED_OBJECTS:
        await run.context.scheduler.pause()
    if view.is_async:
        return await run_to_completion(lambda work: _begin_view(view, run, rows, work))
    if len(rows) <= MAX_UNSLICED_OBJECTS:
        return view.serialize(rows)
    answers: list[dict[str, Any]] = []
    for start in range(0, len(rows), MAX_UNSLICED_OBJECTS):
        answers += view.serialize(rows[start : start + MAX_UNSLICED_OBJECTS])
        await run.context.scheduler.pause()
    return answers


def _begin_view(view: RowView, run: PlanRun, rows: Sequence[DriverRow], work: PendingWork) -> list[dict[str, Any]]:
    """The answers for these rows, which are complete when the work is done."""
    answers = view.serialize(rows)
    if not view.is_async or not rows:
        return answers
    objects: Sequence[Any] = rows
    if view.objects is not None:
        objects = view.objects.make(rows)
        if view.has_full_rows:
            offer = run.context.rows_by_id(view.objects.row).prime_if_absent
            for each in objects:
                offer(each.id, each)
    begin_level(run, objects, answers, view.steps, view.batch_steps, work)
    for key, part in view.relations:
        _begin_related(key, part, run, rows, answers, work)
    return answers


def _begin_related(
    key: str, part: RelatedRow, run: PlanRun, rows: Sequence[DriverRow], answers: list[dict[str, Any]], work: PendingWork
) -> None:
    """Attaches a related row to the rows that name it; one that several name is completed once."""
    id_index = part.id_index
    distinct = {row[id_index]: row for row in rows}
    distinct.pop(None, None)
    filled = dict(zip(distinct, _begin_view(part.view, run, list(distinct.values()), work), strict=True))
    absent: list[tuple[DriverRow, dict[str, Any]]] = []
    for row, answer in zip(rows, answers, strict=True):
        found = answer[key] = filled.get(row[id_index])
        if found is None:
            if part.is_non_null:
                raise PlanBailout
            absent.append((row, answer))
    if absent and part.fallback is not None and part.fallback_objects is not None:
        objects = part.fallback_objects.make([row for row, _ in absent])
        work.coroutines.append(execute_node(part.fallback, run, objects, [answer for _, answer in absent]))
