"""The selection of one type: what a plan reads off its objects, and the steps for the rest."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphql import GraphQLLeafType

from graph.documents.output_format import OutputFormat
from graph.planner.ir.steps import BatchNode, FieldStep

ObjectSerializer = Callable[[Sequence[Any]], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class LeafField:
    """An attribute of an object and its serialization, in the format of its field. A plain one needs none."""

    key: str
    attribute: str
    kind: GraphQLLeafType
    is_non_null: bool
    is_plain: bool
    output_format: OutputFormat | None = None


@dataclass(frozen=True, slots=True)
class DerivedField:
    """A function of attributes, whose result needs no serialization."""

    key: str
    derive: Callable[..., Any]
    attributes: Sequence[str]
    is_non_null: bool


@dataclass(frozen=True, slots=True)
class ConstantField:
    """A value of all objects."""

    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class DeferredField:
    """A step fills it in."""

    key: str


ObjectPart = LeafField | DerivedField | ConstantField | DeferredField


@dataclass(slots=True, eq=False)
class Selection:
    """What is selected of the objects of one type.

    `steps` are evaluated for each object, `batch_steps` for all of them at once.
    """

    parts: Sequence[ObjectPart]
    steps: Sequence[FieldStep]
    batch_steps: Sequence[BatchNode]
    serialize: ObjectSerializer = field(init=False, repr=False)
    """Generated: the parts of objects, in response order."""
    serialize_values: ObjectSerializer | None = field(init=False, repr=False, default=None)
    """Generated for value objects, whose steps all read attributes: their complete answers. Raises any error; the steps report it."""
    is_value: bool = False
    """Whether the objects are neither rows nor pages, so that no attribute is awaited."""

    @property
    def is_async(self) -> bool:
        return bool(self.steps or self.batch_steps)
