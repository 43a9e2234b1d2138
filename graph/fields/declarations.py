"""Declares how the fields of a type are read from its table: `column`, `to_one`, `to_many`, `names_of`.

A declared field has no resolver of its own. `entity` (`entities.py`) connects the type and its table, and `resolvers.py` attaches
resolvers to all declared fields of the finished schema. So the mapping (field → column, relation → key) is available as data.
"""

import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypeVar

import strawberry
from sqlalchemy import ColumnElement

from graph.context import Context, StaticSettings
from graph.fields.connection_pages import MAX_FIRST, Window
from graph.fields.connections import OrderDirection
from graph.fields.filter_values import shape_of
from graph.fields.keyset_listing import KeysetListing, Order
from graph.fields.metadata import facts
from graph.fields.row_sources import FromJoins, FromRelated, FromSql
from graph.rules import lookup
from graph.rules.permissions.policy import Action, require, require_all
from graph.rules.permissions.sql_policy import SQL_VIEWER, SqlViewer
from storage.tables.row_counts import CountedKind, conditions_of

C = TypeVar("C", bound=type)


@dataclass(frozen=True)
class Column:
    """A field that is a column of the row; `key` is the column's name if it differs from the field's."""

    key: str | None = None


@dataclass(frozen=True)
class ToOne:
    """A field that is the row to which a foreign key of this row refers."""

    key: str
    target: str


@dataclass(frozen=True)
class NamesOf:
    """A field that is a list of names, read for all rows of a level by one statement: `statement(ids)` selects (row id, name)."""

    statement: Callable[[list[int]], Any]


class ConstantValue(NamedTuple):
    """A value that is the same for all rows."""

    value: Any


@dataclass(frozen=True, eq=False)
class IndexedBy:
    """An index table with data of objects that have no table themselves, such as commits.

    `key_columns`: the columns that identify the object. `fields`: the fields that can be answered from the index.
    `row_class`: the class of objects made from index rows. `attributes`: for each of its attributes the columns and the conversion.
    `properties`: for each of its properties the columns it depends on. `policy_columns`: the columns that the policy needs.
    `offset_columns`: the timestamp columns with the columns of their UTC offsets, in minutes.
    `incomplete_if`: for a column, the condition that its value is incomplete.
    """

    table: Any
    key_columns: tuple[Any, ...]
    fields: frozenset[str]
    row_class: type
    attributes: Mapping[str, tuple[tuple[str, ...], Callable[..., Any] | None]]
    properties: Mapping[str, tuple[str, ...]]
    policy_columns: tuple[str, ...]
    offset_columns: Mapping[str, str]
    incomplete_if: Mapping[str, Callable[[Any], Any]]


@dataclass(frozen=True, eq=False)
class ToMany:
    """A field that is a connection of the rows whose foreign key refers to this row, or of all rows. See `to_many`.

    `viewer_conditions(arguments, viewer)` are conditions that depend on the viewer, and on the filter and `viewer_arguments`.
    `is_filter_restricted`: whether the actions that a filter requires are required of the parents; otherwise these conditions contain them.
    """

    listing: KeysetListing
    action: Action | None
    default_filter: Callable[[], Any] | None = None
    key_attribute: str = "id"
    extra_conditions: Mapping[str, Callable[[Any], list[Any]]] = dataclasses.field(default_factory=dict, hash=False)
    viewer_conditions: Callable[[dict[str, Any], SqlViewer], list[Any]] | None = None
    viewer_arguments: tuple[str, ...] = ()
    is_filter_restricted: bool = True

    def filtered_listing(self, arguments: dict[str, Any], viewer: SqlViewer) -> KeysetListing:
        """Returns the listing with the conditions and the order of the arguments."""
        if self.default_filter is not None and arguments.get("filter") is None:
            arguments = {**arguments, "filter": self.default_filter()}
        listing = filter_listing(self.listing, arguments)
        if self.viewer_conditions is not None:
            listing = listing.where(*self.viewer_conditions(arguments, viewer))
        for name, conditions in self.extra_conditions.items():
            if arguments[name] is not None:
                listing = listing.where(*conditions(arguments[name]))
        return listing

    def filter_key(self, arguments: dict[str, Any]) -> tuple[str, ...]:
        """Returns a key of the arguments that filter the listing, without the values that only bind parameters (`filter_values.py`)."""
        names = (*self.extra_conditions, *self.viewer_arguments)
        return shape_of(arguments.get("filter")), *(cached_repr(arguments[name]) for name in names)

    async def require(self, context: Context, arguments: dict[str, Any], parents: Sequence[Any]) -> None:
        """Raises Forbidden unless the viewer is allowed to request this of the parents."""
        if self.action is not None:
            await require_all(context, self.action, parents)
        if self.is_filter_restricted:
            for required_action in getattr(arguments.get("filter"), "required_actions", ()):
                await require_all(context, required_action, parents)


