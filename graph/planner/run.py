"""Runs a plan: level by level, all objects of a level together.

Every step of a level begins before anything is awaited, and each field then continues by itself. So loaders batch: one statement serves
all objects of a level, and all fields that use the same loader.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from graph.operations.row_executor import is_awaitable, is_awaitable_type
from graph.operations.time_slices import SliceScheduler, run_in_slices
from graph.planner.ir.steps import BatchedStep, FieldStep, FieldValues, LoaderStep, PendingWork, PlanRun, close_coroutines

T = TypeVar("T")

MAX_UNSLICED_OBJECTS = 500
"""Objects of a level above which its fields are evaluated in time slices, each field by itself."""


async def run_to_completion(begin: Callable[[PendingWork], T]) -> T:
    """What `begin` returns, when its work is done."""
    work = PendingWork([], [])
    try:
        found = begin(work)
        if work.coroutines:
            await _await_work(work.coroutines)
    except BaseException:
        work.close()
        raise
    return found


def begin_level(
    run: PlanRun,
    objects: Sequence[Any],
    answers: list[dict[str, Any]],
    steps: Sequence[FieldStep],
    batch_steps: Sequence[BatchedStep],
    work: PendingWork,
) -> None:
    """Begins the steps of a level, and those of the levels below that await nothing."""
    begun: list[tuple[FieldStep, FieldValues, bool]] = []
    is_large = len(objects) > MAX_UNSLICED_OBJECTS
    for step in steps:
        if is_large and not isinstance(step, LoaderStep):
            work.coroutines.append(_begin_after_pause(step, run, objects, answers))
            continue
        values = step.begin(run, objects)
        must_wait = is_awaitable(values[0]) if len(values) == 1 else any(map(is_awaitable_type, set(map(type, values))))
        if must_wait:
            work.values.append(values)
        begun.append((step, values, must_wait))
    for step, values, must_wait in begun:
        completer = step.completer
        found = None
        if not must_wait:
            found = completer.begin(run, values, work) if completer.is_async else completer.complete_sync(values)
        if found is None:
            work.coroutines.append(await_and_complete(step, run, answers, values))
        else:
            _store_values(step, answers, found)
    for each in batch_steps:
        work.coroutines.append(each.execute(run, objects, answers))


async def _begin_after_pause(step: FieldStep, run: PlanRun, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
    """Begins a field of a level that is too large for one turn of the event loop."""
    await run.context.scheduler.pause()
    values = step.begin(run, objects)
    try:
        await await_and_complete(step, run, answers, values)
    except BaseException:
        close_coroutines(values)
        raise


async def await_and_complete(step: FieldStep, run: PlanRun, answers: list[dict[str, Any]], values: FieldValues) -> None:
    await await_values(values, run.context.scheduler)
    if len(values) > MAX_UNSLICED_OBJECTS:
        await run.context.scheduler.pause()
    await complete_field(step, run, answers, values)


async def complete_field(step: FieldStep, run: PlanRun, answers: list[dict[str, Any]], values: FieldValues) -> None:
    """Completes the values of a field, which are all there, and stores them in the answers."""
    completer = step.completer
    _store_values(step, answers, await completer.complete(run, values) if completer.is_async else completer.complete_sync(values))


def _store_values(step: FieldStep, answers: list[dict[str, Any]], found: FieldValues) -> None:
    key = step.key
    for answer, value in zip(answers, found, strict=True):
        answer[key] = value


async def await_values(values: FieldValues, pieces: SliceScheduler | None = None) -> None:
    """Replaces awaitables by their results. Many coroutines begin and continue in time slices."""
    if len(values) == 1:
        if is_awaitable(values[0]):
            values[0] = await values[0]
        return
    waiting = [number for number, value in enumerate(values) if is_awaitable(value)]
    if waiting:
        for number, value in zip(waiting, await _await_all([values[number] for number in waiting], pieces), strict=True):
            values[number] = value


async def _await_all(waiting: list[Awaitable[Any]], pieces: SliceScheduler | None) -> FieldValues:
    """The results. Objects that share a value share its future, so a future is read once it is done."""
    if len(waiting) == 1:
        return [await waiting[0]]
    if all(isinstance(each, asyncio.Future) for each in waiting):
        # Those of one loader come together.
        return [await each for each in waiting]
    if pieces is not None and len(waiting) > MAX_UNSLICED_OBJECTS:
        try:
            return await _gather_all([run_in_slices(each, pieces) for each in waiting])
        except BaseException:
            # What was called off before it began.
            close_coroutines(waiting)
            raise
    return await _gather_all(waiting)


async def _await_work(work: list[Coroutine[Any, Any, None]]) -> None:
    if len(work) == 1:
        await work[0]
    elif work:
        await _gather_all(work)


async def _gather_all(work: Sequence[Awaitable[Any]]) -> FieldValues:
    """As `asyncio.gather`, but the others still finish when one fails.

    A cancelled statement costs its connection.
    """
    found = await asyncio.gather(*work, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return found
