"""Validation, lookup and deletion of labels."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from graph.context import Context
from graph.errors import Invalid, NotFound
from graph.rules import timestamps, validation
from storage import tables
from storage.tables.issues import labels

COLOR_PATTERN = re.compile(r"#[0-9A-Fa-f]{6}")


def validate_name(field: str, value: str) -> str:
    """The name of a label: not empty, at most 255 characters, without `&`, `?` and `,`.

    Raises Required, Invalid.
    """
    stripped = validation.validate_title(field, value)
    if not validation.LABEL_PATTERN.fullmatch(stripped):
        raise Invalid(field, "is invalid")
    return stripped


def validate_color(field: str, value: str) -> str:
    """`#` and six hexadecimal digits, as in the interface document; three digits are rejected.

    Raises Invalid.
    """
    stripped = value.strip()
    if not COLOR_PATTERN.fullmatch(stripped):
        raise Invalid(field, "must be a valid color code")
    return stripped


def validate_description(field: str, value: str | None) -> str | None:
    """Any string; an empty one is stored as None. Raises Invalid."""
    return validation.validate_string(field, value or "") or None


VALIDATORS: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "name": ("title", validate_name),
    "newName": ("title", validate_name),
    "color": ("color", validate_color),
    "description": ("description", validate_description),
}
"""Input fields, mapped to their column and its validator."""


def validate_fields(values: dict[str, Any]) -> dict[str, Any]:
    """Map input fields to validated columns of a label. Raises UserErrors with every problem found."""
    validated = validation.validate_all(values, lambda field, value: VALIDATORS[field][1](field, value))
    return {VALIDATORS[field][0]: value for field, value in validated.items()}


async def get_label(context: Context, project: tables.Project, title: str) -> tables.Label:
    """The label with this name, case-sensitive. Raises NotFound."""
    found = await context.first(labels.named(project.id, [title.strip()]))
    if found is None:
        raise NotFound("Label")
    return found


async def lock_label(context: Context, label: tables.Label) -> tables.Label:
    """The current label, locked until the transaction ends. Raises NotFound when it has been deleted."""
    found = await context.first(labels.for_update(label.id))
    if found is None:
        raise NotFound("Label")
    return found


def create_label(context: Context, project: tables.Project, values: Mapping[str, Any]) -> tables.Label:
    """Add a label with the values of `CreateLabelInput`, when the transaction is flushed. Raises UserErrors."""
    moment = context.now()
    columns = validate_fields({"name": values["name"], "color": values["color"], "description": values.get("description")})
    return context.add_deferred(tables.Label(project_id=project.id, created_at=moment, updated_at=moment, **columns))


async def update_label(context: Context, label: tables.Label, values: Mapping[str, Any]) -> tables.Label:
    """Change a locked label by the values of `UpdateLabelInput` that were sent. Raises UserErrors."""
    renamed = {field: values[key] for field, key in (("newName", "new_name"), ("color", "color")) if values.get(key) is not None}
    described = {"description": values["description"]} if "description" in values else {}
    for key, value in validate_fields(renamed | described).items():
        setattr(label, key, value)
    timestamps.touch_if_changed(context, label)
    await context.session.flush()
    return label


async def delete_label(context: Context, label: tables.Label) -> tables.Label:
    """Delete the label from its project and from every issue that has it."""
    await context.delete(label)
    return label
