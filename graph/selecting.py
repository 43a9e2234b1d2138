"""What of a field's answer is asked for, so that no more is computed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphql import FieldNode, FragmentSpreadNode, SelectionSetNode
from strawberry.types.nodes import SelectedField, Selection

from graph.context import Info


def selected(info: Info, *path: str) -> set[str]:
    """The names of the fields that are asked of what lies at this path below the field, whatever they are called in the answer."""
    level = _fields(each for field in info.selected_fields for each in field.selections)
    for name in path:
        level = _fields(each for field in level if field.name == name for each in field.selections)
    return {field.name for field in level}


def _fields(selections: Iterable[Selection]) -> list[SelectedField]:
    found: list[SelectedField] = []
    for each in selections:
        found += [each] if isinstance(each, SelectedField) else _fields(each.selections)
    return found


Shape = Mapping[str, "Shape | None"]
"""Names of fields, and of what is asked of each; None: whatever it is."""


def asks_only(info: Info, shape: Shape) -> bool:
    """Whether nothing but these fields is asked of what the field gives.

    What a directive may leave out counts as asked. The answer is remembered on the field's node, since resolvers of a hundred rows ask it
    again; `shape` is a constant of the caller's.
    """
    raw: Any = info._raw_info
    nodes: Sequence[FieldNode] = raw.field_nodes
    if len(nodes) > 1:
        return all(_is_only(node.selection_set, shape, raw.fragments) for node in nodes)
    # Past the frozen attributes of a node; what stands beside them takes no part in what it is.
    known: dict[int, bool] = nodes[0].__dict__.setdefault("asks_only", {})
    answer = known.get(id(shape))
    if answer is None:
        answer = known[id(shape)] = _is_only(nodes[0].selection_set, shape, raw.fragments)
    return answer


def _is_only(selections: SelectionSetNode | None, shape: Shape | None, fragments: Mapping[str, Any]) -> bool:
    if selections is None or shape is None:
        return True
    node: Any
    for node in selections.selections:
        if isinstance(node, FieldNode):
            name = node.name.value
            if name not in shape or not _is_only(node.selection_set, shape[name], fragments):
                return False
        else:
            inner = fragments[node.name.value] if isinstance(node, FragmentSpreadNode) else node
            if not _is_only(inner.selection_set, shape, fragments):
                return False
    return True
