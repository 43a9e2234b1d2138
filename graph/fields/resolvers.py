"""Attaches resolvers to the declared fields (`graph/fields/declarations.py`) of a finished schema."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from graphql import GraphQLField, GraphQLInterfaceType, GraphQLObjectType, GraphQLResolveInfo, GraphQLSchema, GraphQLUnionType
from strawberry.schema.schema_converter import GraphQLCoreConverter
from strawberry.types.arguments import convert_arguments

from graph.context import Context
from graph.fields.declarations import ByNumber, Column, NamesOf, ProjectLookup, ToMany, ToOne
from graph.fields.entities import ENTITIES, FURTHER_ROW_TYPES, GlobalIdField
from graph.fields.metadata import metadata_of
from graph.operations.loaders import Loader

ResolveInfo = GraphQLResolveInfo[Any]


def attach_resolvers(schema: GraphQLSchema) -> None:
    """Attaches resolvers to the declared fields of a finished schema, and resolves abstract types by the class of a row."""
    rows = {row: entity.name for row, entity in ENTITIES.items()}
    names = {*rows.values(), *FURTHER_ROW_TYPES}
    targets = {getattr(row, "__tablename__", None): row for row in ENTITIES}

    def resolve_type(value: Any, info: ResolveInfo, abstract: Any) -> str | None:
        return rows.get(type(value))

    for kind in schema.type_map.values():
        if isinstance(kind, GraphQLInterfaceType | GraphQLUnionType):
            kind.resolve_type = resolve_type
        if not isinstance(kind, GraphQLObjectType):
            continue
        # Only abstract types would need `is_type_of`, and they use `resolve_type`.
        kind.is_type_of = None
        if kind.name in names:
            kind.extensions[SOURCE_EXTENSION] = True
        for field in kind.fields.values():
            definition = field.extensions.get(GraphQLCoreConverter.DEFINITION_BACKREF)
            metadata = getattr(definition, "metadata", {})
            declared = declaration_of(field)
            if "pages" in metadata:
                field.resolve = _connection_resolver(metadata["pages"], definition, schema)
            source: AttributeSource | LoaderSource
            if isinstance(declared, Column):
                source = AttributeSource(declared.key or definition.python_name)
            elif isinstance(declared, ToOne):
                source = _to_one_source(declared, targets[declared.target])
            elif isinstance(declared, NamesOf):
                source = _names_of_source(declared)
            else:
                continue
            field.extensions[SOURCE_EXTENSION] = source
            field.resolve = _resolver_of(source)


def _connection_resolver(resolve: Callable[..., Awaitable[Any]], definition: Any, schema: Any) -> Callable[..., Awaitable[Any]]:
    """Returns the resolver of a connection. Strawberry's would convert the arguments for each row, which costs more than a page."""
    strawberry_schema: Any = schema._strawberry_schema
    registry = strawberry_schema.schema_converter.scalar_registry

    def resolver(root: Any, info: ResolveInfo, **raw_arguments: Any) -> Awaitable[Any]:
        cached_arguments: dict[Any, dict[str, Any]] = info.context.arguments
        # The same node of the document has the same arguments for all rows.
        key = (id(info.field_nodes[0]), id(definition))
        arguments = cached_arguments.get(key)
        if arguments is None:
            arguments = cached_arguments[key] = convert_arguments(
                raw_arguments, definition.arguments, scalar_registry=registry, config=strawberry_schema.config
            )
        return resolve(root, info, **arguments)

    return resolver


@dataclass(frozen=True)
class AttributeSource:
    """A field that is an attribute of the row."""

    key: str


@dataclass(frozen=True)
class LoaderSource:
    """A field that a loader loads, with the row's column `key` as the key; null if the key is null."""

    key: str
    loader: Callable[[Context], Loader[Any, Any]]


SOURCE_EXTENSION = "field_source"
"""Name of the extension of fields with their source, and of types whose objects are rows."""


def declaration_of(field: Any) -> Column | ToOne | NamesOf | ToMany | ByNumber | ProjectLookup | GlobalIdField | None:
    """Returns the declaration of a finished schema's field; None for a field with its own resolver."""
    return metadata_of(field).get("declared")


def field_source_of(field: GraphQLField) -> AttributeSource | LoaderSource | None:
    return field.extensions.get(SOURCE_EXTENSION)


def is_row_type(kind: Any) -> bool:
    """Whether the objects of a type are rows of an entity."""
    return isinstance(kind, GraphQLObjectType) and SOURCE_EXTENSION in kind.extensions


def _resolver_of(source: AttributeSource | LoaderSource) -> Callable[..., Any]:
    key = source.key
    if isinstance(source, AttributeSource):
        return lambda root, info: getattr(root, key)
    loader = source.loader

    def resolve(root: Any, info: ResolveInfo) -> Any:
        key_value = getattr(root, key)
        return None if key_value is None else loader(info.context).load(key_value)

    return resolve


def _to_one_source(declared: ToOne, target: Any) -> LoaderSource:
    return LoaderSource(declared.key, lambda context: context.rows_by_id(target))


def _names_of_source(declared: NamesOf) -> LoaderSource:
    return LoaderSource("id", lambda context: context.names_by_id(declared.statement))