def bind_filter_to_viewer(context: Context, arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments with the filter bound to the viewer, if its matches depend on the viewer (`bind_viewer`)."""
    filter_input = arguments.get("filter")
    if filter_input is None or not hasattr(filter_input, "bind_viewer"):
        return arguments
    return {**arguments, "filter": filter_input.bind_viewer(context)}


def cached_repr(value: Any) -> str:
    """Returns `repr(value)`, cached in an input object, because the same object is used for the same arguments."""
    attributes = getattr(value, "__dict__", None)
    if attributes is None:
        return repr(value)
    cached: str | None = attributes.get("cached_repr")
    if cached is None:
        cached = attributes["cached_repr"] = repr(value)
    return cached


@dataclass(frozen=True, eq=False)
class ByNumber:
    """A field of a project that is one of its rows, by its number in the project or by its id. `action` is required on the project."""

    table: Any
    action: Action


@dataclass(frozen=True)
class ProjectLookup:
    """A field that is the project with the path, or the numeric id, in its only argument."""


def column(source: Any = None, *, description: str, **settings: Any) -> Any:
    """Declares a field that is the column with the same name, or `source`."""
    return strawberry.field(description=description, metadata={"declared": Column(source.key if source is not None else None)}, **settings)


def to_one(key: Any, *, description: str, **settings: Any) -> Any:
    """Declares a field that is the row of a foreign key, as `to_one(tables.Issue.author_id)`; null if the key is null."""
    (foreign_key,) = key.property.columns[0].foreign_keys
    target = foreign_key.column.table.name
    return strawberry.field(description=description, metadata={"declared": ToOne(key.key, target)}, **settings)


def names_of(statement: Callable[[list[int]], Any], *, description: str) -> Any:
    """Declares a list of names from an association table: `statement(ids)` selects (row id, value) in the order of the list."""
    return strawberry.field(description=description, metadata={"declared": NamesOf(statement)})


def to_many(
    key: Any,
    *,
    order_by: Order,
    description: str,
    where: tuple[Any, ...] = (),
    filter: type | None = None,
    ordering: type | None = None,
    action: Action | None = None,
    default_filter: Callable[[], Any] | None = None,
    key_attribute: str = "id",
    extra_arguments: dict[str, tuple[Any, Callable[[Any], list[Any]]]] | None = None,
    counted: CountedKind | None = None,
    viewer_conditions: Callable[[dict[str, Any], SqlViewer], list[Any]] | None = None,
    association: tuple[type, Any, ColumnElement[bool]] | None = None,
) -> Any:
    """Declares a keyset connection of the rows whose foreign key refers to this row.

    `key`: the foreign key, or a pair of columns. `key_attribute`: the attribute of this object with its value, or the pair of values.
    `filter`: an input type whose `conditions()` returns SQL conditions; its optional `required_actions` are required of the viewer on each
    parent. `ordering`: an input type whose `order()` returns an Order; its optional `conditions()` exclude rows that the order does not
    contain. `default_filter`: makes the filter if the argument is missing. `extra_arguments`: further arguments by name, each with its type
    and a function that returns the SQL conditions of a value; null is no condition. `action`: required of the viewer on each parent.
    `counted`: the counters of the list, if this row is a project; the filter's `counters()` returns its conditions on them, or None if they
    do not give the number of matching rows. `viewer_conditions`: as those of `ToMany`. `association`: the table of the rows, a table that
    associates them with this row, of which `key` is a column then, and the condition by which the two are joined.
    """
    table = association[0] if association is not None else (key[0] if isinstance(key, tuple) else key).class_
    extra_conditions = {name: make_conditions for name, (_, make_conditions) in (extra_arguments or {}).items()}
    declared = ToMany(
        KeysetListing(
            table=table,
            order=order_by,
            conditions=where,
            parent=key,
            counters=conditions_of(counted) if counted is not None else None,
            association=association[1:] if association is not None else None,
        ),
        action,
        default_filter,
        key_attribute,
        extra_conditions,
        viewer_conditions,
    )

    async def resolve(root: Any, info: strawberry.Info, **arguments: Any) -> Any:
        context: Context = info.context
        await declared.require(context, arguments, [root])
        arguments, window = bind_filter_to_viewer(context, arguments), make_window(arguments)

        async def fetch(keys: list[Any]) -> dict[Any, Any]:
            # Once for all objects of a level, because compiling the conditions costs more than reading a page.
            viewer = SQL_VIEWER if viewer_conditions is None else SqlViewer(context.viewer.id, context.viewer.admin)
            return await declared.filtered_listing(arguments, viewer).pages(context, window, keys)

        return await context.loader((declared, repr(arguments)), fetch).get(getattr(root, key_attribute))

    argument_types = {name: (kind, None) for name, (kind, _) in (extra_arguments or {}).items()}
    return connection_field(
        resolve, description=description, filter=filter, ordering=ordering, extra_arguments=argument_types, declared=declared
    )


BY_NUMBER_MESSAGE = "Give either `iid` or `databaseId`."


def by_number(table: Any, *, action: Action, description: str) -> Any:
    """Declares a field of a project that is one of its rows, by either its number or its v3 id; an error if there is none."""

    async def resolver(root: Any, info: strawberry.Info, iid: Any = None, database_id: Any = None) -> Any:
        await require(info.context, action, root)
        lookup.require_one(BY_NUMBER_MESSAGE, iid, database_id)
        return await lookup.get_in_project(info.context, table, root, iid=iid, database_id=database_id)

    describe = strawberry.argument
    arguments: dict[str, tuple[Any, Any]] = {
        "iid": (Annotated[int | None, describe(description="Number within the project.")], None),
        "database_id": (Annotated[int | None, describe(description="ID in the v3 API.")], None),
    }
    set_signature(resolver, {"root": Any, "info": strawberry.Info}, arguments)
    return strawberry.field(resolver=resolver, description=description, metadata={"declared": ByNumber(table, action)})


def project_lookup(*, description: str) -> Any:
    """Declares a field whose resolver finds a project by its only argument (`lookup.get_project`)."""
    return strawberry.field(description=description, metadata={"declared": ProjectLookup()})


def computed(
    *needs: Any,
    description: str,
    from_columns: Callable[[StaticSettings, str | None], Callable[..., Any] | ConstantValue | None] | None = None,
    batch: Callable[..., Awaitable[Sequence[Any]]] | None = None,
    from_index: IndexedBy | None = None,
    from_row: FromSql | FromRelated | FromJoins | None = None,
    **settings: Any,
) -> Any:
    """Declares a field with a resolver that needs only these columns of the row, so that no others are read for it.

    `from_columns(settings, parent)` returns a function of the columns' values, in this order, that computes the field cheaper than the
    resolver, or a ConstantValue, or None if only the resolver can. `parent` is the type whose field the row is; None in a list.

    `batch(info, rows)` is awaited for the values of several rows. `from_index` is an index whose row, identified by these columns in this
    order, has the same value if it exists; `batch` is called for the other rows.

    `from_row` is what a statement that selects the row selects of the field, in place of the resolver.
    """
    metadata: dict[str, Any] = {"needs": tuple(each.key for each in needs), "from_index": from_index, "from_row": from_row}
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
    max_page_size: int = MAX_FIRST,
    revision_argument: str | None = None,
) -> Any:
    """Declares a field with the arguments of a connection, resolved by `resolve(root, info, **arguments)`.

    `max_page_size` and `revision_argument` are facts of the field (`graph/fields/metadata.py`).
    """
    maximum = f"maximum {max_page_size}"
    describe = strawberry.argument
    arguments: dict[str, tuple[Any, Any]] = {
        **(extra_arguments or {}),
        "first": (
            Annotated[int | None, describe(description=f"Number of items from the start (or after `after`); default 20, {maximum}.")],
            None,
        ),
        "after": (Annotated[str | None, describe(description="Return items after this cursor.")], None),
        "last": (Annotated[int | None, describe(description=f"Number of items from the end (or before `before`); {maximum}.")], None),
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
    known = facts(max_page_size=None if max_page_size == MAX_FIRST else max_page_size, revision_argument=revision_argument)
    return strawberry.field(resolver=resolver, description=description, metadata={"declared": declared, "pages": resolve, **known})


def set_signature(function: Any, leading: dict[str, Any], arguments: dict[str, tuple[Any, Any]]) -> None:
    """Sets the signature of a function from which strawberry reads the field's arguments."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind) for name, kind in leading.items()]
    parameters += [inspect.Parameter(name, keyword, annotation=kind, default=default) for name, (kind, default) in arguments.items()]
    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = {**leading, **{name: kind for name, (kind, _) in arguments.items()}}


def filter_listing(listing: KeysetListing, arguments: dict[str, Any]) -> KeysetListing:
    """Returns the listing with the arguments `filter` and `order_by` applied."""
    if (filter_input := arguments.get("filter")) is not None:
        counters = filter_input.counters() if listing.counters is not None else None
        listing = listing.where(*filter_input.conditions(), counters=counters)
    if (ordering := arguments.get("order_by")) is not None:
        listing = dataclasses.replace(listing, order=ordering.order())
        if conditions := ordering.conditions() if hasattr(ordering, "conditions") else ():
            listing = listing.where(*conditions)
    return listing


def sets_only(filter_input: Any, names: Sequence[str]) -> bool:
    """Whether all other fields of a filter have their defaults."""
    return all(getattr(filter_input, each.name) == each.default for each in dataclasses.fields(filter_input) if each.name not in names)


def make_window(arguments: dict[str, Any], max_size: int = MAX_FIRST) -> Window:
    return Window.of(arguments["first"], arguments["after"], arguments["last"], arguments["before"], arguments["offset"], max_size)


def make_order(column: Any, direction: OrderDirection) -> Order:
    return Order(column, descending=direction is OrderDirection.DESC)
