"""How a type says which table fills it: `column`, `to_one`, `to_many`, `names_of`.

A declared field has no resolver of its own. `entity` ties the type to its table, and `graph/fields/resolvers.py` gives every declared field
of a finished schema its resolver, all from one mechanism, so the mapping (field → column, relation → key) stays readable as data.
"""

import base64
import binascii
import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypeVar, dataclass_transform

import strawberry
from graphql import GraphQLResolveInfo

from graph.context import Context, StaticSettings
from graph.fields.connections import KeysetListing, Order, OrderDirection, Window, filter_pages
from graph.rules import lookup
from graph.rules.policy import Action, require, require_all

ResolveInfo = GraphQLResolveInfo[Any]
C = TypeVar("C", bound=type)


@dataclass(frozen=True)
class Column:
    """A field that is a column of the row; `key` is its name in the table where it differs from the field's."""

    key: str | None = None


@dataclass(frozen=True)
class ToOne:
    """A field that is the row which a foreign key of this row names."""

    key: str
    target: str


@dataclass(frozen=True)
class NamesOf:
    """A field that is a list of names, given for all rows of a level by one statement: `statement(ids)` selects (row id, name)."""

    statement: Callable[[list[int]], Any]
    pick: Callable[[Any], Any] | None = None


class ConstantValue(NamedTuple):
    """A value that all rows have."""

    value: Any


@dataclass(frozen=True, eq=False)
class IndexedBy:
    """What the rows of a table tell of objects that are in no table themselves: of commits, what their index has.

    `key_columns` are the columns that name the object, `fields` what may be asked of it then. `row_class` is the class of the objects that
    are made of such rows, `attributes` how each of theirs is made of columns, `properties` what else they show and of which columns,
    `policy_columns` those that the policy looks at. `offset_columns` are the columns of instants with the columns of their offsets, in
    minutes; `incomplete_if` says of a column when its value does not tell all.
    """

    table: Any
    key_columns: tuple[Any, ...]
    fields: frozenset[str]
    row_class: type
    attributes: Mapping[str, tuple[tuple[str, ...], Callable[..., Any] | None]]
    properties: Mapping[str, tuple[str, ...]]
    policy_columns: tuple[str, ...]
    offset_columns: Mapping[str, str]
    serialize: Callable[[Any, int], str]
    incomplete_if: Mapping[str, Callable[[Any], Any]]


@dataclass(frozen=True, eq=False)
class ToMany:
    """A field that is a connection of the rows whose foreign key names this row. See `to_many`."""

    listing: KeysetListing
    action: Action | None
    filter_visible: Callable[[Context, list[Any]], Awaitable[list[Any]]] | None = None
    default_filter: Callable[[], Any] | None = None
    key_attribute: str = "id"
    extra_conditions: Mapping[str, Callable[[Any], list[Any]]] = dataclasses.field(default_factory=dict, hash=False)

    def filtered_listing(self, arguments: dict[str, Any]) -> KeysetListing:
        """The listing as the arguments want it."""
        if self.default_filter is not None and arguments.get("filter") is None:
            arguments = {**arguments, "filter": self.default_filter()}
        listing = filter_listing(self.listing, arguments)
        for name, conditions in self.extra_conditions.items():
            if arguments[name] is not None:
                listing = listing.where(*conditions(arguments[name]))
        return listing

    def filter_key(self, arguments: dict[str, Any]) -> tuple[str, ...]:
        """What tells apart arguments that narrow the listing differently."""
        return cached_repr(arguments.get("filter")), *(cached_repr(arguments[name]) for name in self.extra_conditions)

    async def require(self, context: Context, arguments: dict[str, Any], parents: Sequence[Any]) -> None:
        """Raises Forbidden unless the viewer may ask this of the parents."""
        if self.action is not None:
            await require_all(context, self.action, parents)
        for required_action in getattr(arguments.get("filter"), "required_actions", ()):
            await require_all(context, required_action, parents)


