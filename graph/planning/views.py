"""Views: what the driver's rows of a statement become in the answer, by code that is generated once.

A view reads the values at their places and spells them, without a row's object in between. Where resolvers have to be asked, the
objects that they take are made as well, each once, of the columns that they need.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from graph.planning.leaves import INLINE, Anomaly
from graph.planning.running import Run, fill_level
from storage.reading import plain_row

Values = Sequence[Any]
Fill = Callable[[Sequence[Values]], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Value:
    """A value at a place, and how it is spelled; None: as it is. `empty` ones may be null in the database."""

    place: int
    spell: Callable[[Any], Any] | None
    needed: bool
    empty: bool


@dataclass(frozen=True, slots=True)
class Constant:
    value: Any


@dataclass(frozen=True, slots=True)
class Later:
    """Filled in when the level's resolvers have answered."""


@dataclass(frozen=True, slots=True)
class Related:
    """The row that a foreign key names. `place` is its id's, null where there is none."""

    view: "View"
    place: int
    needed: bool


Part = Value | Constant | Later | Related


@dataclass(slots=True)
class View:
    """What is asked of one table's rows. `steps` are the fields of resolvers; `fills` those that fill in several at once."""

    parts: list[tuple[str, Part]]
    steps: list[Any] = field(default_factory=list)
    fills: list[Any] = field(default_factory=list)
    make: Callable[[Values], Any] | None = None
    row: Any = None
    """The class whose whole rows are made, so that they can be kept for others who ask for them."""
    relations: list[tuple[str, Related]] = field(default_factory=list)
    shell: Fill = field(init=False)

    def __post_init__(self) -> None:
        self.relations = [(key, part) for key, part in self.parts if isinstance(part, Related) and part.view.waits]
        self.shell = _generated(self.parts)

    @property
    def waits(self) -> bool:
        return bool(self.steps or self.fills or self.relations)

    async def fill(self, run: Run, rows: Sequence[Values]) -> list[dict[str, Any]]:
        """The answers for these rows. Raises Anomaly, and what resolvers raise."""
        answers = self.shell(rows)
        if not self.waits or not rows:
            return answers
        objects: Sequence[Any] = rows
        if self.make is not None:
            objects = [self.make(each) for each in rows]
            if self.row is not None:
                offer = run.context.rows_by_id(self.row).offer
                for each in objects:
                    offer(each.id, each)
        related = (_relate(key, part, run, rows, answers) for key, part in self.relations)
        await fill_level(run, objects, answers, self.steps, self.fills, related)
        return answers


async def _relate(key: str, part: Related, run: Run, rows: Sequence[Values], answers: list[dict[str, Any]]) -> None:
    """A row that stands in many places is filled once."""
    place = part.place
    distinct = {row[place]: row for row in rows}
    distinct.pop(None, None)
    filled = dict(zip(distinct, await part.view.fill(run, list(distinct.values())), strict=True))
    for row, answer in zip(rows, answers, strict=True):
        found = filled.get(row[place])
        if found is None and part.needed:
            raise Anomaly
        answer[key] = found


class Maker:
    """Makes the object of a row, with the attributes that resolvers need."""

    def __init__(self, row: type, columns: Sequence[tuple[str, int, Callable[[Any], Any] | None]]) -> None:
        scope: dict[str, Any] = {}
        texts = []
        for number, (key, place, process) in enumerate(columns):
            scope[f"p{number}"] = process
            value = f"r[{place}]"
            texts.append(f"{key!r}: {value if process is None else f'p{number}({value})'}")
        self._columns = _compiled(f"lambda r: {{{', '.join(texts)}}}", scope)
        self._row = row

    def __call__(self, values: Values) -> Any:
        return plain_row(self._row, self._columns(values))


def _generated(parts: list[tuple[str, Part]]) -> Fill:
    scope: dict[str, Any] = {"needed": _needed}
    text = _text(parts, scope)
    return _compiled(f"lambda rows: [{text} for r in rows]", scope)  # type: ignore[no-any-return]


def _text(parts: list[tuple[str, Part]], scope: dict[str, Any]) -> str:
    """The text of a dictionary over the row `r`. Names in it are numbers of ours; what callers wrote stands beside it as values."""
    texts = []
    for key, part in parts:
        name = _named(scope, key)
        if isinstance(part, Value):
            texts.append(f"{name}: {_value(part, scope)}")
        elif isinstance(part, Constant):
            texts.append(f"{name}: {_named(scope, part.value)}")
        elif isinstance(part, Later) or part.view.waits:
            texts.append(f"{name}: None")
        else:
            absent = "needed(None)" if part.needed else "None"
            texts.append(f"{name}: {absent} if r[{part.place}] is None else {_text(part.view.parts, scope)}")
    return f"{{{', '.join(texts)}}}"


def _value(value: Value, scope: dict[str, Any]) -> str:
    text = f"r[{value.place}]"
    if value.empty and value.needed:
        text = f"needed({text})"
    if value.spell is None:
        return text
    inline = INLINE.get(value.spell)
    spelled = f"{_named(scope, value.spell)}({text})" if inline is None else inline.format(text)
    return f"None if {text} is None else {spelled}" if value.empty and not value.needed else spelled


def _named(scope: dict[str, Any], value: Any) -> str:
    name = f"v{len(scope)}"
    scope[name] = value
    return name


def _needed(value: Any) -> Any:
    if value is None:
        raise Anomaly
    return value


def _compiled(text: str, scope: dict[str, Any]) -> Any:
    return eval(compile(text, "<plan>", "eval"), scope)  # noqa: S307 - the text is made of numbers and attribute names of ours alone
