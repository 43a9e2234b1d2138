"""How inputs name things, and tell what was not sent from what is null."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar

import strawberry
from sqlmodel import col

from graph.context import Context
from graph.declare import ENTITIES, parse_global_id
from graph.errors import NotFound
from graph.rules import finding, machines, policy
from storage import tables
from storage.tables.base import Row

R = TypeVar("R", bound=Row)


def given(description: str) -> Any:
    """An input field that may be left out: UNSET then, which differs from null."""
    return strawberry.field(description=description, default=strawberry.UNSET)


def sent(value: Any) -> bool:
    return value is not strawberry.UNSET


def value_or(value: Any, default: Any) -> Any:
    """The value that was sent, or the default for one that was not sent or is null."""
    return default if value is strawberry.UNSET or value is None else value


@strawberry.input(description="A span of time, from one instant to before another.")
class DateTimeRange:
    since: datetime | None = strawberry.field(description="From this instant on.", default=None)
    until: datetime | None = strawberry.field(description="Before this instant.", default=None)

    def conditions(self, moment: Any) -> list[Any]:
        """The SQL conditions that a column of instants lies in it."""
        found = []
        if self.since is not None:
            found.append(col(moment) >= self.since)
        if self.until is not None:
            found.append(col(moment) < self.until)
        return found


@strawberry.input
class InProject:
    """Names a thing of a project: by its `id` alone, or by `databaseId` or `iid` beside `projectPath`."""

    id: strawberry.ID | None = given("The id of the thing; nothing else is needed then.")
    project_path: str | None = given("The full path of its project, or the project's v3 id in digits.")
    database_id: int | None = given("The v3 id of the thing, beside `projectPath`.")


@strawberry.input
class NumberedInProject(InProject):
    iid: int | None = given("The number of the thing within its project, beside `projectPath`.")


async def find(context: Context, table: type[R], input: InProject, *, action: policy.Action | None = None) -> tuple[tables.Project, R]:
    """The project and the row that an input names. Raises NotFound for what is absent or may not be seen.

    For a runner it is a build that it has. Raises Conflict.

    `action` is required of the viewer in the project before the row is looked for there. Raises Forbidden.
    """
    name = ENTITIES[table].name
    if context.machine_or_none is not None and table is tables.Build:
        build: Any = await machines.build_of(context, context.machine_or_none, build_id_of(input))
        return await policy.project_of(context, build), build
    if sent(input.id) and input.id is not None:
        kind, key = parse_global_id(input.id) or ("", "")
        number = finding.as_id(key) if kind == name else None
        row = await context.rows_by_id(table).get(number) if number is not None else None
        if row is None:
            raise NotFound(name)
        project = await policy.project_of(context, row)
        if not await policy.sees_project(context, project):
            raise NotFound(name)
        if action is not None:
            await policy.require(context, action, project)
        return project, row
    project, found = await finding.project_with(
        context,
        value_or(input.project_path, ""),
        table,
        database_id=value_or(input.database_id, None),
        iid=value_or(getattr(input, "iid", None), None),
    )
    if action is not None:
        await policy.require(context, action, project)
    if found is None:
        raise NotFound(table.__name__)
    return project, found


def build_id_of(input: InProject) -> int | None:
    """The v3 id of the build that an input names, wherever it is."""
    if sent(input.id) and input.id is not None:
        kind, key = parse_global_id(input.id) or ("", "")
        return finding.as_id(key) if kind == ENTITIES[tables.Build].name else None
    return value_or(input.database_id, None)  # type: ignore[no-any-return]


@strawberry.input
class UserInput:
    """Names a user: by its `id`, or by `databaseId`."""

    id: strawberry.ID | None = given("The id of the user; nothing else is needed then.")
    database_id: int | None = given("The v3 id of the user.")


def user_id_of(input: UserInput) -> int:
    """The v3 id of the user that an input names. Raises NotFound."""
    if sent(input.id) and input.id is not None:
        kind, key = parse_global_id(input.id) or ("", "")
        found = finding.as_id(key) if kind == ENTITIES[tables.User].name else None
    else:
        found = value_or(input.database_id, None)
    if found is None:
        raise NotFound("User")
    return found


@strawberry.input
class OfUser:
    """Names a thing of a user: by its `id` alone, or by `databaseId`, which is the viewer's own unless `userId` is given."""

    id: strawberry.ID | None = given("The id of the thing; nothing else is needed then.")
    database_id: int | None = given("The v3 id of the thing.")
    user_id: int | None = given("The v3 id of the user whose it is, beside `databaseId`; administrators only. The viewer when not sent.")


async def owner_id(context: Context, user_id: int | None) -> int:
    """Whose things an input is about: the viewer's, or those of a user whom only administrators may name. Raises Forbidden, NotFound.

    The user is looked up aside, so that no writer waits for what is checked after it.
    """
    given_id = value_or(user_id, None)
    if given_id is None:
        return context.viewer.id
    await policy.require(context, policy.Action.ADMIN_USERS)
    async with context.aside() as aside:
        return (await finding.user(aside, given_id)).id


async def find_owned(context: Context, table: type[R], input: OfUser) -> R:
    """The row of a user that an input names. Raises NotFound, also for a row of another user; Forbidden as `owner_id`."""
    name = ENTITIES[table].name
    if sent(input.id) and input.id is not None:
        word, key = parse_global_id(input.id) or ("", "")
        number = finding.as_id(key) if word == name else None
        row = await context.rows_by_id(table).get(number) if number is not None else None
        if row is None or not policy.knows(context, row.user_id):  # type: ignore[attr-defined]
            raise NotFound(name)
        return row
    owner = await owner_id(context, input.user_id)
    return await finding.of_user(context, table, owner, value_or(input.database_id, 0))


def owned_nodes(table: type[R]) -> Callable[[Context, list[str]], Awaitable[dict[str, Any]]]:
    """What of a table of users' own things the viewer may be given as nodes."""

    async def nodes(context: Context, keys: list[str]) -> dict[str, Any]:
        numbers = {number: key for key in keys if (number := finding.as_id(key)) is not None}
        rows: dict[int, Any] = await context.rows_by_id(table).get_many(numbers)
        return {numbers[key]: row for key, row in rows.items() if row is not None and policy.knows(context, row.user_id)}

    return nodes
