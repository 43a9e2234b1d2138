"""How declared fields are filled: `install` gives the declared fields of a finished schema (`graph/declare.py`) their resolvers."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from graphql import GraphQLField, GraphQLInterfaceType, GraphQLObjectType, GraphQLResolveInfo, GraphQLSchema, GraphQLUnionType
from strawberry.schema.schema_converter import GraphQLCoreConverter
from strawberry.types.arguments import convert_arguments

from graph.context import Context
from graph.declare import ENTITIES, Column, Entrance, Identity, NamesOf, Numbered, ToMany, ToOne
from graph.loading import Loader

ResolveInfo = GraphQLResolveInfo[Any]


def install(schema: GraphQLSchema) -> None:
    """Gives the declared fields of a finished schema their resolvers, and abstract types the class of a row as its type."""
    rows = {row: entity.name for row, entity in ENTITIES.items()}
    names = frozenset(rows.values())
    targets = {getattr(row, "__tablename__", None): row for row in ENTITIES}

    def type_of(value: Any, info: ResolveInfo, abstract: Any) -> str | None:
        return rows.get(type(value))

    for kind in schema.type_map.values():
        if isinstance(kind, GraphQLInterfaceType | GraphQLUnionType):
            kind.resolve_type = type_of
        if not isinstance(kind, GraphQLObjectType):
            continue
        # Only abstract types need to ask, and they know a row by its class.
        kind.is_type_of = None
        if kind.name in names:
            kind.extensions[FILLING] = True
        for field in kind.fields.values():
            definition = field.extensions.get(GraphQLCoreConverter.DEFINITION_BACKREF)
            metadata = getattr(definition, "metadata", {})
            declared = declared_of(field)
            if "pages" in metadata:
                field.resolve = _paging(metadata["pages"], definition, schema)
            filling: Reading | Loading
            if isinstance(declared, Column):
                filling = Reading(declared.key or definition.python_name)
            elif isinstance(declared, ToOne):
                filling = _to_one(declared, targets[declared.target])
            elif isinstance(declared, NamesOf):
                filling = _names_of(declared)
            else:
                continue
            field.extensions[FILLING] = filling
            field.resolve = _resolver_of(filling)


def _paging(resolve: Callable[..., Awaitable[Any]], definition: Any, schema: Any) -> Callable[..., Awaitable[Any]]:
    """The resolver of a connection. Strawberry's own reads the arguments anew for every row of a level, which costs more than a page."""
    made: Any = schema._strawberry_schema
    registry = made.schema_converter.scalar_registry

    def resolver(root: Any, info: ResolveInfo, **given: Any) -> Awaitable[Any]:
        read: dict[Any, dict[str, Any]] = info.context.arguments
        # The same node of the operation has the same arguments, whatever row it is asked of.
        key = (id(info.field_nodes[0]), id(definition))
        arguments = read.get(key)
        if arguments is None:
            arguments = read[key] = convert_arguments(given, definition.arguments, scalar_registry=registry, config=made.config)
        return resolve(root, info, **arguments)

    return resolver


@dataclass(frozen=True)
class Reading:
    """A field that is read off the row, by this name."""

    key: str


@dataclass(frozen=True)
class Loading:
    """A field that is loaded: by which loader, and under which of the row's columns as the key. A null key is null."""

    key: str
    loader: Callable[[Context], Loader[Any, Any]]


FILLING = "filling"
"""The extension of a finished field, or of a type of rows, that says how it is filled."""


def metadata_of(field: Any) -> Mapping[str, Any]:
    """What the declaration of a finished schema's field says beside its type."""
    return getattr(field.extensions.get(GraphQLCoreConverter.DEFINITION_BACKREF), "metadata", {})


def declared_of(field: Any) -> Column | ToOne | NamesOf | ToMany | Numbered | Entrance | Identity | None:
    """How the field of a finished schema was declared; None for one with a resolver."""
    return metadata_of(field).get("declared")


def filling_of(field: GraphQLField) -> Reading | Loading | None:
    return field.extensions.get(FILLING)


def is_filled(kind: Any) -> bool:
    """Whether the objects of a type are rows, as they were declared."""
    return isinstance(kind, GraphQLObjectType) and FILLING in kind.extensions


def _resolver_of(filling: Reading | Loading) -> Callable[..., Any]:
    key = filling.key
    if isinstance(filling, Reading):
        return lambda root, info: getattr(root, key)
    loader = filling.loader

    def resolve(root: Any, info: ResolveInfo) -> Any:
        value = getattr(root, key)
        return None if value is None else loader(info.context).load(value)

    return resolve


def _to_one(declared: ToOne, target: Any) -> Loading:
    return Loading(declared.key, lambda context: context.rows_by_id(target))


def _names_of(declared: NamesOf) -> Loading:
    def loader(context: Context) -> Loader[Any, Any]:
        async def fetch(ids: list[int]) -> dict[int, list[Any]]:
            found: dict[int, list[Any]] = {key: [] for key in ids}
            for key, value in await context.tuples(declared.statement(ids)):
                found[key].append(declared.pick(value) if declared.pick else value)
            return found

        return context.loader(declared, fetch)

    return Loading("id", loader)
