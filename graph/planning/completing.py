"""How the values of a field, of all objects of a level, become what stands in the answer (`Completer` in `running.py`)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from graph.filling import may_wait
from graph.planning.leaves import Anomaly
from graph.planning.running import Run, Selection, Values, Work, wait_for, whole


@dataclass(slots=True)
class Leaves:
    """`plain` is the type of the values that are their own spelling, if there are such."""

    spell: Callable[[Any], Any]
    plain: type | None = None
    waits: bool = False

    def done(self, values: Values) -> Values:
        if self.plain is not None and {self.plain}.issuperset(map(type, values)):
            return values
        spell = self.spell
        return [spell(value) for value in values]

    def begin(self, run: Run, values: Values, work: Work) -> Values:
        return self.done(values)

    async def complete(self, run: Run, values: Values) -> Values:
        return self.done(values)


@dataclass(slots=True)
class Objects:
    """Objects of one type; one that stands in many places is filled once."""

    selection: Selection
    needed: bool
    waits: bool = True

    def done(self, values: Values) -> Values:
        if len(values) == 1 and values[0] is not None:
            return self.selection.shell(values)
        distinct = self._distinct(values)
        return _placed(values, dict(zip(distinct, self.selection.shell(list(distinct.values())), strict=True)))

    def begin(self, run: Run, values: Values, work: Work) -> Values:
        if len(values) == 1 and values[0] is not None:
            return self.selection.begin(run, values, work)
        distinct = self._distinct(values)
        if not distinct:
            return values
        begun = self.selection.begin(run, list(distinct.values()), work)
        return _placed(values, dict(zip(distinct, begun, strict=True)))

    async def complete(self, run: Run, values: Values) -> Values:
        return await whole(lambda work: self.begin(run, values, work))

    def _distinct(self, values: Values) -> dict[int, Any]:
        if self.needed and any(value is None for value in values):
            raise Anomaly
        return {id(value): value for value in values if value is not None}


@dataclass(slots=True)
class Part:
    """Of each object one part, in its place."""

    whole: Objects
    key: str
    waits: bool

    def done(self, values: Values) -> Values:
        return self._parts(self.whole.done(values))

    def begin(self, run: Run, values: Values, work: Work) -> None:
        """A part is there when the whole is."""

    async def complete(self, run: Run, values: Values) -> Values:
        return self._parts(await self.whole.complete(run, values))

    def _parts(self, values: Values) -> Values:
        key = self.key
        return [None if value is None else value[key] for value in values]


@dataclass(slots=True)
class Abstract:
    """Objects of several types behind an interface or a union."""

    selections: dict[str, Selection]
    type_of: Callable[[Any], str | None]
    needed: bool
    waits: bool = True

    def begin(self, run: Run, values: Values, work: Work) -> Values:
        by_type: dict[str, dict[int, Any]] = {}
        for value in values:
            if value is None:
                if self.needed:
                    raise Anomaly
                continue
            name = self.type_of(value)
            if name is None or name not in self.selections:
                raise Anomaly
            by_type.setdefault(name, {})[id(value)] = value
        answers: dict[int, Any] = {}
        for name, distinct in by_type.items():
            answers.update(zip(distinct, self.selections[name].begin(run, list(distinct.values()), work), strict=True))
        return _placed(values, answers)

    async def complete(self, run: Run, values: Values) -> Values:
        return await whole(lambda work: self.begin(run, values, work))


@dataclass(slots=True)
class Lists:
    """Lists: the items of all of them are completed together."""

    items: Any
    needed: bool
    waits: bool = True

    def done(self, values: Values) -> Values:
        flat, lengths = self._flat(values)
        return split(self.items.done(flat), lengths)

    def begin(self, run: Run, values: Values, work: Work) -> Values | None:
        flat, lengths = self._flat(values)
        if not flat:
            return split(flat, lengths)
        if any(map(may_wait, flat)):
            return None
        found = self.items.begin(run, flat, work) if self.items.waits else self.items.done(flat)
        return None if found is None else split(found, lengths)

    async def complete(self, run: Run, values: Values) -> Values:
        flat, lengths = self._flat(values)
        await wait_for(flat, run.context.pieces)
        return split(await self.items.complete(run, flat) if self.items.waits else self.items.done(flat), lengths)

    def _flat(self, values: Values) -> tuple[Values, list[int | None]]:
        flat: Values = []
        lengths: list[int | None] = []
        for value in values:
            if value is None:
                if self.needed:
                    raise Anomaly
                lengths.append(None)
                continue
            if not isinstance(value, list | tuple):
                raise Anomaly
            flat.extend(value)
            lengths.append(len(value))
        return flat, lengths


def _placed(values: Values, answers: dict[int, Any]) -> Values:
    return [None if value is None else answers[id(value)] for value in values]


def split(flat: Values, lengths: Sequence[int | None]) -> Values:
    """The items as lists of these lengths; None for a list that is null."""
    found: Values = []
    start = 0
    for length in lengths:
        if length is None:
            found.append(None)
        else:
            found.append(flat[start : start + length])
            start += length
    return found
