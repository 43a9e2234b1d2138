"""The view of a table's rows: where each value of the answer stands in a driver's row, and the steps for the rest."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from graph.planner.errors import PlanBailout
from graph.planner.ir.steps import BatchedStep, FieldStep, PendingWork, PlanRun
from graph.planner.run import MAX_UNSLICED_OBJECTS, begin_level, run_to_completion

DriverRow = Sequence[Any]
ValueOrigin = tuple[Sequence[int], Callable[..., Any] | None]
"""The places of the values that something is made of, and by what; None: of one as it is."""
RowSerializer = Callable[[Sequence[DriverRow]], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class ColumnValue:
    """A value at a place, and how it is spelled: by a function, by a table of all there are, or, None, as it is. `empty` ones may be null
    in the database. `together` spells those of all rows at once, nulls as null."""

    index: int
    serializer: Callable[[Any], Any] | dict[Any, Any] | None
    is_non_null: bool
    is_nullable: bool
    serialize_batch: Callable[[list[Any]], list[Any]] | None = None
    utc_offset: tuple[int, Callable[[Any, int], str]] | None = None
    """Where an instant's offset stands, and what spells it with one."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A value that `make` makes of others, which stand at these places, where they are made by what stands beside them first."""

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
    """The row that a foreign key names. `place` is its id's, null where there is none.

    Where a row that only tells of something is not there, `otherwise` fills in what the row's object has of it, which `make` makes.
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
    """What is asked of one table's rows. `steps` are the fields of resolvers; `fills` those that fill in several at once."""

    parts: list[tuple[str, ViewPart]]
    serialize: RowSerializer
    steps: list[FieldStep] = field(default_factory=list)
    batch_steps: list[BatchedStep] = field(default_factory=list)
    make_object: Callable[[DriverRow], Any] | None = None
    full_row_class: Any = None
    """The class whose whole rows are made, so that they can be kept for others who ask for them."""
    relations: list[tuple[str, RelatedRow]] = field(init=False)

    def __post_init__(self) -> None:
        self.relations = [(key, part) for key, part in self.parts if isinstance(part, RelatedRow) and part.is_async]

    @property
    def is_async(self) -> bool:
        return bool(self.steps or self.batch_steps or self.relations)

    def begin(self, run: PlanRun, rows: Sequence[DriverRow], work: PendingWork) -> list[dict[str, Any]]:
        """The answers for these rows, which are whole when the work is done. Raises Anomaly, and what resolvers raise."""
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
