"""`forgefront admin member`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from forgefront.commands.operating import As, Data, Json, operate
from forgefront.commands.printing import show

DOCUMENT = Path(__file__).with_suffix(".graphql")
COLUMNS = ("id", "username", "name", "access_level", "since")

app = typer.Typer(no_args_is_help=True, help="Members of groups and projects.")


class Level(StrEnum):
    GUEST = "guest"
    REPORTER = "reporter"
    DEVELOPER = "developer"
    MASTER = "master"
    OWNER = "owner"


Place = Annotated[str, typer.Argument(help="A group (its path), or a project (its full path, with a slash).")]
Username = Annotated[str, typer.Argument(help="Whose membership.")]
AccessLevel = Annotated[Level, typer.Option(help="What the member may do; owners exist in groups only.")]


@app.command("list")
def list_members(place: Place, data: Data = None, username: As = None, as_json: Json = False) -> None:
    """List the members of a group, or a project's own."""
    found = operate(data, DOCUMENT, lambda forge: forge.every(f"{_kind(place)}Members", "members", path=place), username=username)
    show([_flat(member) for member in found], as_json, COLUMNS)


@app.command("create")
def create_member(
    place: Place, member: Username, level: AccessLevel = Level.DEVELOPER, data: Data = None, username: As = None, as_json: Json = False
) -> None:
    """Make a user a member."""
    _do("Add", place, member, level, data, username, as_json)


@app.command("change")
def change_member(
    place: Place, member: Username, level: AccessLevel, data: Data = None, username: As = None, as_json: Json = False
) -> None:
    """Give a member another level."""
    _do("Update", place, member, level, data, username, as_json)


@app.command("delete")
def delete_member(place: Place, member: Username, data: Data = None, username: As = None, as_json: Json = False) -> None:
    """End a membership."""
    _do("Remove", place, member, None, data, username, as_json)


def _do(verb: str, place: str, member: str, level: Level | None, data: Path | None, username: str | None, as_json: bool) -> None:
    operation = f"{verb}{_kind(place)}Member"
    given = {"path": place, "username": member, "level": level.name if level else None}
    show(_flat(operate(data, DOCUMENT, lambda forge: forge.run(operation, **given), username=username)), as_json)


def _kind(place: str) -> str:
    return "Project" if "/" in place else "Group"


def _flat(member: dict[str, Any]) -> dict[str, Any]:
    return {**member["user"], "access_level": member["access_level"], "since": member["since"]}
