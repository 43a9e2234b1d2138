"""What a snippet may be."""

import re
from typing import Any

from graph.context import Context
from graph.errors import Invalid, Required
from graph.rules import finding, naming, projects
from graph.rules.policy import Action, require
from storage import tables

FILE_NAME = re.compile(r"[A-Za-z0-9_@.\-]+")


async def within(context: Context, project: tables.Project, snippet_id: int) -> tables.Snippet:
    """A snippet of the project, by its v3 id. Raises Forbidden where the project has none to show, NotFound also for a hidden one."""
    await require(context, Action.READ_SNIPPET, project)
    snippet = await finding.within(context, tables.Snippet, project, database_id=snippet_id)
    await finding.require_seen(context, Action.READ_SNIPPET, snippet)
    return snippet


def checked(values: dict[str, Any]) -> dict[str, Any]:
    """The columns for what was sent, by input field. Raises Required, Invalid."""
    found: dict[str, Any] = {}
    if "title" in values:
        found["title"] = naming.title("title", values["title"] or "")
    if "fileName" in values:
        found["file_name"] = _file_name(values["fileName"] or "")
    if "content" in values:
        found["content"] = _content(values["content"] or "")
    return found


async def visibility(context: Context, wanted: tables.Visibility | None) -> int:
    """The visibility to set, None meaning the instance's default. Raises Invalid for one that administrators keep to themselves."""
    return await projects.visibility(context, wanted, default="default_snippet_visibility")


def _file_name(text: str) -> str:
    name = naming.title("fileName", text)
    if not FILE_NAME.fullmatch(name):
        raise Invalid("fileName", "can contain only letters, digits, '_', '-', '@' and '.'.")
    return name


def _content(text: str) -> str:
    content = naming.clean("content", text)
    if not content.strip():
        raise Required("content")
    return content
