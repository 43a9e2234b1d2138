"""Shared input types: references to objects, and the distinction of omitted from null fields."""

import dataclasses
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any, ClassVar, TypeVar

import strawberry
from sqlmodel import col

from graph.context import Context
from graph.errors import NotFound
from graph.fields.entities import ENTITIES, parse_global_id
from graph.rules import lookup
from graph.rules.accounts import accounts
from graph.rules.permissions import policy
from graph.rules.runners import runner_tokens
from storage import tables
from storage.tables.base import Row

R = TypeVar("R", bound=Row)


def optional(description: str) -> Any:
    """An optional input field; if omitted, its value is UNSET, which differs from null."""
    return strawberry.field(description=description, default=strawberry.UNSET)


def is_set(value: Any) -> bool:
    return value is not strawberry.UNSET


def get_or(value: Any, default: Any) -> Any:
    """The value sent, or the default if it was omitted or is null."""
    return default if value is strawberry.UNSET or value is None else value


def sent_values(input: Any) -> dict[str, Any]:
    """The fields of an input that were sent, nulls included, by their Python names; what rules of mutations take."""
    kind: Any = type(input)
    return {name: value for name in _field_names(kind) if (value := getattr(input, name)) is not strawberry.UNSET}


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in dataclasses.fields(kind))


@strawberry.input(description="A time range; the end is exclusive.")
class DateTimeRange:
    since: datetime | None = strawberry.field(description="Start of the range, inclusive.", default=None)
    until: datetime | None = strawberry.field(description="End of the range, exclusive.", default=None)

    varying_attributes: ClassVar[tuple[str, ...]] = ("since", "until")
    """See `graph/fields/filter_values.py`."""

    def conditions(self, column: Any) -> list[Any]:
        """SQL conditions that a timestamp column lies in the range."""
        found = []
        if self.since is not None:
            found.append(col(column) >= self.since)
        if self.until is not None:
            found.append(col(column) < self.until)
        return found


def range_conditions(*ranges: tuple[Any, DateTimeRange | None]) -> list[Any]:
    """SQL conditions that timestamp columns lie in the ranges that are given."""
    return [condition for column, range in ranges if range is not None for condition in range.conditions(column)]


@strawberry.input
class ProjectInput:
    """Names a project, in which other fields may name or describe an object."""

    project_path: str = strawberry.field(description="Full path of the project, or its v3 ID.")


@strawberry.input
class ProjectResourceInput:
    """Refers to an object in a project: by `id` alone, or by `databaseId` or `iid` with `projectPath`."""

    id: strawberry.ID | None = optional("Global ID; sufficient on its own.")
    project_path: str | None = optional("Full path of the project, or its v3 ID.")
    database_id: int | None = optional("v3 ID, used with `projectPath`.")


@strawberry.input
class NumberedResourceInput(ProjectResourceInput):
    iid: int | None = optional("Number within the project, used with `projectPath`.")


async def find_project(context: Context, path: str, action: policy.Action) -> tables.Project:
    """The project, if the viewer is allowed this action in it. Raises NotFound, Forbidden."""
    project = await lookup.get_project(context, path)
    await policy.require(context, action, project)
    return project


async def find_in_project(
    context: Context, table: type[R], input: ProjectResourceInput, *, action: policy.Action | None = None, changes: bool = False
) -> tuple[tables.Project, R]:
    """The project and the row that an input names.

    Raises NotFound if it does not exist or the viewer may not see it, BadRequest if the input names no row, or two. With `action`, requires
    this action in the project first; raises Forbidden. For a runner, the row is a build assigned to it; raises Conflict. `changes`: the row
    is the object of the answer, so its relations in the answer are read too.
    """
    name = ENTITIES[table].name
    if context.runner_identity_or_none is not None and table is tables.Build:
        build: Any = await runner_tokens.get_build(context, context.runner_identity_or_none, database_id_of(input, name))
        return await policy.load_project_of(context, build), build
    if is_set(input.id) and input.id is not None:
        return await find_by_global_id(context, table, input, action=action)
    require_path(input, "iid")
    project, found = await lookup.get_project_with(
        context,
        get_or(input.project_path, ""),
        table,
        database_id=get_or(input.database_id, None),
        iid=get_or(getattr(input, "iid", None), None),
        relations=context.answer_relations if changes else None,
    )
    if action is not None:
        await policy.require(context, action, project)
    require_key(input, "iid")
    if found is None:
        raise NotFound(table.__name__)
    return project, found


