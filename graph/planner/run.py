"""Runs a plan: level by level, all objects of a level together.

What a level needs of the loaders is asked before anything waits, and each field then goes on by itself, so that a statement serves
all objects of a level, and all fields that ask the same loader.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import strawberry

from graph.context import Context
from graph.fields.resolvers import LoaderSource
from graph.operations.row_executor import is_awaitable, is_awaitable_type
from graph.operations.time_slices import SliceScheduler, run_in_slices
from graph.planner.codegen.object_serializer import ObjectSerializer

FieldValues = list[Any]
T = TypeVar("T")

MAX_UNSLICED_OBJECTS = 500
"""Objects of a level whose fields are worked on in time slices, each field by itself."""


@dataclass(frozen=True, slots=True)
class FieldPath:
    """The way to a field, as far as resolvers look back: `typename` has the field that `prev` is; the items of a list have none."""

    typename: str | None
    prev: "FieldPath | None" = None


@dataclass(frozen=True, slots=True)
class ResolverInfo:
    """Where a resolver stands, as far as resolvers look at it."""

    context: Context
    parent_type: Any
    path: FieldPath
    field_nodes: Sequence[Any]
    fragments: Mapping[str, Any]
    variable_values: Any


@dataclass(frozen=True, slots=True)
class PlanRun:
    """One run of a plan; `arguments` are those of each field that takes any, by the number of the field."""

    context: Context
    variables: Any
    fragments: Mapping[str, Any]
    arguments: Sequence[dict[str, Any]]


@dataclass(slots=True)
class PendingWork:
    """What of the levels that were begun so far is to be awaited: they are filled in by `coroutines`, of these `values` among others."""

    coroutines: list[Coroutine[Any, Any, None]]
    values: list[FieldValues]

    async def wait(self) -> None:
        await _await_work(self.coroutines)

    def close(self) -> None:
        """Ends what nobody will await."""
        _close_coroutines(self.coroutines)
        for values in self.values:
            _close_coroutines(values)


class Completer(Protocol):
    """Turns the values of one field, of all objects of a level, into what stands in the answer."""

    @property
    def is_async(self) -> bool:
        """Whether there may be something to await; else `done` gives the same as the others at once."""
        ...

    def complete_sync(self, values: FieldValues) -> FieldValues: ...

    def begin(self, run: PlanRun, values: FieldValues, work: PendingWork) -> FieldValues | None:
        """What stands in the answer, which is filled in when the work is done; None where `complete` is to be awaited instead."""
        ...

    async def complete(self, run: PlanRun, values: FieldValues) -> FieldValues: ...


class FieldStep(Protocol):
    """A field of a level that is more than read off its objects."""

    key: str
    completer: Completer

    def begin(self, run: PlanRun, objects: Sequence[Any]) -> FieldValues:
        """The values as far as they are there, and what to await for the others. Waits for nothing."""
        ...


@dataclass(slots=True)
class AttributeStep:
    """An attribute; some of them, such as the count of a page, are awaited."""

    key: str
    completer: Completer
    attribute: str

    def begin(self, run: PlanRun, objects: Sequence[Any]) -> FieldValues:
        return [getattr(each, self.attribute) for each in objects]


@dataclass(slots=True)
class LoaderStep:
    """What a loader gives for a key of each object."""

    key: str
    completer: Completer
    field_source: LoaderSource

    def begin(self, run: PlanRun, objects: Sequence[Any]) -> FieldValues:
        name, load = self.field_source.key, self.field_source.loader(run.context).load
        return [None if (key := getattr(each, name)) is None else load(key) for each in objects]


@dataclass(slots=True)
class ResolverStep:
    """What a resolver gives, called for each object."""

    key: str
    completer: Completer
    resolve: Callable[..., Any]
    definition: Any
    nodes: Sequence[Any]
    parent_type: Any
    path: FieldPath
    root: str | None
    """The name of the parameter that takes the object; None: the first; "": there is none."""
    info: str | None
    arguments: int | None
    """The place in `PlanRun.arguments`; None without any."""

    @property
    def batch_resolver(self) -> Callable[..., Awaitable[FieldValues]] | None:
        """What gives the values of all objects at once, where the field has it."""
        return self.definition.metadata.get("batch")  # type: ignore[no-any-return]

    def make_info(self, run: PlanRun) -> Any:
        """What the resolver hears of where it stands."""
        resolver_info: Any = ResolverInfo(run.context, self.parent_type, self.path, self.nodes, run.fragments, run.variables)
        return strawberry.Info(_raw_info=resolver_info, _field=self.definition)

    def begin(self, run: PlanRun, objects: Sequence[Any]) -> FieldValues:
        arguments = run.arguments[self.arguments] if self.arguments is not None else {}
        if self.info is not None:
            arguments = {**arguments, self.info: self.make_info(run)}
        values: FieldValues = []
        try:
            for each in objects:
                if self.root is None:
                    values.append(self.resolve(each, **arguments))
                else:
                    values.append(self.resolve(**arguments, **({self.root: each} if self.root else {})))
        except BaseException:
            _close_coroutines(values)
            raise
        return values


@dataclass(slots=True)
class BatchStep:
    """A field whose values are asked for all objects of a level at once."""

    resolver_step: ResolverStep

    async def execute(self, run: PlanRun, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
        resolver_step = self.resolver_step
        if len(objects) > MAX_UNSLICED_OBJECTS:
            await run.context.scheduler.pause()
        batch_resolver = resolver_step.batch_resolver
        assert batch_resolver is not None  # noqa: S101 - else it is called for each
        await _complete(resolver_step, run, answers, list(await batch_resolver(resolver_step.make_info(run), objects)))


@dataclass(slots=True)
class Selection:
    """What is asked of the objects of one type. `steps` are the fields of resolvers; `batch_steps` those that fill in several at once."""

    serialize: ObjectSerializer
    steps: list[Any]
    batch_steps: list[Any]
    column_keys: tuple[str, ...] = ()
    """The response keys that `serialize` fills in, for explanations."""

    @property
    def is_async(self) -> bool:
        return bool(self.steps or self.batch_steps)

    def begin(self, run: PlanRun, objects: Sequence[Any], work: PendingWork) -> list[dict[str, Any]]:
        """The answers, which are whole when the work is done."""
        answers = self.serialize(objects)
        if self.is_async:
            begin_level(run, objects, answers, self.steps, self.batch_steps, work)
        return answers

    async def execute(self, run: PlanRun, objects: Sequence[Any]) -> list[dict[str, Any]]:
        if len(self.steps) + len(self.batch_steps) != 1:
            return await run_to_completion(lambda work: self.begin(run, objects, work))
        # Most operations ask for one thing, beside which there is nothing to begin.
        answers = self.serialize(objects)
        if self.batch_steps:
            await self.batch_steps[0].execute(run, objects, answers)
        else:
            step = self.steps[0]
            await _await_and_complete(step, run, answers, step.begin(run, objects))
        return answers


async def run_to_completion(begin: Callable[[PendingWork], T]) -> T:
    """What is begun, when the work of it is done."""
    work = PendingWork([], [])
    try:
        found = begin(work)
        if work.coroutines:
            await work.wait()
    except BaseException:
        work.close()
        raise
    return found


def begin_level(
    run: PlanRun,
    objects: Sequence[Any],
    answers: list[dict[str, Any]],
    steps: Sequence[FieldStep],
    batch_steps: Sequence[Any],
    work: PendingWork,
) -> None:
    """Begins what is more than read off the objects of a level, and those below it that wait for nothing."""
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
            work.coroutines.append(_await_and_complete(step, run, answers, values))
        else:
            _store_values(step, answers, found)
    for each in batch_steps:
        work.coroutines.append(each.execute(run, objects, answers))


async def _begin_after_pause(step: FieldStep, run: PlanRun, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
    """A field of a level that is too large for all of its fields to begin in one turn of the loop."""
    await run.context.scheduler.pause()
    values = step.begin(run, objects)
    try:
        await _await_and_complete(step, run, answers, values)
    except BaseException:
        _close_coroutines(values)
        raise


async def _await_and_complete(step: FieldStep, run: PlanRun, answers: list[dict[str, Any]], values: FieldValues) -> None:
    await await_values(values, run.context.scheduler)
    if len(values) > MAX_UNSLICED_OBJECTS:
        await run.context.scheduler.pause()
    await _complete(step, run, answers, values)


async def _complete(step: Any, run: PlanRun, answers: list[dict[str, Any]], values: FieldValues) -> None:
    """Puts the values of a field, which are all there, into the answers."""
    completer = step.completer
    _store_values(step, answers, await completer.complete(run, values) if completer.is_async else completer.complete_sync(values))


def _store_values(step: Any, answers: list[dict[str, Any]], found: FieldValues) -> None:
    key = step.key
    for answer, value in zip(answers, found, strict=True):
        answer[key] = value


async def await_values(values: FieldValues, pieces: SliceScheduler | None = None) -> None:
    """Puts what is awaited in the place of what is to be awaited. Many coroutines begin and go on in time slices."""
    if len(values) == 1:
        if is_awaitable(values[0]):
            values[0] = await values[0]
        return
    waiting = [number for number, value in enumerate(values) if is_awaitable(value)]
    if waiting:
        for number, value in zip(waiting, await _await_all([values[number] for number in waiting], pieces), strict=True):
            values[number] = value


async def _await_all(waiting: list[Awaitable[Any]], pieces: SliceScheduler | None) -> FieldValues:
    """What these give. Objects that share a value share its future, so a future is looked at once it is done."""
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
            _close_coroutines(waiting)
            raise
    return await _gather_all(waiting)


async def _await_work(work: list[Coroutine[Any, Any, None]]) -> None:
    if len(work) == 1:
        await work[0]
    elif work:
        await _gather_all(work)


async def _gather_all(work: Sequence[Awaitable[Any]]) -> FieldValues:
    """As `asyncio.gather`, but when one fails the others go on to their end first: what a statement that was cut off leaves is costly."""
    found = await asyncio.gather(*work, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return found


def _close_coroutines(values: Sequence[Any]) -> None:
    """Coroutines that nobody will await."""
    for value in values:
        if isinstance(value, Coroutine):
            value.close()