def bind_filter_to_viewer(context: Context, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with their filter bound to the viewer, where what it matches depends on who asks: where it has `bind_viewer`."""
    filter_input = arguments.get("filter")
    if filter_input is None or not hasattr(filter_input, "bind_viewer"):
        return arguments
    return {**arguments, "filter": filter_input.bind_viewer(context)}


def cached_repr(value: Any) -> str:
    """`repr`, which an input object keeps: the same one comes again with the same arguments."""
    attributes = getattr(value, "__dict__", None)
    if attributes is None:
        return repr(value)
    cached: str | None = attributes.get("cached_repr")
    if cached is None:
        cached = attributes["cached_repr"] = repr(value)
    return cached


@dataclass(frozen=True, eq=False)
class ByNumber:
    """A field that is one row of the project that this row is, by its number there or by its id. `action` is required on the project."""

    table: Any
    action: Action


@dataclass(frozen=True)
class ProjectLookup:
    """A field that is the project of a path, or of an id in digits, which its one argument has."""


@dataclass(frozen=True)
class GlobalIdField:
    """The field that is the id of a row in the graph: it takes the row's `id` and the type's name."""


@dataclass(frozen=True)
class EntityDeclaration:
    """A GraphQL type and the class of its rows.

    `project_key` names the column by which a row belongs to a project; `action` is what one must be allowed to do with the row to be
    given it as a node. An entity without an action says in `unrestricted` why it needs none. What is not found by its number alone is
    found by `load_nodes(context, keys)`: what there is and the viewer may see, by the key in its id. `is_node`: whether `node` finds it.
    """

    name: str
    row: type
    project_key: str | None
    action: Action | None
    is_node: bool
    load_nodes: Callable[[Context, list[str]], Awaitable[dict[str, Any]]] | None = None


ENTITIES: dict[type, EntityDeclaration] = {}
"""The class of a row → what it is in the graph."""


def column(source: Any = None, *, description: str, **settings: Any) -> Any:
    """A column of the row, of the same name or `source`."""
    return strawberry.field(description=description, metadata={"declared": Column(source.key if source is not None else None)}, **settings)


def to_one(key: Any, *, description: str, **settings: Any) -> Any:
    """The row that a foreign key names, as `to_one(tables.Issue.author_id)`; null where the key is null."""
    (foreign_key,) = key.property.columns[0].foreign_keys
    target = foreign_key.column.table.name
    return strawberry.field(description=description, metadata={"declared": ToOne(key.key, target)}, **settings)


def names_of(statement: Callable[[list[int]], Any], pick: Callable[[Any], Any] | None = None, *, description: str) -> Any:
    """A list that hangs on the row through a table between: `statement(ids)` selects (row id, value) in the order to show."""
    return strawberry.field(description=description, metadata={"declared": NamesOf(statement, pick)})


def to_many(
    key: Any,
    *,
    order_by: Order,
    description: str,
    where: tuple[Any, ...] = (),
    filter: type | None = None,
    ordering: type | None = None,
    action: Action | None = None,
    filter_visible: Callable[[Context, list[Any]], Awaitable[list[Any]]] | None = None,
    default_filter: Callable[[], Any] | None = None,
    key_attribute: str = "id",
    extra_arguments: dict[str, tuple[Any, Callable[[Any], list[Any]]]] | None = None,
) -> Any:
    """The rows whose foreign key names this one, as a keyset connection.

    `key` is that foreign key, or a pair of columns; `key_attribute` is the attribute of this object that has its value, or the pair of
    values.

    `filter` is an input type whose `conditions()` gives SQL conditions, and whose `required_actions`, where it has them, are further
    actions required of the viewer on each parent; `ordering` an input type whose `order()` gives an Order, and
    whose `conditions()`, where it has one, leaves out rows that have no place in that order;
    `default_filter` makes the filter that holds where none is given; `extra_arguments` are further arguments, each with its type, whose
    null is no condition, and what gives the SQL conditions of any other value;
    `action` is required of the viewer on each parent; `filter_visible` gives those rows of all pages of a level that the viewer may see,
    and the others are left out of their pages.
    """
    table = (key[0] if isinstance(key, tuple) else key).class_
    conditions = {name: conditions_of for name, (_, conditions_of) in (extra_arguments or {}).items()}
    declared = ToMany(
        KeysetListing(table=table, order=order_by, conditions=where, parent=key),
        action,
        filter_visible,
        default_filter,
        key_attribute,
        conditions,
    )

    async def resolve(root: Any, info: strawberry.Info, **arguments: Any) -> Any:
        context: Context = info.context
        await declared.require(context, arguments, [root])
        arguments, window = bind_filter_to_viewer(context, arguments), make_window(arguments)

        async def fetch(keys: list[Any]) -> dict[Any, Any]:
            # Once for all objects of a level, since conditions cost more to spell than a page to look up.
            pages = await declared.filtered_listing(arguments).pages(context, window, keys)
            return pages if filter_visible is None else await filter_pages(pages, lambda rows: filter_visible(context, rows))

        return await context.loader((declared, repr(arguments)), fetch).get(getattr(root, key_attribute))

    argument_types = {name: (kind, None) for name, (kind, _) in (extra_arguments or {}).items()}
    return connection_field(
        resolve, description=description, filter=filter, ordering=ordering, extra_arguments=argument_types, declared=declared
    )


def by_number(table: Any, *, action: Action, description: str) -> Any:
    """A row of the project that this row is, by its number in the project or by its v3 id; an error where there is none."""

    async def resolver(root: Any, info: strawberry.Info, iid: Any = None, database_id: Any = None) -> Any:
        await require(info.context, action, root)
        return await lookup.get_in_project(info.context, table, root, iid=iid, database_id=database_id)

    describe = strawberry.argument
    arguments: dict[str, tuple[Any, Any]] = {
        "iid": (Annotated[int | None, describe(description="Number within the project.")], None),
        "database_id": (Annotated[int | None, describe(description="ID in the v3 API.")], None),
    }
    set_signature(resolver, {"root": Any, "info": strawberry.Info}, arguments)
    return strawberry.field(resolver=resolver, description=description, metadata={"declared": ByNumber(table, action)})


def project_lookup(*, description: str) -> Any:
    """The decorator of a resolver that finds a project by its one argument (`lookup.project`)."""
    return strawberry.field(description=description, metadata={"declared": ProjectLookup()})


def computed(
    *needs: Any,
    description: str,
    from_columns: Callable[[StaticSettings, str | None], Callable[..., Any] | ConstantValue | None] | None = None,
    batch: Callable[..., Awaitable[Sequence[Any]]] | None = None,
    from_index: IndexedBy | None = None,
    **settings: Any,
) -> Any:
    """A field with a resolver that looks at nothing of the row but these columns, so that no more need be read for it.

    `from_columns(fixed, above)` is a function of the columns' values in this order that gives what the resolver gives, for less, or what is
    the same for all; None where only the resolver can. `above` is the type of whose field the row is, None in a list.

    Awaited, `batch(info, rows)` gives it of each of several rows. `from_index` says which table's row, named by these columns in this
    order, tells the same where it is there; `batch` is asked for the others.
    """
    metadata: dict[str, Any] = {"needs": tuple(each.key for each in needs), "from_index": from_index}
    if from_columns is not None:
        metadata["from_columns"] = from_columns
    if batch is not None:
        metadata["batch"] = batch
    return strawberry.field(description=description, metadata=metadata, **settings)


def connection_field(
    resolve: Callable[..., Awaitable[Any]],
    *,
    description: str,
    filter: type | None = None,
    ordering: type | None = None,
    extra_arguments: dict[str, Any] | None = None,
    declared: Any = None,
) -> Any:
    """A field with the arguments of a connection over `resolve(root, info, **arguments)`; `extra_arguments` are arguments of its own."""
    describe = strawberry.argument
    arguments: dict[str, tuple[Any, Any]] = {
        **(extra_arguments or {}),
        "first": (
            Annotated[int | None, describe(description="Number of items from the start (or after `after`); default 20, maximum 100.")],
            None,
        ),
        "after": (Annotated[str | None, describe(description="Return items after this cursor.")], None),
        "last": (Annotated[int | None, describe(description="Number of items from the end (or before `before`); maximum 100.")], None),
        "before": (Annotated[str | None, describe(description="Return items before this cursor.")], None),
        "offset": (Annotated[int | None, describe(description="Number of items to skip; used with `first` for v3 page numbers.")], None),
    }
    if filter is not None:
        arguments["filter"] = (Annotated[filter | None, describe(description="Return only matching items.")], None)
    if ordering is not None:
        arguments["order_by"] = (Annotated[ordering | None, describe(description="Sort order.")], None)

    async def resolver(root: Any, info: strawberry.Info, **field_arguments: Any) -> Any:
        return await resolve(root, info, **field_arguments)

    set_signature(resolver, {"root": Any, "info": strawberry.Info}, arguments)
    return strawberry.field(resolver=resolver, description=description, metadata={"declared": declared, "pages": resolve})


def set_signature(
    function: Any, leading: dict[str, Any], arguments: dict[str, tuple[Any, Any]], returns: Any = inspect.Signature.empty
) -> None:
    """Gives a function the signature that strawberry reads its arguments from."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind) for name, kind in leading.items()]
    parameters += [inspect.Parameter(name, keyword, annotation=kind, default=default) for name, (kind, default) in arguments.items()]
    function.__signature__ = inspect.Signature(parameters, return_annotation=returns)
    function.__annotations__ = {**leading, **{name: kind for name, (kind, _) in arguments.items()}}
    if returns is not inspect.Signature.empty:
        function.__annotations__["return"] = returns


def filter_listing(listing: KeysetListing, arguments: dict[str, Any]) -> KeysetListing:
    """The listing as the arguments `filter` and `order_by` want it."""
    if (filter_input := arguments.get("filter")) is not None:
        listing = listing.where(*filter_input.conditions())
    if (ordering := arguments.get("order_by")) is not None:
        conditions = ordering.conditions() if hasattr(ordering, "conditions") else []
        listing = KeysetListing(listing.table, ordering.order(), (*listing.conditions, *conditions), listing.parent)
    return listing


def make_window(arguments: dict[str, Any]) -> Window:
    return Window.of(arguments["first"], arguments["after"], arguments["last"], arguments["before"], arguments["offset"])


@strawberry.interface(description="An object with a global ID.")
class Node:
    @strawberry.field(description="Opaque, stable ID; accepted by `node`.", metadata={"declared": GlobalIdField()})
    def id(self, info: strawberry.Info) -> strawberry.ID:
        return global_id(info._raw_info.parent_type.name, self.id)

    @strawberry.field(description="Path of the resource in the v3 API; null if v3 does not expose it.")
    def rest_path(self) -> str | None:
        return None


def global_id(name: str, key: object) -> strawberry.ID:
    return strawberry.ID(base64.urlsafe_b64encode(f"{name}:{key}".encode()).decode().rstrip("="))


def parse_global_id(value: str) -> tuple[str, str] | None:
    """The name of the type and the key in it, or None for text that is no id."""
    try:
        name, separator, key = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).decode().partition(":")
    except (ValueError, binascii.Error):
        return None
    return (name, key) if separator else None


