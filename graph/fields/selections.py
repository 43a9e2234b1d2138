"""Inspects the selection of a field, so that resolvers compute only what is selected."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphql import FieldNode, FragmentSpreadNode, SelectionSetNode
from strawberry.types.nodes import SelectedField, Selection

from graph.context import Info


def selected_names(info: Info, *path: str) -> set[str]:
    """Returns the names (not aliases) of the fields that are selected at this path below the field."""
    fields = _flatten_fields(each for field in info.selected_fields for each in field.selections)
    for name in path:
        fields = _flatten_fields(each for field in fields if field.name == name for each in field.selections)
    return {field.name for field in fields}


def _flatten_fields(selections: Iterable[Selection]) -> list[SelectedField]:
    found: list[SelectedField] = []
    for each in selections:
        found += [each] if isinstance(each, SelectedField) else _flatten_fields(each.selections)
    return found


SelectionShape = Mapping[str, "SelectionShape | None"]
"""Names of fields with the allowed selection of each; None allows any selection."""


def selects_only(info: Info, allowed: SelectionShape) -> bool:
    """Whether the selection of the field contains only these fields.

    Fields with @skip or @include count as selected. The result is cached in the field's node, because the resolvers of all rows of a level
    call it; so `allowed` must be a constant of the caller.
    """
    raw: Any = info._raw_info
    nodes: Sequence[FieldNode] = raw.field_nodes
    if len(nodes) > 1:
        return all(_selects_only(node.selection_set, allowed, raw.fragments) for node in nodes)
    # In the node's `__dict__`, because nodes are frozen; it does not affect equality.
    cache: dict[int, bool] = nodes[0].__dict__.setdefault("selects_only", {})
    is_only = cache.get(id(allowed))
    if is_only is None:
        is_only = cache[id(allowed)] = _selects_only(nodes[0].selection_set, allowed, raw.fragments)
    return is_only


def _selects_only(selections: SelectionSetNode | None, allowed: SelectionShape | None, fragments: Mapping[str, Any]) -> bool:
    if selections is None or allowed is None:
        return True
    node: Any
    for node in selections.selections:
        if isinstance(node, FieldNode):
            name = node.name.value
            if name not in allowed or not _selects_only(node.selection_set, allowed[name], fragments):
                return False
        else:
            inner = fragments[node.name.value] if isinstance(node, FragmentSpreadNode) else node
            if not _selects_only(inner.selection_set, allowed, fragments):
                return False
    return True
