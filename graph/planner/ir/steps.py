"""The fields of a level that are evaluated for each object, and the bases of all nodes."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from graphql import FieldNode, GraphQLObjectType
from strawberry.types.field import StrawberryField

from graph.fields.metadata import FieldFacts, facts_in
from graph.fields.resolvers import LoaderSource
from graph.planner.errors import ErrorPosition

FieldValues = list[Any]


@dataclass(frozen=True, slots=True)
class FieldPath:
    """The path to a field as far as resolvers read it; the items of a list have no type name."""

    typename: str | None
    prev: "FieldPath | None" = None


class Completer:
    """How the values of a field become the answer (`ir/completers.py`)."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class FieldStep:
    """A field that is evaluated for each object of a level."""

    key: str
    completer: Completer
    position: ErrorPosition | None
    is_nullable: bool


class BatchNode:
    """A field, or several, that is evaluated for all objects of a level at once."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class AttributeStep(FieldStep):
    """An attribute; some of them, such as the count of a page, are awaited."""

    attribute: str


@dataclass(frozen=True, slots=True, eq=False)
class LoaderStep(FieldStep):
    """A field that a loader loads by a key of each object."""

    field_source: LoaderSource


@dataclass(frozen=True, slots=True, eq=False)
class ResolverStep(FieldStep):
    """A field whose resolver is called for each object."""

    resolve: Callable[..., Any]
    definition: StrawberryField
    nodes: Sequence[FieldNode]
    parent_type: GraphQLObjectType
    path: FieldPath
    root: str | None
    """The name of the parameter that takes the object; None: the first; "": there is none."""
    info: str | None
    arguments: int | None
    """The index in `PlanRun.arguments`; None without arguments."""

    @property
    def facts(self) -> FieldFacts:
        return facts_in(self.definition.metadata)

    @property
    def batch_resolver(self) -> Callable[..., Awaitable[FieldValues]] | None:
        """The resolver of all objects at once, where the field declares one (`batch=`)."""
        return self.definition.metadata.get("batch")


@dataclass(frozen=True, slots=True, eq=False)
class BatchStep(BatchNode):
    """A field whose resolver is called once for all objects of a level (`batch=`)."""

    resolver_step: ResolverStep

    @property
    def key(self) -> str:
        return self.resolver_step.key