@dataclass_transform(kw_only_default=True)
def entity(
    row: type,
    *,
    description: str,
    name: str | None = None,
    project_key: str | None = None,
    action: Action | None = None,
    unrestricted: str | None = None,
    load_nodes: Callable[[Context, list[str]], Awaitable[dict[str, Any]]] | None = None,
) -> Callable[[C], C]:
    """Makes a class the GraphQL type of a table's rows. Rows pass as they are, behind interfaces and unions too. See `EntityDeclaration`.

    Raises TypeError unless either an action or the reason for having none is given.
    """
    type_name = name or row.__name__
    if (action is None) is not bool(unrestricted):
        raise TypeError(
            f"{type_name}: pass `action=Action.READ_…`, the right that a viewer needs to be given one as a node,"
            ' or `unrestricted="…"`, the reason why none is needed; not both.'
        )

    def decorate(cls: C) -> C:
        strawberry_type: Any = strawberry.type(cls, name=name, description=description)
        strawberry_type.is_type_of = staticmethod(lambda value, _info: isinstance(value, row))
        strawberry_type.__strawberry_definition__.is_type_of = strawberry_type.is_type_of
        ENTITIES[row] = EntityDeclaration(name or cls.__name__, row, project_key, action, issubclass(cls, Node), load_nodes)
        return strawberry_type  # type: ignore[no-any-return]

    return decorate


def make_order(column: Any, direction: OrderDirection) -> Order:
    return Order(column, descending=direction is OrderDirection.DESC)
