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
from graph.filling import has_to_wait, may_wait
from graph.installing import Loading
from graph.planning.leaves import Shell
from graph.time_slices import Pieces, in_slices

Values = list[Any]
T = TypeVar("T")

LARGE = 500
"""Objects of a level whose fields are worked on in time slices, each field by itself."""


@dataclass(frozen=True, slots=True)
class Way:
    """The way to a field, as far as resolvers look back: `typename` has the field that `prev` is; the items of a list have none."""

    typename: str | None
    prev: "Way | None" = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a resolver stands, as far as resolvers look at it."""

    context: Context
    parent_type: Any
    path: Way
    field_nodes: Sequence[Any]
    fragments: Mapping[str, Any]
    variable_values: Any


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a plan; `arguments` are those of each field that takes any, by the number of the field."""

    context: Context
    variables: Any
    fragments: Mapping[str, Any]
    arguments: Sequence[dict[str, Any]]


@dataclass(slots=True)
class Work:
    """What of the levels that were begun so far is to be awaited: they are filled in by `todo`, of these `values` among others."""

    todo: list[Coroutine[Any, Any, None]]
    values: list[Values]

    async def done(self) -> None:
        await _together(self.todo)

    def drop(self) -> None:
        """Ends what nobody will await."""
        _drop(self.todo)
        for values in self.values:
            _drop(values)


class Completer(Protocol):
    """Turns the values of one field, of all objects of a level, into what stands in the answer."""

    @property
    def waits(self) -> bool:
        """Whether there may be something to await; else `done` gives the same as the others at once."""
        ...

    def done(self, values: Values) -> Values: ...

    def begin(self, run: Run, values: Values, work: Work) -> Values | None:
        """What stands in the answer, which is filled in when the work is done; None where `complete` is to be awaited instead."""
        ...

    async def complete(self, run: Run, values: Values) -> Values: ...


class Step(Protocol):
    """A field of a level that is more than read off its objects."""

    key: str
    completer: Completer

    def begin(self, run: Run, objects: Sequence[Any]) -> Values:
        """The values as far as they are there, and what to await for the others. Waits for nothing."""
        ...


@dataclass(slots=True)
class Reading:
    """An attribute; some of them, such as the count of a page, are awaited."""

    key: str
    completer: Completer
    attribute: str

    def begin(self, run: Run, objects: Sequence[Any]) -> Values:
        return [getattr(each, self.attribute) for each in objects]


@dataclass(slots=True)
class Loaded:
    """What a loader gives for a key of each object."""

    key: str
    completer: Completer
    loading: Loading

    def begin(self, run: Run, objects: Sequence[Any]) -> Values:
        name, load = self.loading.key, self.loading.loader(run.context).load
        return [None if (key := getattr(each, name)) is None else load(key) for each in objects]


@dataclass(slots=True)
class Calling:
    """What a resolver gives, called for each object."""

    key: str
    completer: Completer
    resolve: Callable[..., Any]
    definition: Any
    nodes: Sequence[Any]
    parent_type: Any
    path: Way
    root: str | None
    """The name of the parameter that takes the object; None: the first; "": there is none."""
    info: str | None
    arguments: int | None
    """The place in `Run.arguments`; None without any."""

    @property
    def together(self) -> Callable[..., Awaitable[Values]] | None:
        """What gives the values of all objects at once, where the field has it."""
        return self.definition.metadata.get("together")  # type: ignore[no-any-return]

    def place(self, run: Run) -> Any:
        """What the resolver hears of where it stands."""
        place: Any = Place(run.context, self.parent_type, self.path, self.nodes, run.fragments, run.variables)
        return strawberry.Info(_raw_info=place, _field=self.definition)

    def begin(self, run: Run, objects: Sequence[Any]) -> Values:
        given = run.arguments[self.arguments] if self.arguments is not None else {}
        if self.info is not None:
            given = {**given, self.info: self.place(run)}
        values: Values = []
        try:
            for each in objects:
                if self.root is None:
                    values.append(self.resolve(each, **given))
                else:
                    values.append(self.resolve(**given, **({self.root: each} if self.root else {})))
        except BaseException:
            _drop(values)
            raise
        return values


