"""`forgefront admin member`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from forgefront.commands.command_context import DataOption, JsonOption, UsernameOption, run_with_client
from forgefront.commands.output import print_result

OPERATIONS_FILE = Path(__file__).with_suffix(".graphql")
COLUMNS = ("id", "username", "name", "access_level", "since")

app = typer.Typer(no_args_is_help=True, help="Manage members of groups and projects.")


class MemberLevel(StrEnum):
    GUEST = "guest"
    REPORTER = "reporter"
    DEVELOPER = "developer"
    MASTER = "master"
    OWNER = "owner"


NamespaceArgument = Annotated[str, typer.Argument(help="A group (its path), or a project (its full path, with a slash).")]
UsernameArgument = Annotated[str, typer.Argument(help="The username of the member.")]
LevelOption = Annotated[MemberLevel, typer.Option(help="The access level; only groups have owners.")]


@app.command("list")
def list_members(place: NamespaceArgument, data: DataOption = None, username: UsernameOption = None, as_json: JsonOption = False) -> None:
    """List the members of a group, or the direct members of a project."""
    found = run_with_client(
        data, OPERATIONS_FILE, lambda forge: forge.list_all(f"{_kind_of(place)}Members", "members", path=place), username=username
    )
    print_result([_flatten(member) for member in found], as_json, COLUMNS)


@app.command("create")
def create_member(
    place: NamespaceArgument,
    member: UsernameArgument,
    level: LevelOption = MemberLevel.DEVELOPER,
    data: DataOption = None,
    username: UsernameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a member."""
    _change_membership("Add", place, member, level, data, username, as_json)


@app.command("change")
def change_member(
    place: NamespaceArgument,
    member: UsernameArgument,
    level: LevelOption,
    data: DataOption = None,
    username: UsernameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the access level of a member."""
    _change_membership("Update", place, member, level, data, username, as_json)


@app.command("delete")
def delete_member(
    place: NamespaceArgument,
    member: UsernameArgument,
    data: DataOption = None,
    username: UsernameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a member."""
    _change_membership("Remove", place, member, None, data, username, as_json)


def _change_membership(
    verb: str, path: str, member: str, level: MemberLevel | None, data: Path | None, username: str | None, as_json: bool
) -> None:
    operation = f"{verb}{_kind_of(path)}Member"
    variables = {"path": path, "username": member, "level": level.name if level else None}
    print_result(
        _flatten(run_with_client(data, OPERATIONS_FILE, lambda forge: forge.run(operation, **variables), username=username)), as_json
    )


def _kind_of(path: str) -> str:
    return "Project" if "/" in path else "Group"


def _flatten(member: dict[str, Any]) -> dict[str, Any]:
    return {**member["user"], "access_level": member["access_level"], "since": member["since"]}
