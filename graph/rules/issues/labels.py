"""What a label may be."""

import re
from collections.abc import Callable
from typing import Any

from graph.context import Context
from graph.errors import Invalid, NotFound, UserError, UserErrors
from graph.rules import validation
from storage import tables
from storage.tables import labels

COLOR_PATTERN = re.compile(r"#[0-9A-Fa-f]{6}")


def validate_name(field: str, value: str) -> str:
    """A label's name: there, of at most 255 characters, without `&`, `?` and `,`. Raises Required, Invalid."""
    stripped = validation.validate_title(field, value)
    if not validation.LABEL_PATTERN.fullmatch(stripped):
        raise Invalid(field, "is invalid")
    return stripped


def validate_color(field: str, value: str) -> str:
    """`#` and six hex digits, as the interface document has it; three are refused. Raises Invalid."""
    stripped = value.strip()
    if not COLOR_PATTERN.fullmatch(stripped):
        raise Invalid(field, "must be a valid color code")
    return stripped


def validate_description(field: str, value: str | None) -> str | None:
    """Any text; none and an empty one are the same. Raises Invalid."""
    return validation.validate_string(field, value or "") or None


VALIDATORS: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "name": ("title", validate_name),
    "newName": ("title", validate_name),
    "color": ("color", validate_color),
    "description": ("description", validate_description),
}
"""An input field → the column that it fills, and what it may be."""


def validate_fields(values: dict[str, Any]) -> dict[str, Any]:
    """The columns of a label as input fields give them. Raises UserErrors, all at once."""
    columns: dict[str, Any] = {}
    problems: list[UserError] = []
    for field, value in values.items():
        key, check = VALIDATORS[field]
        try:
            columns[key] = check(field, value)
        except UserError as error:
            problems.append(error)
    if problems:
        raise UserErrors(problems)
    return columns


async def get_label(context: Context, project: tables.Project, title: str) -> tables.Label:
    """The label of this name, with case. Raises NotFound."""
    found = await context.first(labels.named(project.id, [title.strip()]))
    if found is None:
        raise NotFound("Label")
    return found


async def lock_label(context: Context, label: tables.Label) -> tables.Label:
    """The label as it is now, which stays so until this transaction ends. Raises NotFound for one that was deleted meanwhile."""
    found = await context.first(labels.for_update(label.id))
    if found is None:
        raise NotFound("Label")
    return found


async def delete_label(context: Context, label: tables.Label) -> None:
    """Removes the label from its project and from every issue that carries it."""
    await context.session.delete(label)
    await context.session.flush()
    # Other rows may have been loaded with the label on them.
    context.loaders.clear()
