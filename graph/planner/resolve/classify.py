"""Classifies a field: what its declaration says about where its values come from.

The classification depends on the schema alone. Whether a source has room for the field (a join more, a column that it lacks) is decided
by `ObjectNodeBuilder` for objects and by `RowNodeBuilder` for rows; a field that does not fit is evaluated by its resolver (`StepKind`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from graphql import GraphQLField, GraphQLList, GraphQLNonNull, GraphQLObjectType, is_leaf_type

from graph.fields.declarations import ByNumber, IndexedBy, NamesOf, ProjectLookup, ToMany, ToOne
from graph.fields.entities import ENTITIES, FURTHER_ROW_TYPES, GlobalIdField
from graph.fields.metadata import metadata_of
from graph.fields.resolvers import AttributeSource, LoaderSource, declaration_of, field_source_of, is_row_type
from graph.fields.row_sources import FromJoins, FromRelated, FromSql
from graph.planner.collect import CollectedField
from graph.planner.sql.select_builder import is_table

TABLE_BY_TYPE_NAME = {**{entity.name: row for row, entity in ENTITIES.items() if is_table(row)}, **FURTHER_ROW_TYPES}
"""The name of a type → the table of its rows."""


@dataclass(frozen=True, slots=True)
class TypenameKind:
    """`__typename`."""


@dataclass(frozen=True, slots=True)
class ColumnKind:
    """A leaf that is an attribute of its object (`column`)."""

    attribute: str


@dataclass(frozen=True, slots=True)
class StringListKind:
    """A list of strings that is an attribute of its object (`column`), stored as JSON. On objects its resolver reads it."""

    attribute: str


@dataclass(frozen=True, slots=True)
class GlobalIdKind:
    """The global id, of the type's name and the attribute `id`. On objects its resolver makes it."""


@dataclass(frozen=True, slots=True)
class ComputedKind:
    """A leaf that is a function of columns (`from_columns=`), unless its factory returns none.

    `FieldResolver` turns it into `DerivedKind`, `ConstantKind` or `StepKind`.
    """

    attributes: Sequence[str]


@dataclass(frozen=True, slots=True)
class DerivedKind:
    """A computed field with its function of these attributes, which needs no serialization."""

    derive: Callable[..., Any]
    attributes: Sequence[str]


@dataclass(frozen=True, slots=True)
class ConstantKind:
    """A computed field that has one value for all objects of a service."""

    value: Any


@dataclass(frozen=True, slots=True)
class RelationKind:
    """The row of a foreign key (`to_one`), or a list of names (`names_of`)."""

    declared: ToOne | NamesOf


@dataclass(frozen=True, slots=True)
class FromRowKind:
    """A field that a statement on the row selects too (`from_row=`)."""

    declared: FromSql | FromRelated | FromJoins


@dataclass(frozen=True, slots=True)
class RelatedKind:
    """A function of columns of the row and of a related one, of these settings. `FieldResolver` makes it of `FromRowKind`."""

    declared: FromRelated
    derive: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class IndexedKind:
    """An object without a row of its own of which an index has some fields (`from_index=`).

    On objects its resolver gives it.
    """

    index: IndexedBy
    attributes: Sequence[str]


@dataclass(frozen=True, slots=True)
class ProjectKind:
    """The project of a path or an id (`project_lookup`)."""


@dataclass(frozen=True, slots=True)
class PageKind:
    """A connection of the rows whose foreign key names the object (`to_many`)."""

    declared: ToMany


@dataclass(frozen=True, slots=True)
class RowByNumberKind:
    """One row of a project, by its number or its id (`by_number`)."""

    declared: ByNumber


@dataclass(frozen=True, slots=True)
class StepKind:
    """Any other field: a loader, an attribute or a resolver gives its values."""


FieldKind = (
    TypenameKind
    | ColumnKind
    | StringListKind
    | GlobalIdKind
    | ComputedKind
    | DerivedKind
    | ConstantKind
    | RelationKind
    | FromRowKind
    | RelatedKind
    | IndexedKind
    | ProjectKind
    | PageKind
    | RowByNumberKind
    | StepKind
)


_KIND_EXTENSION = "planned_kind"
"""Name of the extension of fields with their kind, which is the same for all operations."""


def classify(collected: CollectedField) -> FieldKind:
    """The kind of a field."""
    field = collected.field
    if field is None:
        return TypenameKind()
    found: FieldKind | None = field.extensions.get(_KIND_EXTENSION)
    if found is None:
        found = field.extensions[_KIND_EXTENSION] = _kind_of(field)
    return found


def _kind_of(field: GraphQLField) -> FieldKind:
    source, metadata = field_source_of(field), metadata_of(field)
    is_non_null, inner = unwrap_non_null(field.type)
    if isinstance(source, AttributeSource) and is_leaf_type(inner):
        return ColumnKind(source.key)
    if isinstance(source, AttributeSource) and isinstance(inner, GraphQLList) and unwrap_non_null(inner.of_type)[1].name == "String":
        return StringListKind(source.key)
    if metadata.get("from_columns") is not None:
        return ComputedKind(metadata["needs"])
    if metadata.get("from_row") is not None:
        return FromRowKind(metadata["from_row"])
    if metadata.get("from_index") is not None and not is_non_null:
        return IndexedKind(metadata["from_index"], metadata["needs"])
    match declaration_of(field):
        case GlobalIdField():
            return GlobalIdKind()
        case (ToOne() | NamesOf()) as declared if isinstance(source, LoaderSource):
            return RelationKind(declared)
        case ProjectLookup():
            return ProjectKind()
        case ToMany() as declared if _node_table(inner) is declared.listing.table:
            return PageKind(declared)
        case ByNumber() as declared if table_of(inner) is declared.table:
            return RowByNumberKind(declared)
        case _:
            return StepKind()


def table_of(kind: Any) -> Any:
    """The table of a type's rows; None for a type without one."""
    return TABLE_BY_TYPE_NAME.get(kind.name) if is_row_type(kind) else None


def unwrap_non_null(kind: Any) -> tuple[bool, Any]:
    """Whether a type is non-null, and the type inside."""
    return (True, kind.of_type) if isinstance(kind, GraphQLNonNull) else (False, kind)


def unwrap_named(kind: Any) -> Any:
    """The named type inside lists and non-null types."""
    while hasattr(kind, "of_type"):
        kind = kind.of_type
    return kind


def _node_table(connection: GraphQLObjectType) -> Any:
    return table_of(unwrap_named(connection.fields["nodes"].type))
