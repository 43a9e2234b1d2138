"""What a label may be."""

import re
from collections.abc import Callable
from typing import Any

from graph.context import Context
from graph.errors import Invalid, NotFound, UserError, UserErrors
from graph.rules import naming
from storage import tables
from storage.tables import labels

COLOR = re.compile(r"#[0-9A-Fa-f]{6}")


def name(field: str, value: str) -> str:
    """A label's name: there, of at most 255 characters, without `&`, `?` and `,`. Raises Required, Invalid."""
    stripped = naming.title(field, value)
    if not naming.LABEL.fullmatch(stripped):
        raise Invalid(field, "is invalid")
    return stripped


def color(field: str, value: str) -> str:
    """`#` and six hex digits, as the interface document has it; three are refused. Raises Invalid."""
    stripped = value.strip()
    if not COLOR.fullmatch(stripped):
        raise Invalid(field, "must be a valid color code")
    return stripped


def description(field: str, value: str | None) -> str | None:
    """Any text; none and an empty one are the same. Raises Invalid."""
    return naming.clean(field, value or "") or None


CHECKS: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "name": ("title", name),
    "newName": ("title", name),
    "color": ("color", color),
    "description": ("description", description),
}
"""An input field → the column that it fills, and what it may be."""


def checked(values: dict[str, Any]) -> dict[str, Any]:
    """The columns of a label as input fields give them. Raises UserErrors, all at once."""
    kept: dict[str, Any] = {}
    problems: list[UserError] = []
    for field, value in values.items():
        key, check = CHECKS[field]
        try:
            kept[key] = check(field, value)
        except UserError as error:
            problems.append(error)
    if problems:
        raise UserErrors(problems)
    return kept


async def named(context: Context, project: tables.Project, title: str) -> tables.Label:
    """The label of this name, with case. Raises NotFound."""
    found = await context.first(labels.named(project.id, [title.strip()]))
    if found is None:
        raise NotFound("Label")
    return found


async def held(context: Context, label: tables.Label) -> tables.Label:
    """The label as it is now, which stays so until this transaction ends. Raises NotFound for one that was deleted meanwhile."""
    found = await context.first(labels.held(label.id))
    if found is None:
        raise NotFound("Label")
    return found


async def delete(context: Context, label: tables.Label) -> None:
    """Removes the label from its project and from every issue that carries it."""
    await context.session.delete(label)
    await context.session.flush()
    # Other rows may have been loaded with the label on them.
    context.loaders.clear()
