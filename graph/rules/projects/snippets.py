"""Validation and lookup of snippets."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from graph.context import Context
from graph.errors import Invalid, Required
from graph.rules import lookup, timestamps, validation
from graph.rules.permissions.policy import Action, require
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


async def create_snippet(context: Context, project: tables.Project, values: Mapping[str, Any]) -> tables.Snippet:
    """Add a snippet with the values of `CreateSnippetInput`, when the transaction is flushed. Raises Required, Invalid."""
    columns = validate_columns(values)
    moment = context.now()
    snippet = tables.Snippet(
        project_id=project.id,
        author_id=context.viewer.id,
        visibility_level=await resolve_visibility(context, values.get("visibility")),
        expires_at=values.get("expires_at"),
        created_at=moment,
        updated_at=moment,
        **columns,
    )
    return context.add_deferred(snippet)


async def update_snippet(context: Context, snippet: tables.Snippet, values: Mapping[str, Any]) -> tables.Snippet:
    """Change a snippet by the values of `UpdateSnippetInput` that were sent. Raises Required, Invalid."""
    for key, value in validate_columns(values).items():
        setattr(snippet, key, value)
    level = values.get("visibility")
    if level is not None and level != snippet.visibility_level:
        snippet.visibility_level = await resolve_visibility(context, level)
    if "expires_at" in values:
        snippet.expires_at = values["expires_at"]
    timestamps.touch_if_changed(context, snippet)
    await context.session.flush()
    return snippet


async def delete_snippet(context: Context, snippet: tables.Snippet) -> tables.Snippet:
    """Delete a snippet and its notes."""
    await context.delete(snippet)
    return snippet


def validate_columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """The validated columns among these values. Raises Required, Invalid."""
    validators: dict[str, Callable[[str], str]] = {
        "title": partial(validation.validate_title, "title"),
        "file_name": _validate_file_name,
        "content": _validate_content,
    }
    return {name: validate(values[name] or "") for name, validate in validators.items() if name in values}


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
