"""Views: what the driver's rows of a statement become in the answer, by code that is generated once.

A view reads the values at their places and spells them, without a row's object in between. Where resolvers have to be asked, the
objects that they take are made as well, each once, of the columns that they need.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graph.planning.completing import split
from graph.planning.leaves import Anomaly, needed
from graph.planning.running import LARGE, Run, Work, begin_level, whole
from storage.reading import plain_row

Values = Sequence[Any]
Of = tuple[Sequence[int], Callable[..., Any] | None]
"""The places of the values that something is made of, and by what; None: of one as it is."""
Fill = Callable[[Sequence[Values]], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Value:
    """A value at a place, and how it is spelled: by a function, by a table of all there are, or, None, as it is. `empty` ones may be null
    in the database. `together` spells those of all rows at once, nulls as null."""

    place: int
    spell: Callable[[Any], Any] | dict[Any, Any] | None
    needed: bool
    empty: bool
    together: Callable[[list[Any]], list[Any]] | None = None
    offset: tuple[int, Callable[[Any, int], str]] | None = None
    """Where an instant's offset stands, and what spells it with one."""


@dataclass(frozen=True, slots=True)
class Made:
    """A value that `make` makes of others, which stand at these places, where they are made by what stands beside them first."""

    make: Callable[..., Any]
    of: Sequence[Of]
    needed: bool


@dataclass(frozen=True, slots=True)
class Constant:
    value: Any


@dataclass(frozen=True, slots=True)
class Later:
    """Filled in when the level's resolvers have answered."""


@dataclass(frozen=True, slots=True)
class Related:
    """The row that a foreign key names. `place` is its id's, null where there is none.

    Where a row that only tells of something is not there, `otherwise` fills in what the row's object has of it, which `make` makes.
    """

    view: "View"
    place: int
    needed: bool
    otherwise: Any = None
    make: Callable[[Values], Any] | None = None

    @property
    def waits(self) -> bool:
        return self.view.waits or self.otherwise is not None


Part = Value | Made | Constant | Later | Related


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
        self.relations = [(key, part) for key, part in self.parts if isinstance(part, Related) and part.waits]
        self.shell = _generated(self.parts)

    @property
    def waits(self) -> bool:
        return bool(self.steps or self.fills or self.relations)

    def begin(self, run: Run, rows: Sequence[Values], work: Work) -> list[dict[str, Any]]:
        """The answers for these rows, which are whole when the work is done. Raises Anomaly, and what resolvers raise."""
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
        begin_level(run, objects, answers, self.steps, self.fills, work)
        for key, part in self.relations:
            _relate(key, part, run, rows, answers, work)
        return answers

    async def fill(self, run: Run, rows: Sequence[Values]) -> list[dict[str, Any]]:
        """The whole answers."""
        if len(rows) > LARGE:
            await run.context.pieces.pause()
        if self.waits:
            return await whole(lambda work: self.begin(run, rows, work))
        if len(rows) <= LARGE:
            return self.shell(rows)
        answers: list[dict[str, Any]] = []
        for start in range(0, len(rows), LARGE):
            answers += self.shell(rows[start : start + LARGE])
            await run.context.pieces.pause()
        return answers


def _relate(key: str, part: Related, run: Run, rows: Sequence[Values], answers: list[dict[str, Any]], work: Work) -> None:
    """A row that stands in many places is filled once."""
    place = part.place
    distinct = {row[place]: row for row in rows}
    distinct.pop(None, None)
    filled = dict(zip(distinct, part.view.begin(run, list(distinct.values()), work), strict=True))
    absent: list[tuple[Values, dict[str, Any]]] = []
    for row, answer in zip(rows, answers, strict=True):
        found = answer[key] = filled.get(row[place])
        if found is None:
            if part.needed:
                raise Anomaly
            absent.append((row, answer))
    if absent and part.otherwise is not None and part.make is not None:
        objects = [part.make(row) for row, _ in absent]
        work.todo.append(part.otherwise.fill_in(run, objects, [answer for _, answer in absent]))


