"""How a type says which table fills it: `column`, `to_one`, `to_many`, `names_of`.

A declared field has no resolver of its own. `entity` ties the type to its table, and `graph/installing.py` gives every declared field of
a finished schema its resolver, all from one mechanism, so the mapping (field → column, relation → key) stays readable as data.
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

from graph.connections import Listing, Order, OrderDirection, Window, shown
from graph.context import Context, Fixed
from graph.rules import finding
from graph.rules.policy import Action, require, require_each

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


class Same(NamedTuple):
    """A value that all rows have."""

    value: Any


@dataclass(frozen=True, eq=False)
class Told:
    """What the rows of a table tell of objects that are in no table themselves: of commits, what their index has.

    `by` are the columns that name the object, `fields` what may be asked of it then. `row` is the class of the objects that are made of
    such rows, `attributes` how each of theirs is made of columns, `properties` what else they show and of which columns, `judged` those
    that the policy looks at. `offsets` are the columns of instants with the columns of their offsets, in minutes; `unless` says of a
    column when its value does not tell all.
    """

    table: Any
    by: tuple[Any, ...]
    fields: frozenset[str]
    row: type
    attributes: Mapping[str, tuple[tuple[str, ...], Callable[..., Any] | None]]
    properties: Mapping[str, tuple[str, ...]]
    judged: tuple[str, ...]
    offsets: Mapping[str, str]
    spell: Callable[[Any, int], str]
    unless: Mapping[str, Callable[[Any], Any]]


@dataclass(frozen=True, eq=False)
class ToMany:
    """A field that is a connection of the rows whose foreign key names this row. See `to_many`."""

    listing: Listing
    action: Action | None
    seen: Callable[[Context, list[Any]], Awaitable[list[Any]]] | None = None
    default: Callable[[], Any] | None = None
    of: str = "id"
    more: Mapping[str, Callable[[Any], list[Any]]] = dataclasses.field(default_factory=dict, hash=False)

    def narrowed(self, arguments: dict[str, Any]) -> Listing:
        """The listing as the arguments want it."""
        if self.default is not None and arguments.get("filter") is None:
            arguments = {**arguments, "filter": self.default()}
        listing = narrowed(self.listing, arguments)
        for name, conditions in self.more.items():
            if arguments[name] is not None:
                listing = listing.where(*conditions(arguments[name]))
        return listing

    def narrowing(self, arguments: dict[str, Any]) -> tuple[str, ...]:
        """What tells apart arguments that narrow the listing differently."""
        return spelled(arguments.get("filter")), *(spelled(arguments[name]) for name in self.more)

    async def require(self, context: Context, arguments: dict[str, Any], parents: Sequence[Any]) -> None:
        """Raises Forbidden unless the viewer may ask this of the parents."""
        if self.action is not None:
            await require_each(context, self.action, parents)
        for more in getattr(arguments.get("filter"), "needs", ()):
            await require_each(context, more, parents)


def for_viewer(context: Context, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with their filter bound to the viewer, where what it matches depends on who asks: where it has `seen_by`."""
    wanted = arguments.get("filter")
    if wanted is None or not hasattr(wanted, "seen_by"):
        return arguments
    return {**arguments, "filter": wanted.seen_by(context)}


def spelled(value: Any) -> str:
    """`repr`, which an input object keeps: the same one comes again with the same arguments."""
    known = getattr(value, "__dict__", None)
    if known is None:
        return repr(value)
    found: str | None = known.get("spelled")
    if found is None:
        found = known["spelled"] = repr(value)
    return found


@dataclass(frozen=True, eq=False)
class Numbered:
    """A field that is one row of the project that this row is, by its number there or by its id. `action` is required on the project."""

    table: Any
    action: Action


@dataclass(frozen=True)
class Entrance:
    """A field that is the project of a path, or of an id in digits, which its one argument has."""


@dataclass(frozen=True)
class Identity:
    """The field that is the id of a row in the graph: it takes the row's `id` and the type's name."""


@dataclass(frozen=True)
class Entity:
    """A GraphQL type and the class of its rows.

    `project_key` names the column by which a row belongs to a project; `action` is what one must be allowed to do with the row to be
    given it as a node. An entity without an action says in `unrestricted` why it needs none. What is not found by its number alone is
    found by `nodes(context, keys)`: what there is and the viewer may see, by the key in its id. `is_node`: whether `node` finds it.
    """

    name: str
    row: type
    project_key: str | None
    action: Action | None
    is_node: bool
    nodes: Callable[[Context, list[str]], Awaitable[dict[str, Any]]] | None = None