def require_path(input: ProjectResourceInput, other: str) -> None:
    """Requires that an input without `id` names the project. Raises BadRequest; `other` as in `require_key`."""
    lookup.require_one(_keys_message(input, other), get_or(input.project_path, None))


def require_key(input: ProjectResourceInput, other: str) -> None:
    """Requires that an input names the object by either `databaseId` or the field `other`, if it has one. Raises BadRequest."""
    lookup.require_one(_keys_message(input, other), get_or(input.database_id, None), get_or(getattr(input, other, None), None))


def _keys_message(input: ProjectResourceInput, other: str) -> str:
    keys = f"either `{other}` or `databaseId`" if hasattr(input, other) else "`databaseId`"
    return f"Give `id`, or `projectPath` with {keys}."


async def find_by_global_id(
    context: Context, table: type[R], input: Any, *, action: policy.Action | None = None
) -> tuple[tables.Project, R]:
    """The row that the `id` of an input names, and its project. Raises as `find_in_project`."""
    name = ENTITIES[table].name
    row = await context.rows_by_id(table).get(database_id_of(input, name) or 0)
    if row is None:
        raise NotFound(name)
    project = await policy.load_project_of(context, row)
    if not await policy.can_see_project(context, project):
        raise NotFound(name)
    if action is not None:
        await policy.require(context, action, project)
    return project, row


def database_id_of(input: Any, name: str) -> int | None:
    """The v3 id of the object of this type that an input names by `id` or `databaseId`, without its parent."""
    if is_set(input.id) and input.id is not None:
        kind, key = parse_global_id(input.id) or ("", "")
        return lookup.parse_id(key) if kind == name else None
    return get_or(input.database_id, None)  # type: ignore[no-any-return]


def require_id(input: Any) -> None:
    """Requires that an input has `id` or `databaseId`. Raises BadRequest."""
    if get_or(input.id, None) is None:
        lookup.require_one("Give `id` or `databaseId`.", get_or(input.database_id, None))


@strawberry.input
class UserInput:
    """Refers to a user by `id` or `databaseId`."""

    id: strawberry.ID | None = optional("Global ID of the user; sufficient on its own.")
    database_id: int | None = optional("v3 ID of the user.")


def user_id_of(input: UserInput) -> int:
    """The v3 id of the user that an input names. Raises NotFound, BadRequest."""
    require_id(input)
    found = database_id_of(input, ENTITIES[tables.User].name)
    if found is None:
        raise NotFound("User")
    return found


@strawberry.input
class UserResourceInput:
    """Refers to an object of a user: by `id` alone, or by `databaseId`, with `userId` for another user's."""

    id: strawberry.ID | None = optional("Global ID; sufficient on its own.")
    database_id: int | None = optional("v3 ID.")
    user_id: int | None = optional("v3 ID of the owner, used with `databaseId`; administrators only. Default: the viewer.")


async def resolve_owner_id(context: Context, user_id: int | None, *, is_adding: bool = False) -> int:
    """The id of the owner: the viewer, or a user whom only administrators may name.

    Raises Forbidden, also if something would be added to the ghost user, and NotFound. The user is loaded in a separate session, so that
    no write lock is held during the validation that follows.
    """
    requested_id = get_or(user_id, None)
    if requested_id is None:
        return context.viewer.id
    await policy.require(context, policy.Action.ADMIN_USERS)
    async with context.read_only() as reader:
        user = await lookup.get_user(reader, requested_id)
    if is_adding:
        accounts.require_changeable(user)
    return user.id


async def find_owned(context: Context, table: type[R], input: UserResourceInput) -> R:
    """The row of a user that an input names.

    Raises NotFound, also for another user's row; Forbidden as `resolve_owner_id` does; BadRequest if the input names no row.
    """
    name = ENTITIES[table].name
    if is_set(input.id) and input.id is not None:
        row = await context.rows_by_id(table).get(database_id_of(input, name) or 0)
        if row is None or not policy.can_read_account(context, row.user_id):  # type: ignore[attr-defined]
            raise NotFound(name)
        return row
    require_id(input)
    owner = await resolve_owner_id(context, input.user_id)
    return await lookup.get_owned_row(context, table, owner, input.database_id or 0)


async def filter_owned(context: Context, rows: Sequence[Any]) -> list[Any]:
    """Those of users' private objects that the viewer may read."""
    return [row for row in rows if policy.can_read_account(context, row.user_id)]
