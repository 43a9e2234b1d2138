"""The view of a table's rows: the index of each value in a driver row, and the steps for the rest."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from graph.planner.errors import PlanBailout
from graph.planner.ir.steps import BatchedStep, FieldStep, PendingWork, PlanRun
from graph.planner.run import MAX_UNSLICED_OBJECTS, begin_level, run_to_completion

DriverRow = Sequence[Any]
ValueOrigin = tuple[Sequence[int], Callable[..., Any] | None]
"""The indexes of the values that something is made of, and the function that makes it; None: the one value itself."""
RowSerializer = Callable[[Sequence[DriverRow]], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class ColumnValue:
    """A column of the answer: a value of a driver row, and its serializer.

    The serializer is a function, a table of all values, or None for a value that needs none. A nullable column may be null in the
    database. `serialize_batch` serializes the column of all rows at once, nulls as null.
    """

    index: int
    serializer: Callable[[Any], Any] | dict[Any, Any] | None
    is_non_null: bool
    is_nullable: bool
    serialize_batch: Callable[[list[Any]], list[Any]] | None = None
    utc_offset: tuple[int, Callable[[Any, int], str]] | None = None
    """The index of a timestamp's UTC offset, and the serializer of both."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A function of other values, which `origins` make first."""

    derive: Callable[..., Any]
    origins: Sequence[ValueOrigin]
    is_non_null: bool


@dataclass(frozen=True, slots=True)
class ConstantPart:
    value: Any


@dataclass(frozen=True, slots=True)
class Deferred:
    """A step fills it in."""


@dataclass(frozen=True, slots=True)
class RelatedRow:
    """The row that a foreign key names. `id_index` is the index of its id, null without one.

    `fallback` fills in the field where an index row is missing, for objects that `make_object` makes.
    """

    view: "RowView"
    id_index: int
    is_non_null: bool
    fallback: BatchedStep | None = None
    make_object: Callable[[DriverRow], Any] | None = None

    @property
    def is_async(self) -> bool:
        return self.view.is_async or self.fallback is not None


ViewPart = ColumnValue | Derived | ConstantPart | Deferred | RelatedRow


@dataclass(slots=True)
class RowView:
    """What is selected of the rows of one table.

    `steps` are evaluated for each object, `batch_steps` for all of them at once.
    """

    parts: list[tuple[str, ViewPart]]
    serialize: RowSerializer
    steps: list[FieldStep] = field(default_factory=list)
    batch_steps: list[BatchedStep] = field(default_factory=list)
    make_object: Callable[[DriverRow], Any] | None = None
    full_row_class: Any = None
    """The class of the objects where they have all attributes, so that loaders can reuse them."""
    relations: list[tuple[str, RelatedRow]] = field(init=False)

    def __post_init__(self) -> None:
        self.relations = [(key, part) for key, part in self.parts if isinstance(part, RelatedRow) and part.is_async]

    @property
    def is_async(self) -> bool:
        return bool(self.steps or self.batch_steps or self.relations)

    def begin(self, run: PlanRun, rows: Sequence[DriverRow], work: PendingWork) -> list[dict[str, Any]]:
        """The answers for these rows, which are complete when the work is done.

        Raises PlanBailout, and what resolvers raise.
        """
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
        """The complete answers."""
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
    """Attaches a related row to the rows that name it; one that several name is completed once."""
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
