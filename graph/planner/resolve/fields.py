"""Resolves collected fields: what answers each, by its declaration and by what is selected of it.

Whether a statement has room for a field (a join more, a column that a table lacks) is seen when nodes are built (`build/`); a field
that does not fit is evaluated by its resolver (`StepKind`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphql import GraphQLList, GraphQLNonNull, GraphQLOutputType

from graph.context import StaticSettings
from graph.fields.declarations import ConstantValue
from graph.fields.metadata import metadata_of
from graph.fields.row_sources import FromRelated, FromSql
from graph.planner.codegen.leaf_serializers import PLAIN_TYPES
from graph.planner.collect import CollectedField, MergedField
from graph.planner.ir.steps import FieldPath
from graph.planner.resolve.classify import (
    ColumnKind,
    ComputedKind,
    ConstantKind,
    DerivedKind,
    FieldKind,
    FromRowKind,
    IndexedKind,
    PageKind,
    ProjectKind,
    RelatedKind,
    StepKind,
    TypenameKind,
    classify,
    unwrap_non_null,
)

INDEPENDENT_KINDS = (ColumnKind, StepKind, TypenameKind)
"""Kinds of most fields, for which it does not matter what is selected."""
CONNECTION_FIELDS = {"nodes", "edges", "pageInfo", "totalCount", "__typename"}


@dataclass(frozen=True, slots=True)
class ResolvedField(MergedField):
    """A selected field and what answers it.

    `path` is that of the object that has the field; `children` are the fields selected of it, by the name of the object's type.
    """

    kind: FieldKind
    path: FieldPath
    children: Mapping[str, Sequence["ResolvedField"]]

    @property
    def is_nullable(self) -> bool:
        """Whether an error of the field nulls nothing but the field."""
        return not isinstance(self.definition.type, GraphQLNonNull)


class FieldResolver:
    """Resolves the fields of one operation."""

    def __init__(self, settings: StaticSettings) -> None:
        self._settings = settings

    def resolve(self, typename: str, fields: Sequence[CollectedField], parent_path: FieldPath | None) -> list[ResolvedField]:
        """The fields selected of a type, and all below them. `parent_path` is the path of the field that has the type."""
        path = FieldPath(typename, parent_path)
        kinds = [self._kind_of(each, path) for each in fields]
        if sum(isinstance(kind, ProjectKind) for kind in kinds) > 1:
            # Loaders find several projects together.
            kinds = [StepKind() if isinstance(kind, ProjectKind) else kind for kind in kinds]
        return [self._resolve_field(each, kind, path) for each, kind in zip(fields, kinds, strict=True)]

    def _resolve_field(self, collected: CollectedField, kind: FieldKind, path: FieldPath) -> ResolvedField:
        key, nodes, field = collected.key, collected.nodes, collected.field
        object_path = path if field is None else _object_path(field.type, path)
        children = {typename: self.resolve(typename, fields, object_path) for typename, fields in collected.children.items()}
        return ResolvedField(key, nodes, field, collected.response_path, collected.error_position, kind, path, children)

    def _kind_of(self, collected: CollectedField, path: FieldPath) -> FieldKind:
        """The kind of a field whose declaration and selection fit together; otherwise its resolver is called."""
        kind = classify(collected)
        if isinstance(kind, INDEPENDENT_KINDS):
            return kind
        match kind:
            case ComputedKind(attributes):
                return self._derived_kind(collected, attributes, path)
            case IndexedKind(index) as indexed:
                return indexed if _selected_names(collected) <= index.fields else StepKind()
            case FromRowKind(FromSql(fields=names)) as selected:
                return selected if _selected_names(collected) <= {*names, "__typename"} else StepKind()
            case FromRowKind(FromRelated() as declared):
                return RelatedKind(declared, declared.derive(self._settings))
            case PageKind() as page:
                return page if _selected_names(collected) <= CONNECTION_FIELDS else StepKind()
            case _:
                return kind

    def _derived_kind(self, collected: CollectedField, attributes: Sequence[str], path: FieldPath) -> FieldKind:
        """The function of columns that the field's factory returns for these settings and this parent."""
        factory = metadata_of(collected.definition)["from_columns"]
        derive = factory(self._settings, path.prev.typename if path.prev is not None else None)
        if derive is None:
            return StepKind()
        assert unwrap_non_null(collected.definition.type)[1].name in PLAIN_TYPES  # noqa: S101 - its result is not serialized
        return ConstantKind(derive.value) if isinstance(derive, ConstantValue) else DerivedKind(derive, attributes)


def _object_path(kind: GraphQLOutputType, path: FieldPath) -> FieldPath:
    """The path of a field's objects: each list around them is a part without a type name."""
    while isinstance(kind, GraphQLNonNull | GraphQLList):
        if isinstance(kind, GraphQLList):
            path = FieldPath(None, path)
        kind = kind.of_type
    return path


def _selected_names(collected: CollectedField) -> set[str]:
    return {each.name for fields in collected.children.values() for each in fields}