@dataclass(slots=True)
class Together:
    """A field whose values are asked for all objects of a level at once."""

    calling: Calling

    async def fill_in(self, run: Run, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
        calling = self.calling
        if len(objects) > LARGE:
            await run.context.pieces.pause()
        together = calling.together
        assert together is not None  # noqa: S101 - else it is called for each
        await _complete(calling, run, answers, list(await together(calling.place(run), objects)))


@dataclass(slots=True)
class Selection:
    """What is asked of the objects of one type. `steps` are the fields of resolvers; `fills` those that fill in several at once."""

    shell: Shell
    steps: list[Any]
    fills: list[Any]

    @property
    def waits(self) -> bool:
        return bool(self.steps or self.fills)

    def begin(self, run: Run, objects: Sequence[Any], work: Work) -> list[dict[str, Any]]:
        """The answers, which are whole when the work is done."""
        answers = self.shell(objects)
        if self.waits:
            begin_level(run, objects, answers, self.steps, self.fills, work)
        return answers

    async def fill(self, run: Run, objects: Sequence[Any]) -> list[dict[str, Any]]:
        if len(self.steps) + len(self.fills) != 1:
            return await whole(lambda work: self.begin(run, objects, work))
        # Most operations ask for one thing, beside which there is nothing to begin.
        answers = self.shell(objects)
        if self.fills:
            await self.fills[0].fill_in(run, objects, answers)
        else:
            step = self.steps[0]
            await _finish(step, run, answers, step.begin(run, objects))
        return answers


async def whole(begin: Callable[[Work], T]) -> T:
    """What is begun, when the work of it is done."""
    work = Work([], [])
    try:
        found = begin(work)
        if work.todo:
            await work.done()
    except BaseException:
        work.drop()
        raise
    return found


def begin_level(
    run: Run, objects: Sequence[Any], answers: list[dict[str, Any]], steps: Sequence[Step], fills: Sequence[Any], work: Work
) -> None:
    """Begins what is more than read off the objects of a level, and those below it that wait for nothing."""
    begun: list[tuple[Step, Values, bool]] = []
    is_large = len(objects) > LARGE
    for step in steps:
        if is_large and not isinstance(step, Loaded):
            work.todo.append(_begin_later(step, run, objects, answers))
            continue
        values = step.begin(run, objects)
        waits = may_wait(values[0]) if len(values) == 1 else any(map(has_to_wait, set(map(type, values))))
        if waits:
            work.values.append(values)
        begun.append((step, values, waits))
    for step, values, waits in begun:
        completer = step.completer
        found = None
        if not waits:
            found = completer.begin(run, values, work) if completer.waits else completer.done(values)
        if found is None:
            work.todo.append(_finish(step, run, answers, values))
        else:
            _place(step, answers, found)
    for each in fills:
        work.todo.append(each.fill_in(run, objects, answers))


async def _begin_later(step: Step, run: Run, objects: Sequence[Any], answers: list[dict[str, Any]]) -> None:
    """A field of a level that is too large for all of its fields to begin in one turn of the loop."""
    await run.context.pieces.pause()
    values = step.begin(run, objects)
    try:
        await _finish(step, run, answers, values)
    except BaseException:
        _drop(values)
        raise


async def _finish(step: Step, run: Run, answers: list[dict[str, Any]], values: Values) -> None:
    await wait_for(values, run.context.pieces)
    if len(values) > LARGE:
        await run.context.pieces.pause()
    await _complete(step, run, answers, values)


async def _complete(step: Any, run: Run, answers: list[dict[str, Any]], values: Values) -> None:
    """Puts the values of a field, which are all there, into the answers."""
    completer = step.completer
    _place(step, answers, await completer.complete(run, values) if completer.waits else completer.done(values))


def _place(step: Any, answers: list[dict[str, Any]], found: Values) -> None:
    key = step.key
    for answer, value in zip(answers, found, strict=True):
        answer[key] = value


async def wait_for(values: Values, pieces: Pieces | None = None) -> None:
    """Puts what is awaited in the place of what is to be awaited. Many coroutines begin and go on in time slices."""
    if len(values) == 1:
        if may_wait(values[0]):
            values[0] = await values[0]
        return
    waiting = [number for number, value in enumerate(values) if may_wait(value)]
    if waiting:
        for number, value in zip(waiting, await _all([values[number] for number in waiting], pieces), strict=True):
            values[number] = value


async def _all(waiting: list[Awaitable[Any]], pieces: Pieces | None) -> Values:
    """What these give. Objects that share a value share its future, so a future is looked at once it is done."""
    if len(waiting) == 1:
        return [await waiting[0]]
    if all(isinstance(each, asyncio.Future) for each in waiting):
        # Those of one loader come together.
        return [await each for each in waiting]
    if pieces is not None and len(waiting) > LARGE:
        try:
            return await _gathered([in_slices(each, pieces) for each in waiting])
        except BaseException:
            # What was called off before it began.
            _drop(waiting)
            raise
    return await _gathered(waiting)


async def _together(work: list[Coroutine[Any, Any, None]]) -> None:
    if len(work) == 1:
        await work[0]
    elif work:
        await _gathered(work)


async def _gathered(work: Sequence[Awaitable[Any]]) -> Values:
    """As `asyncio.gather`, but when one fails the others go on to their end first: what a statement that was cut off leaves is costly."""
    found = await asyncio.gather(*work, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return found


def _drop(values: Sequence[Any]) -> None:
    """Coroutines that nobody will await."""
    for value in values:
        if isinstance(value, Coroutine):
            value.close()
