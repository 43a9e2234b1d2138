"""`forgefront admin group`."""

from pathlib import Path
from typing import Annotated

import typer

from forgefront.commands.operating import As, Data, Json, operate
from forgefront.commands.printing import show
from forgefront.operator import Forge, sent

DOCUMENT = Path(__file__).with_suffix(".graphql")
COLUMNS = ("id", "path", "name", "description")

app = typer.Typer(no_args_is_help=True, help="Groups: people with common projects.")

GroupPath = Annotated[str, typer.Argument(metavar="GROUP", help="The path of the group, or its id.")]
Description = Annotated[str | None, typer.Option(help="What it is about; empty clears it.", show_default=False)]


@app.command("list")
def list_groups(
    search: Annotated[str | None, typer.Option(help="Only with this text in the name or path.", show_default=False)] = None,
    data: Data = None,
    username: As = None,
    as_json: Json = False,
) -> None:
    """List the groups."""
    show(operate(data, DOCUMENT, lambda forge: forge.every("Groups", search=search), username=username), as_json, COLUMNS)


@app.command("show")
def show_group(path: GroupPath, data: Data = None, username: As = None, as_json: Json = False) -> None:
    """Show a group."""
    show(operate(data, DOCUMENT, lambda forge: forge.run("Group", path=path), username=username), as_json)


@app.command("create")
def create_group(
    path: Annotated[str, typer.Argument(help="The first segment of its projects' full paths.")],
    name: Annotated[str | None, typer.Option(help="The name, in words.  [default: the path]", show_default=False)] = None,
    description: Description = None,
    owner: Annotated[
        str | None, typer.Option(metavar="USERNAME", help="Who owns it.  [default: the first administrator]", show_default=False)
    ] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Create a group."""
    values = sent(path=path, name=name or path, description=description)
    show(operate(data, DOCUMENT, lambda forge: forge.run("CreateGroup", input=values), username=owner), as_json)


@app.command("change")
def change_group(
    path: GroupPath,
    name: Annotated[str | None, typer.Option(help="Another name.", show_default=False)] = None,
    new_path: Annotated[str | None, typer.Option(help="Another path; the old addresses stop working.", show_default=False)] = None,
    description: Description = None,
    data: Data = None,
    username: As = None,
    as_json: Json = False,
) -> None:
    """Change a group; what is not given stays."""
    values = sent(name=name, path=new_path, description=description)

    async def work(forge: Forge) -> object:
        return await forge.run("UpdateGroup", input={"groupPath": path, **values})

    show(operate(data, DOCUMENT, work, username=username), as_json)


@app.command("delete")
def delete_group(
    path: GroupPath,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data: Data = None,
    username: As = None,
    as_json: Json = False,
) -> None:
    """Delete a group with all its projects and their repositories."""
    yes or typer.confirm(f"Delete the group {path} with all its projects?", abort=True)
    show(operate(data, DOCUMENT, lambda forge: forge.run("DeleteGroup", path=path), username=username), as_json)
