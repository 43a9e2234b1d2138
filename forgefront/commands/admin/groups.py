"""`forgefront admin group`."""

from pathlib import Path
from typing import Annotated

import typer

from forgefront.commands.command_context import DataOption, JsonOption, UsernameOption, fail_unchanged, run_with_client
from forgefront.commands.output import print_result
from forgefront.local_client import LocalClient, drop_nulls

OPERATIONS_FILE = Path(__file__).with_suffix(".graphql")
COLUMNS = ("id", "path", "name", "description")

app = typer.Typer(no_args_is_help=True, help="Manage groups, which contain projects.")

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The path of the group, or its id.")]
DescriptionOption = Annotated[str | None, typer.Option(help="A description; an empty value clears it.", show_default=False)]


@app.command("list")
def list_groups(
    search: Annotated[str | None, typer.Option(help="Only groups whose name or path contains this string.", show_default=False)] = None,
    data: DataOption = None,
    username: UsernameOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the groups."""
    print_result(
        run_with_client(data, OPERATIONS_FILE, lambda forge: forge.list_all("Groups", search=search), username=username), as_json, COLUMNS
    )


@app.command("show")
def show_group(path: GroupArgument, data: DataOption = None, username: UsernameOption = None, as_json: JsonOption = False) -> None:
    """Show a group."""
    print_result(run_with_client(data, OPERATIONS_FILE, lambda forge: forge.run("Group", path=path), username=username), as_json)


@app.command("create")
def create_group(
    path: Annotated[str, typer.Argument(help="The first segment of its projects' full paths.")],
    name: Annotated[str | None, typer.Option(help="The display name.", show_default="the path")] = None,
    description: DescriptionOption = None,
    owner: Annotated[str | None, typer.Option(metavar="USERNAME", help="The owner.", show_default="the first administrator")] = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a group."""
    values = drop_nulls(path=path, name=name or path, description=description)
    print_result(run_with_client(data, OPERATIONS_FILE, lambda forge: forge.run("CreateGroup", input=values), username=owner), as_json)


@app.command("change")
def change_group(
    context: typer.Context,
    path: GroupArgument,
    name: Annotated[str | None, typer.Option(help="The new name.", show_default=False)] = None,
    new_path: Annotated[str | None, typer.Option(help="The new path; URLs with the old path stop working.", show_default=False)] = None,
    description: DescriptionOption = None,
    data: DataOption = None,
    username: UsernameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a group. Options that are not given change nothing."""
    values = drop_nulls(name=name, path=new_path, description=description)
    if not values:
        fail_unchanged(context)

    async def work(forge: LocalClient) -> object:
        return await forge.run("UpdateGroup", input={"groupPath": path, **values})

    print_result(run_with_client(data, OPERATIONS_FILE, work, username=username), as_json)


@app.command("delete")
def delete_group(
    path: GroupArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    data: DataOption = None,
    username: UsernameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a group with all its projects and their repositories."""
    yes or typer.confirm(f"Delete the group {path} with all its projects?", abort=True)
    print_result(run_with_client(data, OPERATIONS_FILE, lambda forge: forge.run("DeleteGroup", path=path), username=username), as_json)
