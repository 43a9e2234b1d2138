"""Lookups: every object inside a project is found through the project.

A lookup of an object that the viewer may not see raises NotFound.
"""

from functools import partial
from typing import Any, TypeVar

from sqlalchemy import select
from sqlmodel import col

from graph.context import Context
from graph.errors import BadRequest, NotFound
from graph.operations.answer_relations import AnswerRelations
from graph.rules.permissions.policy import (
    Action,
    can,
    can_see_group,
    can_see_project,
    load_project_of,
    require,
)
from graph.rules.permissions.project_access import PROJECTS_LOADER, load_group, load_project_with, load_projects
from storage import tables
from storage.tables.accounts.namespaces import NamespaceKind
from storage.tables.base import MAX_ID, Row, row_in_project

R = TypeVar("R", bound=Row)


def parse_id(string: str) -> int | None:
    """Parse an id from ASCII digits; None for any other string and for numbers outside the range of an id."""
    if not string.isascii() or not string.isdigit() or len(string) > 10:
        return None
    return number if 0 < (number := int(string)) <= MAX_ID else None


async def get_project(context: Context, path: str) -> tables.Project:
    """The project with this full path (`namespace/name`, case-insensitive) or id in digits.

    Raises NotFound.
    """
    key = parse_project_key(path)
    found: tables.Project | None = None
    if key is not None:
        found = await context.loader(PROJECTS_LOADER, partial(load_projects, context)).get(key)
    if found is None or not await can_see_project(context, found):
        raise NotFound("Project")
    return found


async def get_project_with(
    context: Context,
    path: str,
    table: type[R],
    *,
    database_id: int | None = None,
    iid: int | None = None,
    relations: AnswerRelations | None = None,
) -> tuple[tables.Project, R | None]:
    """The project as `get_project` returns it, and the row in it that `find_in_project` would find.

    Usually takes one statement, which reads the `relations` of the row too. Raises NotFound only for the project; the row is None when it
    does not exist.
    """
    name, value = ("id", database_id) if database_id is not None else ("iid", iid)
    key = parse_project_key(path)
    if key is None or value is None:
        return await get_project(context, path), None
    found, row = await load_project_with(context, key, table, name, value, relations)
    if found is None or not await can_see_project(context, found):
        raise NotFound("Project")
    return found, row


def parse_project_key(path: str) -> int | tuple[str, str] | None:
    """Parse a path into an id or into (namespace path, project path) in lower case.

    None for any other string.
    """
    number = parse_id(path)
    if number is not None:
        return number
    namespace, _, name = path.lower().rpartition("/")
    return (namespace, name) if namespace and "\0" not in path else None


async def get_group(context: Context, path: str) -> tables.Namespace:
    """The group with this path (case-insensitive) or id in digits. Raises NotFound."""
    key: int | str | None = parse_id(path)
    if key is None and "\0" not in path:
        key = path.lower()
    found = await load_group(context, key) if key is not None else None
    if found is None or found.kind is not NamespaceKind.GROUP or not await can_see_group(context, found):
        raise NotFound("Group")
    return found


def require_one(message: str, *keys: Any) -> None:
    """Requires that exactly one of the keys of an object is not None. Raises BadRequest with the message, which names the keys."""
    if keys.count(None) != len(keys) - 1:
        raise BadRequest(message)


async def get_in_project(
    context: Context,
    table: type[R],
    parent: tables.Project,
    *,
    database_id: int | None = None,
    iid: int | None = None,
) -> R:
    """A row of the project by its id or by its `iid`. Raises NotFound, also for an id in another project."""
    found = await find_in_project(context, table, parent, database_id=database_id, iid=iid)
    if found is None:
        raise NotFound(table.__name__)
    return found


async def find_in_project(
    context: Context,
    table: type[R],
    parent: tables.Project,
    *,
    database_id: int | None = None,
    iid: int | None = None,
) -> R | None:
    """Like `get_in_project`, but returns None when there is no such row."""
    name, value = ("id", database_id) if database_id is not None else ("iid", iid)
    if value is None:
        return None
    found = await context.tuples(*row_in_project(table, parent.id, name, value))
    return found[0][0] if found else None


async def require_visible(context: Context, action: Action, subject: Row) -> None:
    """Require that the viewer may see this object; `action` is the one that reads objects of its kind.

    Raises Forbidden when the viewer may see no such object in the project, NotFound when this one is hidden.
    """
    await require(context, action, await load_project_of(context, subject))
    await require_not_hidden(context, action, subject)


async def require_not_hidden(context: Context, action: Action, subject: Row) -> None:
    """Like `require_visible`, when the project is known to show such objects.

    Raises NotFound for a hidden one.
    """
    if not await can(context, action, subject):
        raise NotFound(type(subject).__name__)


async def get_user(context: Context, database_id: int) -> tables.User:
    """The user with this id. Raises NotFound."""
    found = await context.rows_by_id(tables.User).get(database_id)
    if found is None:
        raise NotFound("User")
    return found


async def get_owned_row(context: Context, table: type[R], user_id: int, database_id: int, *conditions: Any) -> R:
    """A row that belongs to the user, by its id.

    Raises NotFound, also for an id that belongs to another user.
    """
    kind: Any = table
    found = await context.first(select(table).where(col(kind.id) == database_id, col(kind.user_id) == user_id, *conditions))
    if found is None:
        raise NotFound(table.__name__)
    return found
