"""Runs a plan level by level, all objects of a level together.

Every step of a level begins before anything is awaited, and each field then continues independently. So loaders batch: one statement serves
all objects of a level, and all fields that use the same loader.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from graph.errors import OperationError
from graph.operations.executor import is_awaitable, is_awaitable_type
from graph.planner.codegen.row_serializer import split_by_lengths
from graph.planner.errors import PlanBailout
from graph.planner.ir.completers import AbstractCompleter, LeafCompleter, ListCompleter, ObjectCompleter, SubfieldCompleter
from graph.planner.ir.selection import Selection
from graph.planner.ir.steps import BatchNode, BatchStep, Completer, FieldStep, FieldValues, LoaderStep, ResolverStep
from graph.planner.run.awaiting import MAX_UNSLICED_OBJECTS, await_values, run_to_completion
from graph.planner.run.resolvers import begin_step, make_info
from graph.planner.run.state import PendingWork, PlanRun, close_coroutines

NODE_EXECUTORS: dict[type[BatchNode], Callable[[Any, PlanRun, Sequence[Any], list[dict[str, Any]]], Coroutine[Any, Any, None]]] = {}
"""The function of each kind of node; the modules of the nodes add theirs (`run/__init__.py` imports them)."""


NODE_STARTERS: dict[type[BatchNode], Callable[[Any, PlanRun, Sequence[Any], list[dict[str, Any]], PendingWork], bool]] = {}
"""The functions of nodes that need not always wait: they begin such a node, and return False where it must be executed."""


def execute_node(node: BatchNode, run: PlanRun, objects: Sequence[Any], answers: list[dict[str, Any]]) -> Coroutine[Any, Any, None]:
    """Evaluates a node for all objects of a level, and writes its keys into their answers.

    Raises PlanBailout, and what the policy and resolvers raise below a list.
    """
    return NODE_EXECUTORS[type(node)](node, run, objects, answers)


# Of selections


def begin_selection(selection: Selection, run: PlanRun, objects: Sequence[Any], work: PendingWork) -> list[dict[str, Any]]:
    """The answers of objects, which are complete when the work is done."""
    if (complete := _serialize_values(selection, objects)) is not None:
        return complete
    answers = selection.serialize(objects)
    if selection.steps or selection.batch_steps:
        begin_level(run, objects, answers, selection.steps, selection.batch_steps, work)
    return answers


def _serialize_values(selection: Selection, objects: Sequence[Any]) -> list[dict[str, Any]] | None:
    """The complete answers of value objects; None if the steps must evaluate the fields."""
    if selection.serialize_values is None:
        return None
    try:
        return selection.serialize_values(objects)
    except Exception:
        # The steps raise it again, where it is reported.
        return None


async def execute_selection(selection: Selection, run: PlanRun, objects: Sequence[Any]) -> list[dict[str, Any]]:
    """The complete answers of objects."""
    if len(selection.steps) + len(selection.batch_steps) != 1:
        return await run_to_completion(lambda work: begin_selection(selection, run, objects, work))
    # Most operations select one field, beside which there is nothing to begin.
    answers = selection.serialize(objects)
    if selection.batch_steps:
        await execute_node(selection.batch_steps[0], run, objects, answers)
    else:
        await _execute_step(selection.steps[0], run, objects, answers)
    return answers


def begin_level(
    run: PlanRun,
    objects: Sequence[Any],
    answers: list[dict[str, Any]],
    steps: Sequence[FieldStep],
    batch_steps: Sequence[BatchNode],
    work: PendingWork,
) -> None:
    """Begins the steps of a level, and those of the levels below that await nothing."""
    begun: list[tuple[FieldStep, FieldValues, bool]] = []
    is_large = len(objects) > MAX_UNSLICED_OBJECTS
    for step in steps:
        if is_large and not isinstance(step, LoaderStep):
            work.coroutines.append(_begin_after_pause(step, run, objects, answers))
            continue
        try:
            values = begin_step(step, run, objects)
        except OperationError as error:
            run.report(step.position, error)
            continue
        must_wait = is_awaitable(values[0]) if len(values) == 1 else any(map(is_awaitable_type, set(map(type, values))))
        if must_wait:
            work.values.append(values)
        begun.append((step, values, must_wait))
    for step, values, must_wait in begun:
        found = None if must_wait else begin_completion(step.completer, run, values, work)
        if found is None:
            work.coroutines.append(_await_and_complete(step, run, answers, values))
        else:
            _store_values(step, answers, found)
    for each in batch_steps:
        begin = NODE_STARTERS.get(type(each))
        if begin is None or not begin(each, run, objects, answers, work):
            work.coroutines.append(execute_node(each, run, objects, answers))


async def _begin_after_pause(step: FieldStep, run: PlanRun, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
    """Begins a field of a level that is too large for one iteration of the event loop."""
    await run.context.scheduler.pause()
    await _execute_step(step, run, objects, answers)


async def _execute_step(step: FieldStep, run: PlanRun, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
    """Begins a field beside which nothing else begins, and completes it."""
    try:
        values = begin_step(step, run, objects)
    except OperationError as error:
        run.report(step.position, error)
        return
    try:
        await _await_and_complete(step, run, answers, values)
    except BaseException:
        close_coroutines(values)
        raise


async def _await_and_complete(step: FieldStep, run: PlanRun, answers: list[dict[str, Any]], values: FieldValues) -> None:
    if step.position is None and step.is_nullable and isinstance(step, ResolverStep):
        await await_values(values, run.context.scheduler, returns_errors=True)
        _report_rows(step, run, answers, values)
    else:
        try:
            await await_values(values, run.context.scheduler)
        except OperationError as error:
            run.report(step.position, error)
            return
    if len(values) > MAX_UNSLICED_OBJECTS:
        await run.context.scheduler.pause()
    await _complete_field(step, run, answers, values)


def _report_rows(step: FieldStep, run: PlanRun, answers: list[dict[str, Any]], values: FieldValues) -> None:
    """Reports the errors among the values of objects below a list, and replaces them by null."""
    for number, value in enumerate(values):
        if isinstance(value, OperationError):
            run.report_row(answers[number], step.key, value)
            values[number] = None


async def _complete_field(step: FieldStep, run: PlanRun, answers: list[dict[str, Any]], values: FieldValues) -> None:
    """Completes the values of a field, which are all there, and stores them in the answers."""
    _store_values(step, answers, await complete_values(step.completer, run, values))


def _store_values(step: FieldStep, answers: list[dict[str, Any]], found: FieldValues) -> None:
    key = step.key
    for answer, value in zip(answers, found, strict=True):
        answer[key] = value


async def _execute_batch_step(node: BatchStep, run: PlanRun, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
    resolver_step = node.resolver_step
    if len(objects) > MAX_UNSLICED_OBJECTS:
        await run.context.scheduler.pause()
    batch_resolver = resolver_step.batch_resolver
    assert batch_resolver is not None  # noqa: S101 - otherwise the resolver is called for each object
    try:
        values = list(await batch_resolver(make_info(resolver_step, run), objects))
    except OperationError as error:
        run.report(resolver_step.position, error)
        return
    await _complete_field(resolver_step, run, answers, values)


NODE_EXECUTORS[BatchStep] = _execute_batch_step


# Of values


def begin_completion(completer: Completer, run: PlanRun, values: FieldValues, work: PendingWork) -> FieldValues | None:
    """The answers, complete when the work is done; None where `complete_values` must be awaited."""
    match completer:
        case LeafCompleter():
            return _serialize_leaves(completer, values)
        case ObjectCompleter():
            return _begin_objects(completer, run, values, work)
        case ListCompleter(items):
            flat, lengths = _flatten(completer, values)
            if not flat:
                return split_by_lengths(flat, lengths)
            if len(flat) > MAX_UNSLICED_OBJECTS or any(map(is_awaitable_type, set(map(type, flat)))):
                return None
            found = begin_completion(items, run, flat, work)
            return None if found is None else split_by_lengths(found, lengths)
        case SubfieldCompleter(objects, key):
            # A part is there when the whole is.
            return None if objects.selection.is_async else _pick_subfield(key, _begin_objects(objects, run, values, work))
        case AbstractCompleter():
            return _begin_abstract(completer, run, values, work)
    raise TypeError(f"unknown completer {type(completer).__name__}")


async def complete_values(completer: Completer, run: PlanRun, values: FieldValues) -> FieldValues:
    """The complete answers."""
    match completer:
        case LeafCompleter():
            return _serialize_leaves(completer, values)
        case ListCompleter(items):
            flat, lengths = _flatten(completer, values)
            await await_values(flat, run.context.scheduler)
            if len(flat) > MAX_UNSLICED_OBJECTS and isinstance(items, ObjectCompleter) and items.selection.serialize_values is not None:
                return split_by_lengths(await _complete_values_in_slices(items, run, flat), lengths)
            return split_by_lengths(await complete_values(items, run, flat), lengths)
        case SubfieldCompleter(objects, key):
            return _pick_subfield(key, await complete_values(objects, run, values))
        case _:
            found = await run_to_completion(lambda work: begin_completion(completer, run, values, work))
            assert found is not None  # noqa: S101 - objects are there at once
            return found


async def _complete_values_in_slices(completer: ObjectCompleter, run: PlanRun, values: FieldValues) -> FieldValues:
    """The complete answers of many value objects."""
    found: FieldValues = []
    for start in range(0, len(values), MAX_UNSLICED_OBJECTS):
        await run.context.scheduler.pause()
        found += await complete_values(completer, run, values[start : start + MAX_UNSLICED_OBJECTS])
    return found


def _serialize_leaves(completer: LeafCompleter, values: FieldValues) -> FieldValues:
    return [completer.serialize(values[0])] if len(values) == 1 else completer.serialize_column(values)


def _begin_objects(completer: ObjectCompleter, run: PlanRun, values: FieldValues, work: PendingWork) -> FieldValues:
    selection = completer.selection
    if len(values) == 1 and values[0] is not None:
        return begin_selection(selection, run, values, work)
    if completer.is_non_null and any(value is None for value in values):
        raise PlanBailout
    distinct = {id(value): value for value in values if value is not None}
    if not distinct:
        return values
    if len(distinct) == len(values):
        return begin_selection(selection, run, values, work)
    begun = begin_selection(selection, run, list(distinct.values()), work)
    return _restore_duplicates(values, dict(zip(distinct, begun, strict=True)))


def _begin_abstract(completer: AbstractCompleter, run: PlanRun, values: FieldValues, work: PendingWork) -> FieldValues:
    by_type: dict[str, dict[int, Any]] = {}
    for value in values:
        if value is None:
            if completer.is_non_null:
                raise PlanBailout
            continue
        name = completer.type_of(value)
        if name is None or name not in completer.selections:
            raise PlanBailout
        by_type.setdefault(name, {})[id(value)] = value
    answers: dict[int, Any] = {}
    for name, distinct in by_type.items():
        answers.update(zip(distinct, begin_selection(completer.selections[name], run, list(distinct.values()), work), strict=True))
    return _restore_duplicates(values, answers)


def _restore_duplicates(values: FieldValues, answers: dict[int, Any]) -> FieldValues:
    return [None if value is None else answers[id(value)] for value in values]


def _pick_subfield(key: str, values: FieldValues) -> FieldValues:
    return [None if value is None else value[key] for value in values]


def _flatten(completer: ListCompleter, values: FieldValues) -> tuple[FieldValues, list[int | None]]:
    """The items of lists, and the lengths of the lists; None for a list that is null."""
    flat: FieldValues = []
    lengths: list[int | None] = []
    for value in values:
        if value is None:
            if completer.is_non_null:
                raise PlanBailout
            lengths.append(None)
            continue
        if not isinstance(value, list | tuple):
            raise PlanBailout
        flat.extend(value)
        lengths.append(len(value))
    return flat, lengths
