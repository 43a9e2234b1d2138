"""Validation and lookup of snippets."""

import re
from typing import Any

from graph.context import Context
from graph.errors import Invalid, Required
from graph.rules import lookup, validation
from graph.rules.policy import Action, require
from graph.rules.projects import projects
from storage import tables

FILE_NAME_PATTERN = re.compile(r"[A-Za-z0-9_@.\-]+")


async def get_snippet(context: Context, project: tables.Project, snippet_id: int) -> tables.Snippet:
    """A snippet of the project by its v3 id.

    Raises Forbidden when the viewer may not see snippets of the project, NotFound also for a hidden snippet.
    """
    await require(context, Action.READ_SNIPPET, project)
    snippet = await lookup.get_in_project(context, tables.Snippet, project, database_id=snippet_id)
    await lookup.require_visible(context, Action.READ_SNIPPET, snippet)
    return snippet


def validate_fields(values: dict[str, Any]) -> dict[str, Any]:
    """Map input fields to validated columns. Raises Required, Invalid."""
    columns: dict[str, Any] = {}
    if "title" in values:
        columns["title"] = validation.validate_title("title", values["title"] or "")
    if "fileName" in values:
        columns["file_name"] = _validate_file_name(values["fileName"] or "")
    if "content" in values:
        columns["content"] = _validate_content(values["content"] or "")
    return columns


async def resolve_visibility(context: Context, requested: tables.Visibility | None) -> int:
    """The visibility to store; None means the instance default.

    Raises Invalid for a level restricted to administrators.
    """
    return await projects.resolve_visibility(context, requested, default="default_snippet_visibility")


def _validate_file_name(value: str) -> str:
    name = validation.validate_title("fileName", value)
    if not FILE_NAME_PATTERN.fullmatch(name):
        raise Invalid("fileName", "can contain only letters, digits, '_', '-', '@' and '.'.")
    return name


def _validate_content(value: str) -> str:
    content = validation.validate_string("content", value)
    if not content.strip():
        raise Required("content")
    return content