ENTITIES: dict[type, Entity] = {}
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
    seen: Callable[[Context, list[Any]], Awaitable[list[Any]]] | None = None,
    default: Callable[[], Any] | None = None,
    of: str = "id",
    more: dict[str, tuple[Any, Callable[[Any], list[Any]]]] | None = None,
) -> Any:
    """The rows whose foreign key names this one, as a keyset connection.

    `key` is that foreign key, or a pair of columns; `of` is the attribute of this object that has its value, or the pair of values.

    `filter` is an input type whose `conditions()` gives SQL conditions, and whose `needs`, where it has them, are further actions required
    of the viewer on each parent; `ordering` an input type whose `order()` gives an Order, and
    whose `conditions()`, where it has one, leaves out rows that have no place in that order;
    `default` makes the filter that holds where none is given; `more` are further arguments, each with its type, whose null is no
    condition, and what gives the SQL conditions of any other value;
    `action` is required of the viewer on each parent; `seen` gives those rows of all pages of a level that the viewer may see, and the
    others are left out of their pages.
    """
    table = (key[0] if isinstance(key, tuple) else key).class_
    conditions = {name: conditions_of for name, (_, conditions_of) in (more or {}).items()}
    declared = ToMany(Listing(table=table, order=order_by, conditions=where, parent=key), action, seen, default, of, conditions)

    async def resolve(root: Any, info: strawberry.Info, **arguments: Any) -> Any:
        context: Context = info.context
        await declared.require(context, arguments, [root])
        arguments, window = for_viewer(context, arguments), window_of(arguments)

        async def fetch(keys: list[Any]) -> dict[Any, Any]:
            # Once for all objects of a level, since conditions cost more to spell than a page to look up.
            pages = await declared.narrowed(arguments).pages(context, window, keys)
            return pages if seen is None else await shown(pages, lambda rows: seen(context, rows))

        return await context.loader((declared, repr(arguments)), fetch).get(getattr(root, of))

    own = {name: (kind, None) for name, (kind, _) in (more or {}).items()}
    return connection_field(resolve, description=description, filter=filter, ordering=ordering, more=own, declared=declared)


def numbered(table: Any, *, action: Action, description: str) -> Any:
    """A row of the project that this row is, by its number in the project or by its v3 id; an error where there is none."""

    async def resolver(root: Any, info: strawberry.Info, iid: Any = None, database_id: Any = None) -> Any:
        await require(info.context, action, root)
        return await finding.within(info.context, table, root, iid=iid, database_id=database_id)

    described = strawberry.argument
    arguments: dict[str, tuple[Any, Any]] = {
        "iid": (Annotated[int | None, described(description="The number within the project.")], None),
        "database_id": (Annotated[int | None, described(description="The v3 id.")], None),
    }
    signed(resolver, {"root": Any, "info": strawberry.Info}, arguments)
    return strawberry.field(resolver=resolver, description=description, metadata={"declared": Numbered(table, action)})


def entrance(*, description: str) -> Any:
    """The decorator of a resolver that finds a project by its one argument (`finding.project`)."""
    return strawberry.field(description=description, metadata={"declared": Entrance()})


def computed(
    *needs: Any,
    description: str,
    made: Callable[[Fixed, str | None], Callable[..., Any] | Same | None] | None = None,
    together: Callable[..., Awaitable[Sequence[Any]]] | None = None,
    told: Told | None = None,
    **settings: Any,
) -> Any:
    """A field with a resolver that looks at nothing of the row but these columns, so that no more need be read for it.

    `made(fixed, above)` is a function of the columns' values in this order that gives what the resolver gives, for less, or what is the
    same for all; None where only the resolver can. `above` is the type of whose field the row is, None in a list.

    Awaited, `together(info, rows)` gives it of each of several rows. `told` says which table's row, named by these columns in this order,
    tells the same where it is there; `together` is asked for the others.
    """
    metadata: dict[str, Any] = {"needs": tuple(each.key for each in needs), "told": told}
    if made is not None:
        metadata["made"] = made
    if together is not None:
        metadata["together"] = together
    return strawberry.field(description=description, metadata=metadata, **settings)


