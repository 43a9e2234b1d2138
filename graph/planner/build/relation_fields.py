"""What the fields of an object that show other rows take, and what they depend on."""

from typing import Any

from graph.fields.declarations import NamesOf, ToOne
from graph.planner.resolve.classify import FromRowKind, RelatedKind, RelationKind
from graph.planner.resolve.fields import ResolvedField


def key_attributes_of(relation_fields: list[ResolvedField]) -> tuple[str, ...] | None:
    """The attributes of an object on which these fields depend, if they only refer to other rows; None if they depend on more."""
    keys = {"id": None}
    for resolved in relation_fields:
        match resolved.kind:
            case RelationKind(ToOne(key=key)):
                keys[key] = None
            case RelationKind(NamesOf()):
                pass
            case _:
                return None
    return tuple(keys)


def count_statements(relation_fields: list[ResolvedField]) -> int:
    """How many statements loaders take for these fields."""
    targets: set[Any] = set()
    for resolved in relation_fields:
        match resolved.kind:
            case RelationKind(ToOne(target=target)):
                targets.add(target)
            case RelatedKind(declared):
                targets.add(declared.related_columns[0].class_.__tablename__)
            case RelationKind(declared) | FromRowKind(declared):
                targets.add(declared)
    return len(targets)
