"""What of a field's answer is asked for, so that no more is computed."""

from collections.abc import Iterable

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
