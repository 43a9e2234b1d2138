"""`forgefront admin project`."""

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from forgefront.commands.operating import As, Data, Json, existing, fail, operate, run
from forgefront.commands.printing import progress, show
from forgefront.engine import Engine
from forgefront.operator import Forge, sent
from graph.rules import merge_request_imports

DOCUMENT = Path(__file__).with_suffix(".graphql")
POLL_SECONDS = 0.5
COLUMNS = ("id", "path", "visibility", "default_branch", "archived")

app = typer.Typer(no_args_is_help=True, help="Projects: a repository and what is kept around it.")


class Visibility(StrEnum):
    PRIVATE = "private"
    INTERNAL = "internal"
    PUBLIC = "public"


ProjectPath = Annotated[str, typer.Argument(metavar="PROJECT", help="The full path GROUP/NAME, or the id.")]
Description = Annotated[str | None, typer.Option(help="What it is about; empty clears it.", show_default=False)]
Visible = Annotated[Visibility | None, typer.Option(help="Who sees it without being a member.", show_default=False)]
Branch = Annotated[
    str | None, typer.Option("--default-branch", metavar="BRANCH", help="The branch where none is named.", show_default=False)
]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="A word to find it by; several are given one by one.", show_default=False)]
Switch = Annotated[bool | None, typer.Option(show_default=False, help="Whether it has them.")]


@app.command("list")
def list_projects(
    search: Annotated[str | None, typer.Option(help="Only with this text in the name, path or description.", show_default=False)] = None,
    data: Data = None,
    username: As = None,
    as_json: Json = False,
) -> None:
    """List the projects, archived ones too."""
    show(operate(data, DOCUMENT, lambda forge: forge.every("Projects", search=search), username=username), as_json, COLUMNS)


@app.command("show")
def show_project(path: ProjectPath, data: Data = None, username: As = None, as_json: Json = False) -> None:
    """Show a project."""
    show(operate(data, DOCUMENT, lambda forge: forge.run("Project", path=path), username=username), as_json)


@app.command("create")
def create_project(
    path: Annotated[str, typer.Argument(metavar="PROJECT", help="GROUP/NAME; NAME alone for the personal space of --owner.")],
    name: Annotated[str | None, typer.Option(help="The name, in words.  [default: the path]", show_default=False)] = None,
    repository: Annotated[
        Path | None,
        typer.Option(
            help="Copy this repository, with all branches and tags.", exists=True, file_okay=False, resolve_path=True, show_default=False
        ),
    ] = None,
    owner: Annotated[
        str | None,
        typer.Option(metavar="USERNAME", help="Who creates it.  [default: the first administrator]", show_default=False),
    ] = None,
    description: Description = None,
    visibility: Visible = None,
    default_branch: Branch = None,
    tag: Tags = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Create a project: empty, or from a repository on this machine."""
    group, _, last = path.rpartition("/")
    values = sent(
        name=name or last,
        path=last,
        groupPath=group or None,
        repositoryPath=str(repository) if repository else None,
        description=description,
        visibility=visibility.name if visibility else None,
        defaultBranch=default_branch,
        tagList=tag or None,
    )
    with progress() as tell:
        made = operate(data, DOCUMENT, lambda forge: forge.run("CreateProject", input=values), username=owner, progress=tell)
    show(made, as_json)


@app.command("change")
def change_project(
    path: ProjectPath,
    name: Annotated[str | None, typer.Option(help="Another name.", show_default=False)] = None,
    new_path: Annotated[str | None, typer.Option(help="Another last segment; the old addresses stop working.", show_default=False)] = None,
    group: Annotated[str | None, typer.Option(help="Move it to this group.", show_default=False)] = None,
    description: Description = None,
    visibility: Visible = None,
    default_branch: Branch = None,
    tag: Tags = None,
    archived: Annotated[bool | None, typer.Option(help="Whether it is only kept.", show_default=False)] = None,
    issues: Switch = None,
    merge_requests: Switch = None,
    builds: Switch = None,
    wiki: Switch = None,
    snippets: Switch = None,
    public_builds: Annotated[
        bool | None, typer.Option(help="Whether builds are seen by all who see an internal or public project.", show_default=False)
    ] = None,
    data: Data = None,
    username: As = None,
    as_json: Json = False,
) -> None:
    """Change a project; what is not given stays."""
    values = sent(
        name=name,
        path=new_path,
        description=description,
        visibility=visibility.name if visibility else None,
        defaultBranch=default_branch,
        tagList=tag or None,
        archived=archived,
        issuesEnabled=issues,
        mergeRequestsEnabled=merge_requests,
        buildsEnabled=builds,
        wikiEnabled=wiki,
        snippetsEnabled=snippets,
        publicBuilds=public_builds,
    )
    if group is not None and values:
        fail("move a project and change it in two commands: --group goes alone", 2)

    async def work(forge: Forge) -> object:
        if group is not None:
            return await forge.run("TransferProject", path=path, group=group)
        return await forge.run("UpdateProject", input={"projectPath": path, **values})

    show(operate(data, DOCUMENT, work, username=username), as_json)


@app.command("import-merge-requests")
def import_merge_requests(path: ProjectPath, data: Data = None, username: As = None, as_json: Json = False) -> None:
    """Write down the merge requests that the merge commits of the default branch tell of.

    It goes on in the service when this command is ended, and where it was when it is run again.
    """

    with progress() as tell:

        async def work(engine: Engine) -> Any:
            forge = Forge(engine.graph, DOCUMENT, username)
            await forge.run("ImportMergeRequests", path=path)
            while True:
                # Here, unless the service has taken it.
                await merge_request_imports.run_pending(engine.graph.services)
                found = (await forge.run("MergeRequestImport", path=path))["mergeRequestImport"]
                if found is None or found["state"] in ("FINISHED", "FAILED"):
                    return found
                if found["total"]:
                    tell(merge_request_imports.PHASE, found["processed"], found["total"])
                await asyncio.sleep(POLL_SECONDS)

        done = run(existing(data), work, progress=tell)
    if done is not None and done["state"] == "FAILED":
        fail(done["error"])
    show(done, as_json)


@app.command("delete")
def delete_project(
    path: ProjectPath,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data: Data = None,
    username: As = None,
    as_json: Json = False,
) -> None:
    """Delete a project with all that is in it, and its repository."""
    yes or typer.confirm(f"Delete the project {path} with its issues and its repository?", abort=True)
    show(operate(data, DOCUMENT, lambda forge: forge.run("DeleteProject", path=path), username=username), as_json)
