"""Awaits what the steps of a level have begun."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from graph.errors import OperationError
from graph.operations.executor import is_awaitable, is_awaitable_type
from graph.operations.time_slices import SliceScheduler, run_in_slices
from graph.planner.ir.steps import FieldValues
from graph.planner.run.state import PendingWork, close_coroutines

T = TypeVar("T")

MAX_UNSLICED_OBJECTS = 500
"""Objects of a level above which its fields are evaluated in time slices, each field separately."""


async def run_to_completion(begin: Callable[[PendingWork], T]) -> T:
    """Calls `begin`, awaits the work that it adds, and returns its result."""
    work = PendingWork([], [])
    try:
        found = begin(work)
        if work.coroutines:
            await _await_work(work.coroutines)
    except BaseException:
        work.close()
        raise
    return found


async def await_values(values: FieldValues, scheduler: SliceScheduler | None = None, *, returns_errors: bool = False) -> None:
    """Replaces awaitables by their results. Many coroutines begin and continue in time slices.

    `returns_errors`: an operation error is the result of its awaitable, and is not raised.
    """
    if len(values) == 1:
        if is_awaitable(values[0]):
            values[0] = await _await_value(values[0], returns_errors)
        return
    # By type first: lists of thousands of plain values have one or two.
    if any(map(is_awaitable_type, set(map(type, values)))):
        waiting = [number for number, value in enumerate(values) if is_awaitable(value)]
        found = await _await_all([values[number] for number in waiting], scheduler, returns_errors)
        for number, value in zip(waiting, found, strict=True):
            values[number] = value


async def _await_value(value: Awaitable[Any], returns_errors: bool) -> Any:
    try:
        return await value
    except OperationError as error:
        if returns_errors:
            return error
        raise


async def _await_all(waiting: list[Awaitable[Any]], scheduler: SliceScheduler | None, returns_errors: bool) -> FieldValues:
    """The results. Objects that share a value share its future, so a future is read once it is done."""
    if len(waiting) == 1:
        return [await _await_value(waiting[0], returns_errors)]
    if all(isinstance(each, asyncio.Future) for each in waiting):
        # Those of one loader come together.
        return [await each for each in waiting] if not returns_errors else [await _await_value(each, returns_errors) for each in waiting]
    if scheduler is not None and len(waiting) > MAX_UNSLICED_OBJECTS:
        try:
            return await _gather_all([run_in_slices(each, scheduler) for each in waiting], returns_errors)
        except BaseException:
            # What was called off before it began.
            close_coroutines(waiting)
            raise
    return await _gather_all(waiting, returns_errors)


async def _await_work(work: list[Coroutine[Any, Any, None]]) -> None:
    if len(work) == 1:
        await work[0]
    elif work:
        await _gather_all(work)


async def _gather_all(work: Sequence[Awaitable[Any]], returns_errors: bool = False) -> FieldValues:
    """As `asyncio.gather`, but the others still finish when one fails. Operation errors are results if `returns_errors`.

    A canceled statement costs its connection.
    """
    found = await asyncio.gather(*work, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException) and not (returns_errors and isinstance(each, OperationError)):
            raise each
    return found
