"""Completers: turn the values of a field, of all objects of a level, into the answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from graph.operations.row_executor import is_awaitable
from graph.planner.errors import PlanBailout
from graph.planner.ir.selection import Selection
from graph.planner.ir.steps import Completer, FieldValues, PendingWork, PlanRun
from graph.planner.run import await_values, run_to_completion


@dataclass(slots=True)
class LeafCompleter:
    """Serializes leaves. A value of `plain_type` is its own serialization."""

    serialize: Callable[[Any], Any]
    plain_type: type | None = None
    is_async: bool = False

    def complete_sync(self, values: FieldValues) -> FieldValues:
        if self.plain_type is not None and {self.plain_type}.issuperset(map(type, values)):
            return values
        serialize = self.serialize
        return [serialize(value) for value in values]

    def begin(self, run: PlanRun, values: FieldValues, work: PendingWork) -> FieldValues:
        return self.complete_sync(values)

    async def complete(self, run: PlanRun, values: FieldValues) -> FieldValues:
        return self.complete_sync(values)


@dataclass(slots=True)
class ObjectCompleter:
    """Completes objects of one type; an object that occurs several times is completed once."""

    selection: Selection
    is_non_null: bool
    is_async: bool = True

    def complete_sync(self, values: FieldValues) -> FieldValues:
        if len(values) == 1 and values[0] is not None:
            return self.selection.serialize(values)
        distinct = self._distinct_by_id(values)
        return _restore_duplicates(values, dict(zip(distinct, self.selection.serialize(list(distinct.values())), strict=True)))

    def begin(self, run: PlanRun, values: FieldValues, work: PendingWork) -> FieldValues:
        if len(values) == 1 and values[0] is not None:
            return self.selection.begin(run, values, work)
        distinct = self._distinct_by_id(values)
        if not distinct:
            return values
        begun = self.selection.begin(run, list(distinct.values()), work)
        return _restore_duplicates(values, dict(zip(distinct, begun, strict=True)))

    async def complete(self, run: PlanRun, values: FieldValues) -> FieldValues:
        return await run_to_completion(lambda work: self.begin(run, values, work))

    def _distinct_by_id(self, values: FieldValues) -> dict[int, Any]:
        if self.is_non_null and any(value is None for value in values):
            raise PlanBailout
        return {id(value): value for value in values if value is not None}


@dataclass(slots=True)
class SubfieldCompleter:
    """Completes objects and puts one subfield in place of each."""

    objects: ObjectCompleter
    key: str
    is_async: bool

    def complete_sync(self, values: FieldValues) -> FieldValues:
        return self._pick_subfield(self.objects.complete_sync(values))

    def begin(self, run: PlanRun, values: FieldValues, work: PendingWork) -> None:
        """A part is there when the whole is."""

    async def complete(self, run: PlanRun, values: FieldValues) -> FieldValues:
        return self._pick_subfield(await self.objects.complete(run, values))

    def _pick_subfield(self, values: FieldValues) -> FieldValues:
        key = self.key
        return [None if value is None else value[key] for value in values]


@dataclass(slots=True)
class AbstractCompleter:
    """Objects of several types behind an interface or a union."""

    selections: dict[str, Selection]
    type_of: Callable[[Any], str | None]
    is_non_null: bool
    is_async: bool = True

    def complete_sync(self, values: FieldValues) -> FieldValues:
        raise NotImplementedError  # It is asynchronous.

    def begin(self, run: PlanRun, values: FieldValues, work: PendingWork) -> FieldValues:
        by_type: dict[str, dict[int, Any]] = {}
        for value in values:
            if value is None:
                if self.is_non_null:
                    raise PlanBailout
                continue
            name = self.type_of(value)
            if name is None or name not in self.selections:
                raise PlanBailout
            by_type.setdefault(name, {})[id(value)] = value
        answers: dict[int, Any] = {}
        for name, distinct in by_type.items():
            answers.update(zip(distinct, self.selections[name].begin(run, list(distinct.values()), work), strict=True))
        return _restore_duplicates(values, answers)

    async def complete(self, run: PlanRun, values: FieldValues) -> FieldValues:
        return await run_to_completion(lambda work: self.begin(run, values, work))


@dataclass(slots=True)
class ListCompleter:
    """Lists: the items of all of them are completed together."""

    items: Completer
    is_non_null: bool
    is_async: bool = True

    def complete_sync(self, values: FieldValues) -> FieldValues:
        flat, lengths = self._flatten(values)
        return split_by_lengths(self.items.complete_sync(flat), lengths)

    def begin(self, run: PlanRun, values: FieldValues, work: PendingWork) -> FieldValues | None:
        flat, lengths = self._flatten(values)
        if not flat:
            return split_by_lengths(flat, lengths)
        if any(map(is_awaitable, flat)):
            return None
        found = self.items.begin(run, flat, work) if self.items.is_async else self.items.complete_sync(flat)
        return None if found is None else split_by_lengths(found, lengths)

    async def complete(self, run: PlanRun, values: FieldValues) -> FieldValues:
        flat, lengths = self._flatten(values)
        await await_values(flat, run.context.scheduler)
        return split_by_lengths(await self.items.complete(run, flat) if self.items.is_async else self.items.complete_sync(flat), lengths)

    def _flatten(self, values: FieldValues) -> tuple[FieldValues, list[int | None]]:
        flat: FieldValues = []
        lengths: list[int | None] = []
        for value in values:
            if value is None:
                if self.is_non_null:
                    raise PlanBailout
                lengths.append(None)
                continue
            if not isinstance(value, list | tuple):
                raise PlanBailout
            flat.extend(value)
            lengths.append(len(value))
        return flat, lengths


def _restore_duplicates(values: FieldValues, answers: dict[int, Any]) -> FieldValues:
    return [None if value is None else answers[id(value)] for value in values]


def split_by_lengths(flat: FieldValues, lengths: Sequence[int | None]) -> FieldValues:
    """The items as lists of these lengths; None for a list that is null."""
    found: FieldValues = []
    start = 0
    for length in lengths:
        if length is None:
            found.append(None)
        else:
            found.append(flat[start : start + length])
            start += length
    return found
