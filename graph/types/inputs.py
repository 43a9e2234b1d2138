"""How inputs name things, and tell what was not sent from what is null."""

from typing import Any, TypeVar

import strawberry

from graph.context import Context
from graph.declare import ENTITIES, parse_global_id
from graph.errors import NotFound
from graph.rules import finding, policy
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


@strawberry.input
class InProject:
    """Names a thing of a project: by its `id` alone, or by `databaseId` or `iid` beside `projectPath`."""

    id: strawberry.ID | None = given("The id of the thing; nothing else is needed then.")
    project_path: str | None = given("The full path of its project, or the project's v3 id in digits.")
    database_id: int | None = given("The v3 id of the thing, beside `projectPath`.")


@strawberry.input
class NumberedInProject(InProject):
    iid: int | None = given("The number of the thing within its project, beside `projectPath`.")


async def find(context: Context, table: type[R], input: InProject) -> tuple[tables.Project, R]:
    """The project and the row that an input names. Raises NotFound for what is absent or may not be seen."""
    name = ENTITIES[table].name
    if sent(input.id) and input.id is not None:
        kind, key = parse_global_id(input.id) or ("", "")
        number = finding.as_id(key) if kind == name else None
        row = await context.rows_by_id(table).get(number) if number is not None else None
        if row is None:
            raise NotFound(name)
        project = await policy.project_of(context, row)
        if not await policy.sees_project(context, project):
            raise NotFound(name)
        return project, row
    project = await finding.project(context, value_or(input.project_path, ""))
    return project, await finding.within(
        context,
        table,
        project,
        database_id=value_or(input.database_id, None),
        iid=value_or(getattr(input, "iid", None), None),
    )
