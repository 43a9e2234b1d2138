"""Views: what the driver's rows of a statement become in the answer, by code that is generated once.

A view reads the values at their places and spells them, without a row's object in between. Where resolvers have to be asked, the
objects that they take are made as well, each once, of the columns that they need.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graph.planner.codegen.object_serializer import require_non_null
from graph.planner.errors import PlanBailout
from graph.planner.ir.completers import split_by_lengths
from graph.planner.run import MAX_UNSLICED_OBJECTS, PendingWork, PlanRun, begin_level, run_to_completion
from storage.database.statement_cache import detached_row

DriverRow = Sequence[Any]
ValueOrigin = tuple[Sequence[int], Callable[..., Any] | None]
"""The places of the values that something is made of, and by what; None: of one as it is."""
RowSerializer = Callable[[Sequence[DriverRow]], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class ColumnValue:
    """A value at a place, and how it is spelled: by a function, by a table of all there are, or, None, as it is. `is_nullable` ones may be
    null in the database. `serialize_batch` spells those of all rows at once, nulls as null."""

    index: int
    serializer: Callable[[Any], Any] | dict[Any, Any] | None
    is_non_null: bool
    is_nullable: bool
    serialize_batch: Callable[[list[Any]], list[Any]] | None = None
    utc_offset: tuple[int, Callable[[Any, int], str]] | None = None
    """Where an instant's offset stands, and what spells it with one."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A value that `derive` makes of others, which stand at these places, where they are made by what stands beside them first."""

    derive: Callable[..., Any]
    origins: Sequence[ValueOrigin]
    is_non_null: bool


@dataclass(frozen=True, slots=True)
class ConstantPart:
    value: Any


@dataclass(frozen=True, slots=True)
class Deferred:
    """Filled in when the level's resolvers have answered."""


@dataclass(frozen=True, slots=True)
class RelatedRow:
    """The row that a foreign key names. `id_index` is its id's, null where there is none.

    Where a row that only tells of something is not there, `fallback` fills in what the row's object has of it, which `make_object` makes.
    """

    view: "RowView"
    id_index: int
    is_non_null: bool
    fallback: Any = None
    make_object: Callable[[DriverRow], Any] | None = None

    @property
    def is_async(self) -> bool:
        return self.view.is_async or self.fallback is not None


ViewPart = ColumnValue | Derived | ConstantPart | Deferred | RelatedRow


@dataclass(slots=True)
class RowView:
    """What is asked of one table's rows. `steps` are the fields of resolvers; `batch_steps` those that fill in several at once."""

    parts: list[tuple[str, ViewPart]]
    steps: list[Any] = field(default_factory=list)
    batch_steps: list[Any] = field(default_factory=list)
    make_object: Callable[[DriverRow], Any] | None = None
    full_row_class: Any = None
    """The class whose whole rows are made, so that they can be kept for others who ask for them."""
    relations: list[tuple[str, RelatedRow]] = field(default_factory=list)
    serialize: RowSerializer = field(init=False)

    def __post_init__(self) -> None:
        self.relations = [(key, part) for key, part in self.parts if isinstance(part, RelatedRow) and part.is_async]
        self.serialize = _compile_row_serializer(self.parts)

    @property
    def is_async(self) -> bool:
        return bool(self.steps or self.batch_steps or self.relations)

    def begin(self, run: PlanRun, rows: Sequence[DriverRow], work: PendingWork) -> list[dict[str, Any]]:
        """The answers for these rows, which are whole when the work is done. Raises PlanBailout, and what resolvers raise."""
        answers = self.serialize(rows)
        if not self.is_async or not rows:
            return answers
        objects: Sequence[Any] = rows
        if self.make_object is not None:
            objects = [self.make_object(each) for each in rows]
            if self.full_row_class is not None:
                offer = run.context.rows_by_id(self.full_row_class).prime_if_absent
                for each in objects:
                    offer(each.id, each)
        begin_level(run, objects, answers, self.steps, self.batch_steps, work)
        for key, part in self.relations:
            _attach_related(key, part, run, rows, answers, work)
        return answers

    async def execute(self, run: PlanRun, rows: Sequence[DriverRow]) -> list[dict[str, Any]]:
        """The whole answers."""
        if len(rows) > MAX_UNSLICED_OBJECTS:
            await run.context.scheduler.pause()
        if self.is_async:
            return await run_to_completion(lambda work: self.begin(run, rows, work))
        if len(rows) <= MAX_UNSLICED_OBJECTS:
            return self.serialize(rows)
        answers: list[dict[str, Any]] = []
        for start in range(0, len(rows), MAX_UNSLICED_OBJECTS):
            answers += self.serialize(rows[start : start + MAX_UNSLICED_OBJECTS])
            await run.context.scheduler.pause()
        return answers


def _attach_related(
    key: str, part: RelatedRow, run: PlanRun, rows: Sequence[DriverRow], answers: list[dict[str, Any]], work: PendingWork
) -> None:
    """A row that stands in many places is filled once."""
    id_index = part.id_index
    distinct = {row[id_index]: row for row in rows}
    distinct.pop(None, None)
    filled = dict(zip(distinct, part.view.begin(run, list(distinct.values()), work), strict=True))
    absent: list[tuple[DriverRow, dict[str, Any]]] = []
    for row, answer in zip(rows, answers, strict=True):
        found = answer[key] = filled.get(row[id_index])
        if found is None:
            if part.is_non_null:
                raise PlanBailout
            absent.append((row, answer))
    if absent and part.fallback is not None and part.make_object is not None:
        objects = [part.make_object(row) for row, _ in absent]
        work.coroutines.append(part.fallback.execute(run, objects, [answer for _, answer in absent]))


