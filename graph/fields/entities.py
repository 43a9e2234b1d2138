"""Connects GraphQL types with the tables whose rows they show (`entity`), and finds rows by their global ids (`Node`)."""

import base64
import binascii
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

import strawberry

from graph.context import Context
from graph.rules.permissions.policy import Action

C = TypeVar("C", bound=type)


@dataclass(frozen=True)
class GlobalIdField:
    """The field that is the global id of a row, made from the type's name and the row's `id`."""


@dataclass(frozen=True)
class EntityDeclaration:
    """A GraphQL type and the class of its rows.

    `project_key` is the column by which a row belongs to a project. `action` is required of the viewer to receive the row as a node; an
    entity without an action gives the reason in `unrestricted`. `filter_nodes(context, rows)` chooses the nodes that the viewer is allowed
    to see, if another rule does. `load_nodes(context, keys)` finds them by the keys in their ids, if these are no numbers. `is_node`:
    whether `node` finds it.
    """

    name: str
    row: type
    project_key: str | None
    action: Action | None
    is_node: bool
    filter_nodes: Callable[[Context, Sequence[Any]], Awaitable[Sequence[Any]]] | None = None
    load_nodes: Callable[[Context, list[str]], Awaitable[dict[str, Any]]] | None = None


ENTITIES: dict[type, EntityDeclaration] = {}
"""The class of a row → its declaration."""


FURTHER_ROW_TYPES: dict[str, type] = {}
"""The names of types that show rows of a table that is another type's → the class of the rows."""


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
    """Returns the type's name and the key of a global id; None for an invalid id."""
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
    filter_nodes: Callable[[Context, Sequence[Any]], Awaitable[Sequence[Any]]] | None = None,
    load_nodes: Callable[[Context, list[str]], Awaitable[dict[str, Any]]] | None = None,
) -> Callable[[C], C]:
    """Makes a class the GraphQL type of a table's rows, which need no conversion, even for interfaces and unions. See `EntityDeclaration`.

    Raises TypeError unless either `action` or `unrestricted` is passed.
    """
    type_name = name or row.__name__
    if (action is None) is not bool(unrestricted):
        raise TypeError(
            f"{type_name}: pass `action=Action.READ_…`, the permission that a viewer needs to receive one as a node,"
            ' or `unrestricted="…"`, the reason why none is needed; not both.'
        )

    def decorate(cls: C) -> C:
        strawberry_type: Any = strawberry.type(cls, name=name, description=description)
        strawberry_type.is_type_of = staticmethod(lambda value, _info: isinstance(value, row))
        strawberry_type.__strawberry_definition__.is_type_of = strawberry_type.is_type_of
        ENTITIES[row] = EntityDeclaration(name or cls.__name__, row, project_key, action, issubclass(cls, Node), filter_nodes, load_nodes)
        return strawberry_type  # type: ignore[no-any-return]

    return decorate


@dataclass_transform(kw_only_default=True)
def additional_row_type(row: type, *, description: str) -> Callable[[C], C]:
    """Makes a class a GraphQL type of rows that are already another type's (`entity`), so that statements join them too."""

    def decorate(cls: C) -> C:
        FURTHER_ROW_TYPES[cls.__name__] = row
        return strawberry.type(cls, description=description)

    return decorate