class Maker:
    """Makes the object of a row, with the attributes that resolvers need."""

    def __init__(self, row: type, columns: Mapping[str, Of]) -> None:
        scope: dict[str, Any] = {}
        texts = [f"{key!r}: {_made_of(of, scope)}" for key, of in columns.items()]
        self._columns = _compiled(f"lambda r: {{{', '.join(texts)}}}", scope)
        self._row = row

    def __call__(self, values: Values) -> Any:
        return plain_row(self._row, self._columns(values))


def _generated(parts: list[tuple[str, Part]]) -> Fill:
    scope: dict[str, Any] = {"needed": needed, "spelled": _spelled}
    columns = Columns()
    text = _text(parts, scope, columns)
    if not columns.by_spelling:
        return _compiled(f"lambda rows: [{text} for r in rows]", scope)  # type: ignore[no-any-return]
    names, lists = [], []
    for together, places in columns.by_spelling.items():
        names += [columns.name(together, place) for place in places]
        of_rows = ", ".join(f"[r[{place}] for r in rows]" for place in places)
        spell = _named(scope, together)
        lists.append(f"{spell}({of_rows})" if len(places) == 1 else f"*spelled({spell}, {of_rows})")
    return _compiled(f"lambda rows: [{text} for r, {', '.join(names)} in zip(rows, {', '.join(lists)})]", scope)  # type: ignore[no-any-return]


@dataclass(slots=True)
class Columns:
    """The places of values that are spelled for all rows at once, by what spells them."""

    by_spelling: dict[Callable[[list[Any]], list[Any]], dict[int, None]] = field(default_factory=dict)

    def name(self, together: Callable[[list[Any]], list[Any]], place: int) -> str:
        """The name of a spelled value in the generated text."""
        self.by_spelling.setdefault(together, {})[place] = None
        return f"c{list(self.by_spelling).index(together)}_{place}"


def _spelled(together: Callable[[list[Any]], list[Any]], *columns: list[Any]) -> list[list[Any]]:
    """Several columns together: what it costs is mostly to begin."""
    values = together([value for column in columns for value in column])
    return split(values, [len(column) for column in columns])


def _text(parts: list[tuple[str, Part]], scope: dict[str, Any], columns: Columns) -> str:
    """The text of a dictionary over the row `r`, and over what stands in `columns` for it, which it adds to. Names in it are numbers of
    ours; what callers wrote stands beside it as values."""
    texts = []
    for key, part in parts:
        name = _named(scope, key)
        if isinstance(part, Value):
            texts.append(f"{name}: {_value(part, scope, columns)}")
        elif isinstance(part, Made):
            text = f"{_named(scope, part.make)}({', '.join(_made_of(each, scope) for each in part.of)})"
            texts.append(f"{name}: {f'needed({text})' if part.needed else text}")
        elif isinstance(part, Constant):
            texts.append(f"{name}: {_named(scope, part.value)}")
        elif isinstance(part, Later) or part.waits:
            texts.append(f"{name}: None")
        else:
            absent = "needed(None)" if part.needed else "None"
            texts.append(f"{name}: {absent} if r[{part.place}] is None else {_text(part.view.parts, scope, columns)}")
    return f"{{{', '.join(texts)}}}"


def _made_of(of: Of, scope: dict[str, Any]) -> str:
    places, make = of
    values = ", ".join(f"r[{place}]" for place in places)
    return values if make is None else f"{_named(scope, make)}({values})"


def _value(value: Value, scope: dict[str, Any], columns: Columns) -> str:
    text = f"r[{value.place}]"
    if value.together is not None:
        text = columns.name(value.together, value.place)
    if value.offset is not None:
        offset, spell = value.offset
        text = f"({_named(scope, spell)}(r[{value.place}], r[{offset}]) if r[{offset}] else {text})"
    if value.empty and value.needed:
        text = f"needed({text})"
    if value.spell is None:
        return text
    opening, closing = "[]" if isinstance(value.spell, dict) else "()"
    spelled = f"{_named(scope, value.spell)}{opening}{text}{closing}"
    return f"None if {text} is None else {spelled}" if value.empty and not value.needed else spelled


def _named(scope: dict[str, Any], value: Any) -> str:
    name = f"v{len(scope)}"
    scope[name] = value
    return name


def _compiled(text: str, scope: dict[str, Any]) -> Any:
    return eval(compile(text, "<plan>", "eval"), scope)  # noqa: S307 - the text is made of numbers and attribute names of ours alone
