"""The view of a table's rows: the index of each value in a driver row, and the steps for the rest."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graph.planner.ir.steps import BatchNode, BatchStep, FieldStep

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


@dataclass(slots=True, eq=False)
class RowObjects:
    """Objects of the class `row` that are made of a driver's rows, with the attributes that resolvers need."""

    row: type
    attributes: Mapping[str, ValueOrigin]
    make: Callable[[Sequence[DriverRow]], list[Any]] = field(init=False, repr=False)
    """Generated."""


@dataclass(frozen=True, slots=True)
class RelatedRow:
    """The row that a foreign key names. `id_index` is the index of its id, null without one.

    `fallback` fills in the field where an index row is missing, for the objects of `fallback_objects`.
    """

    view: "RowView"
    id_index: int
    is_non_null: bool
    fallback: BatchStep | None = None
    fallback_objects: RowObjects | None = None

    @property
    def is_async(self) -> bool:
        return self.view.is_async or self.fallback is not None


@dataclass(frozen=True, slots=True)
class EmbeddedObject:
    """An object without a row of its own, of values that the statement selects for the row."""

    parts: list[tuple[str, "ColumnValue | ConstantPart"]]


ViewPart = ColumnValue | Derived | ConstantPart | Deferred | RelatedRow | EmbeddedObject


@dataclass(slots=True, eq=False)
class RowView:
    """What is selected of the rows of one table.

    `steps` are evaluated for each object, `batch_steps` for all of them at once.
    """

    parts: list[tuple[str, ViewPart]]
    steps: list[FieldStep] = field(default_factory=list)
    batch_steps: list[BatchNode] = field(default_factory=list)
    objects: RowObjects | None = None
    """The objects that the steps take."""
    has_full_rows: bool = False
    """Whether the objects have all attributes of their table, so that loaders can reuse them."""
    relations: list[tuple[str, RelatedRow]] = field(init=False)
    """The related rows that have steps; the others are part of the serializer."""
    serialize: RowSerializer = field(init=False, repr=False)
    """Generated: the answers of rows, in the order of the parts."""

    def __post_init__(self) -> None:
        self.relations = [(key, part) for key, part in self.parts if isinstance(part, RelatedRow) and part.is_async]

    @property
    def is_async(self) -> bool:
        return bool(self.steps or self.batch_steps or self.relations)