def connection_field(
    resolve: Callable[..., Awaitable[Any]],
    *,
    description: str,
    filter: type | None = None,
    ordering: type | None = None,
    more: dict[str, Any] | None = None,
    declared: Any = None,
) -> Any:
    """A field with the arguments of a connection over `resolve(root, info, **arguments)`; `more` are arguments of its own."""
    described = strawberry.argument
    arguments: dict[str, tuple[Any, Any]] = {
        **(more or {}),
        "first": (Annotated[int | None, described(description="How many rows from the start (or after `after`); 20, at most 100.")], None),
        "after": (Annotated[str | None, described(description="Continue after the row of this cursor.")], None),
        "last": (Annotated[int | None, described(description="How many rows from the end (or before `before`); at most 100.")], None),
        "before": (Annotated[str | None, described(description="Stop before the row of this cursor.")], None),
        "offset": (Annotated[int | None, described(description="Rows to skip, beside `first`: the page numbers of v3.")], None),
    }
    if filter is not None:
        arguments["filter"] = (Annotated[filter | None, described(description="Only the rows that match.")], None)
    if ordering is not None:
        arguments["order_by"] = (Annotated[ordering | None, described(description="How to sort.")], None)

    async def resolver(root: Any, info: strawberry.Info, **given: Any) -> Any:
        return await resolve(root, info, **given)

    signed(resolver, {"root": Any, "info": strawberry.Info}, arguments)
    return strawberry.field(resolver=resolver, description=description, metadata={"declared": declared, "pages": resolve})


def signed(function: Any, leading: dict[str, Any], arguments: dict[str, tuple[Any, Any]], returns: Any = inspect.Signature.empty) -> None:
    """Gives a function the signature that strawberry reads its arguments from."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind) for name, kind in leading.items()]
    parameters += [inspect.Parameter(name, keyword, annotation=kind, default=default) for name, (kind, default) in arguments.items()]
    function.__signature__ = inspect.Signature(parameters, return_annotation=returns)
    function.__annotations__ = {**leading, **{name: kind for name, (kind, _) in arguments.items()}}
    if returns is not inspect.Signature.empty:
        function.__annotations__["return"] = returns


def narrowed(listing: Listing, arguments: dict[str, Any]) -> Listing:
    """The listing as the arguments `filter` and `order_by` want it."""
    if (wanted := arguments.get("filter")) is not None:
        listing = listing.where(*wanted.conditions())
    if (ordering := arguments.get("order_by")) is not None:
        conditions = ordering.conditions() if hasattr(ordering, "conditions") else []
        listing = Listing(listing.table, ordering.order(), (*listing.conditions, *conditions), listing.parent)
    return listing


def window_of(arguments: dict[str, Any]) -> Window:
    return Window.of(arguments["first"], arguments["after"], arguments["last"], arguments["before"], arguments["offset"])


@strawberry.interface(description="Anything with an id of its own.")
class Node:
    @strawberry.field(description="Opaque and stable; pass it to `node`.", metadata={"declared": Identity()})
    def id(self, info: strawberry.Info) -> strawberry.ID:
        return global_id(info._raw_info.parent_type.name, self.id)

    @strawberry.field(description="The path of the same thing in v3; null for what v3 does not know.")
    def rest_path(self) -> str | None:
        return None


def global_id(name: str, key: object) -> strawberry.ID:
    return strawberry.ID(base64.urlsafe_b64encode(f"{name}:{key}".encode()).decode().rstrip("="))


def parse_global_id(text: str) -> tuple[str, str] | None:
    """The name of the type and the key in it, or None for text that is no id."""
    try:
        name, mark, key = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().partition(":")
    except (ValueError, binascii.Error):
        return None
    return (name, key) if mark else None


@dataclass_transform(kw_only_default=True)
def entity(
    row: type,
    *,
    description: str,
    name: str | None = None,
    project_key: str | None = None,
    action: Action | None = None,
    unrestricted: str | None = None,
    nodes: Callable[[Context, list[str]], Awaitable[dict[str, Any]]] | None = None,
) -> Callable[[C], C]:
    """Makes a class the GraphQL type of a table's rows. Rows pass as they are, behind interfaces and unions too. See `Entity`.

    Raises TypeError unless either an action or the reason for having none is given.
    """
    label = name or row.__name__
    if (action is None) is not bool(unrestricted):
        raise TypeError(
            f"{label}: pass `action=Action.READ_…`, the right that a viewer needs to be given one as a node,"
            ' or `unrestricted="…"`, the reason why none is needed; not both.'
        )

    def decorate(cls: C) -> C:
        made: Any = strawberry.type(cls, name=name, description=description)
        made.is_type_of = staticmethod(lambda value, _info: isinstance(value, row))
        made.__strawberry_definition__.is_type_of = made.is_type_of
        ENTITIES[row] = Entity(name or cls.__name__, row, project_key, action, issubclass(cls, Node), nodes)
        return made  # type: ignore[no-any-return]

    return decorate


def order_of(column: Any, direction: OrderDirection) -> Order:
    return Order(column, descending=direction is OrderDirection.DESC)