class RowObjectFactory:
    """Makes the object of a row, with the attributes that resolvers need."""

    def __init__(self, row: type, columns: Mapping[str, ValueOrigin]) -> None:
        scope: dict[str, Any] = {}
        expressions = [f"{key!r}: {_origin_expression(of, scope)}" for key, of in columns.items()]
        self._columns = _compile_expression(f"lambda r: {{{', '.join(expressions)}}}", scope)
        self._row = row

    def __call__(self, values: DriverRow) -> Any:
        return detached_row(self._row, self._columns(values))


def _compile_row_serializer(parts: list[tuple[str, ViewPart]]) -> RowSerializer:
    scope: dict[str, Any] = {"require_non_null": require_non_null, "serialize_columns": _serialize_columns}
    columns = BatchColumns()
    expression = _dict_expression(parts, scope, columns)
    if not columns.by_serializer:
        return _compile_expression(f"lambda rows: [{expression} for r in rows]", scope)  # type: ignore[no-any-return]
    names, lists = [], []
    for serialize_batch, indexes in columns.by_serializer.items():
        names += [columns.add_variable(serialize_batch, place) for place in indexes]
        of_rows = ", ".join(f"[r[{place}] for r in rows]" for place in indexes)
        serializer_name = _bind_name(scope, serialize_batch)
        lists.append(f"{serializer_name}({of_rows})" if len(indexes) == 1 else f"*serialize_columns({serializer_name}, {of_rows})")
    return _compile_expression(f"lambda rows: [{expression} for r, {', '.join(names)} in zip(rows, {', '.join(lists)})]", scope)  # type: ignore[no-any-return]


@dataclass(slots=True)
class BatchColumns:
    """The places of values that are spelled for all rows at once, by what spells them."""

    by_serializer: dict[Callable[[list[Any]], list[Any]], dict[int, None]] = field(default_factory=dict)

    def add_variable(self, serialize_batch: Callable[[list[Any]], list[Any]], index: int) -> str:
        """The name of a spelled value in the generated text."""
        self.by_serializer.setdefault(serialize_batch, {})[index] = None
        return f"c{list(self.by_serializer).index(serialize_batch)}_{index}"


def _serialize_columns(serialize_batch: Callable[[list[Any]], list[Any]], *columns: list[Any]) -> list[list[Any]]:
    """Several columns together: what it costs is mostly to begin."""
    values = serialize_batch([value for column in columns for value in column])
    return split_by_lengths(values, [len(column) for column in columns])


def _dict_expression(parts: list[tuple[str, ViewPart]], scope: dict[str, Any], columns: BatchColumns) -> str:
    """The text of a dictionary over the row `r`, and over what stands in `columns` for it, which it adds to. Names in it are numbers of
    ours; what callers wrote stands beside it as values."""
    items = []
    for key, part in parts:
        name = _bind_name(scope, key)
        if isinstance(part, ColumnValue):
            items.append(f"{name}: {_value_expression(part, scope, columns)}")
        elif isinstance(part, Derived):
            expression = f"{_bind_name(scope, part.derive)}({', '.join(_origin_expression(each, scope) for each in part.origins)})"
            items.append(f"{name}: {f'require_non_null({expression})' if part.is_non_null else expression}")
        elif isinstance(part, ConstantPart):
            items.append(f"{name}: {_bind_name(scope, part.value)}")
        elif isinstance(part, Deferred) or part.is_async:
            items.append(f"{name}: None")
        else:
            absent = "require_non_null(None)" if part.is_non_null else "None"
            items.append(f"{name}: {absent} if r[{part.id_index}] is None else {_dict_expression(part.view.parts, scope, columns)}")
    return f"{{{', '.join(items)}}}"


def _origin_expression(origin: ValueOrigin, scope: dict[str, Any]) -> str:
    indexes, derive = origin
    values = ", ".join(f"r[{place}]" for place in indexes)
    return values if derive is None else f"{_bind_name(scope, derive)}({values})"


def _value_expression(value: ColumnValue, scope: dict[str, Any], columns: BatchColumns) -> str:
    expression = f"r[{value.index}]"
    if value.serialize_batch is not None:
        expression = columns.add_variable(value.serialize_batch, value.index)
    if value.utc_offset is not None:
        offset, serializer = value.utc_offset
        expression = f"({_bind_name(scope, serializer)}(r[{value.index}], r[{offset}]) if r[{offset}] else {expression})"
    if value.is_nullable and value.is_non_null:
        expression = f"require_non_null({expression})"
    if value.serializer is None:
        return expression
    opening, closing = "[]" if isinstance(value.serializer, dict) else "()"
    serialized = f"{_bind_name(scope, value.serializer)}{opening}{expression}{closing}"
    return f"None if {expression} is None else {serialized}" if value.is_nullable and not value.is_non_null else serialized


def _bind_name(scope: dict[str, Any], value: Any) -> str:
    name = f"v{len(scope)}"
    scope[name] = value
    return name


def _compile_expression(source: str, scope: dict[str, Any]) -> Any:
    return eval(compile(source, "<plan>", "eval"), scope)  # noqa: S307 - the text is made of numbers and attribute names of ours alone
