"""`forgefront admin project`."""

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from forgefront.backend import Backend
from forgefront.commands.command_context import (
    EXIT_USAGE,
    DataOption,
    JsonOption,
    UsernameOption,
    fail,
    fail_unchanged,
    load_existing_config,
    run_with_backend,
    run_with_client,
)
from forgefront.commands.output import print_result, show_progress
from forgefront.local_client import LocalClient, drop_nulls
from graph.rules.git import ref_adoption
from graph.rules.git.refs import RefConflict
from graph.rules.merge_requests import merge_request_imports
from storage.git.repository import NotARepository
from storage.git.subprocesses.git_command import GitCommandError

OPERATIONS_FILE = Path(__file__).with_suffix(".graphql")
POLL_SECONDS = 0.5
COLUMNS = ("id", "path", "visibility", "default_branch", "archived")

app = typer.Typer(no_args_is_help=True, help="Manage projects: a repository with its issues, merge requests and builds.")


class ProjectVisibility(StrEnum):
    PRIVATE = "private"
    INTERNAL = "internal"
    PUBLIC = "public"


ProjectArgument = Annotated[str, typer.Argument(metavar="PROJECT", help="The full path GROUP/NAME, or the id.")]
DescriptionOption = Annotated[str | None, typer.Option(help="A description; an empty value clears it.", show_default=False)]
VisibilityOption = Annotated[ProjectVisibility | None, typer.Option(help="Who can see it without being a member.", show_default=False)]
DefaultBranchOption = Annotated[
    str | None, typer.Option("--default-branch", metavar="BRANCH", help="The default branch.", show_default=False)
]
TagsOption = Annotated[
    list[str] | None, typer.Option("--tag", help="A tag for searches; repeat the option for several.", show_default=False)
]
FeatureOption = Annotated[bool | None, typer.Option(show_default=False, help="Whether it is enabled.")]


@app.command("list")
def list_projects(
    search: Annotated[
        str | None, typer.Option(help="Only projects whose name, path or description contains this string.", show_default=False)
    ] = None,
    data: DataOption = None,
    username: UsernameOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the projects, archived ones too."""
    print_result(
        run_with_client(data, OPERATIONS_FILE, lambda forge: forge.list_all("Projects", search=search), username=username), as_json, COLUMNS
    )


@app.command("show")
def show_project(path: ProjectArgument, data: DataOption = None, username: UsernameOption = None, as_json: JsonOption = False) -> None:
    """Show a project."""
    print_result(run_with_client(data, OPERATIONS_FILE, lambda forge: forge.run("Project", path=path), username=username), as_json)


@app.command("create")
def create_project(
    path: Annotated[str, typer.Argument(metavar="PROJECT", help="GROUP/NAME; NAME alone for the personal namespace of --owner.")],
    name: Annotated[str | None, typer.Option(help="The display name.", show_default="the path")] = None,
    repository: Annotated[
        Path | None,
        typer.Option(
            help="Copy this repository, with all branches and tags.", exists=True, file_okay=False, resolve_path=True, show_default=False
        ),
    ] = None,
    owner: Annotated[
        str | None,
        typer.Option(metavar="USERNAME", help="The creator.", show_default="the first administrator"),
    ] = None,
    description: DescriptionOption = None,
    visibility: VisibilityOption = None,
    default_branch: DefaultBranchOption = None,
    tag: TagsOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a project: empty, or from a repository on this machine."""
    group, _, last = path.rpartition("/")
    values = drop_nulls(
        name=name or last,
        path=last,
        groupPath=group or None,
        repositoryPath=str(repository) if repository else None,
        description=description,
        visibility=visibility.name if visibility else None,
        defaultBranch=default_branch,
        tagList=tag or None,
    )
    with show_progress() as report_progress:
        created = run_with_client(
            data, OPERATIONS_FILE, lambda forge: forge.run("CreateProject", input=values), username=owner, progress=report_progress
        )
    print_result(created, as_json)


@app.command("change")
def change_project(
    context: typer.Context,
    path: ProjectArgument,
    name: Annotated[str | None, typer.Option(help="The new name.", show_default=False)] = None,
    new_path: Annotated[
        str | None, typer.Option(help="The new last segment of the path; URLs with the old path stop working.", show_default=False)
    ] = None,
    group: Annotated[str | None, typer.Option(help="Move it to this group.", show_default=False)] = None,
    description: DescriptionOption = None,
    visibility: VisibilityOption = None,
    default_branch: DefaultBranchOption = None,
    tag: TagsOption = None,
    archived: Annotated[bool | None, typer.Option(help="Whether it is archived, and so read-only.", show_default=False)] = None,
    issues: FeatureOption = None,
    merge_requests: FeatureOption = None,
    builds: FeatureOption = None,
    wiki: FeatureOption = None,
    snippets: FeatureOption = None,
    public_builds: Annotated[
        bool | None, typer.Option(help="Whether everyone who can see an internal or public project can see its builds.", show_default=False)
    ] = None,
    data: DataOption = None,
    username: UsernameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a project. Options that are not given change nothing."""
    values = drop_nulls(
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
    if group is None and not values:
        fail_unchanged(context)
    if group is not None and values:
        fail("--group cannot be combined with other changes; use two commands", EXIT_USAGE)

    async def work(forge: LocalClient) -> object:
        if group is not None:
            return await forge.run("TransferProject", path=path, group=group)
        return await forge.run("UpdateProject", input={"projectPath": path, **values})

    print_result(run_with_client(data, OPERATIONS_FILE, work, username=username), as_json)


@app.command("import-merge-requests")
def import_merge_requests(
    path: ProjectArgument, data: DataOption = None, username: UsernameOption = None, as_json: JsonOption = False
) -> None:
    """Record merge requests from the merge commits of the default branch.

    The import continues in the service when this command ends, and resumes where it stopped when the command runs again.
    """

    with show_progress() as report_progress:

        async def work(backend: Backend) -> Any:
            forge = LocalClient(backend.graph, OPERATIONS_FILE, username)
            await forge.run("ImportMergeRequests", path=path)
            while True:
                # The import runs here, unless the service has started it.
                await merge_request_imports.run_pending(backend.graph.services)
                found = (await forge.run("MergeRequestImport", path=path))["mergeRequestImport"]
                if found is None or found["state"] in ("FINISHED", "FAILED"):
                    return found
                if found["total"]:
                    report_progress(merge_request_imports.PROGRESS_PHASE, found["processed"], found["total"])
                await asyncio.sleep(POLL_SECONDS)

        finished = run_with_backend(load_existing_config(data), work, progress=report_progress)
    if finished is not None and finished["state"] == "FAILED":
        fail(finished["error"])
    print_result(finished, as_json)


@app.command("adopt-refs")
def adopt_refs(path: ProjectArgument, data: DataOption = None, username: UsernameOption = None, as_json: JsonOption = False) -> None:
    """Take over branches and tags that were pushed into the bare repository on this machine, past the service.

    They have the effects of a push: commits are listed, builds start, merge requests are updated. `forgefront check` lists them.
    """

    async def work(backend: Backend) -> list[dict[str, str | None]]:
        project = await LocalClient(backend.graph, OPERATIONS_FILE, username).run("Project", path=path)
        moved = await ref_adoption.adopt_changes(backend.graph.services, project["id"])
        return [{"ref": update.ref, "old": update.old, "new": update.new} for update in moved]

    try:
        print_result(run_with_backend(load_existing_config(data), work), as_json, ("ref", "old", "new"))
    except (RefConflict, NotARepository, GitCommandError) as error:
        fail(str(error))


@app.command("delete")
def delete_project(
    path: ProjectArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    data: DataOption = None,
    username: UsernameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a project with everything in it, and its repository."""
    yes or typer.confirm(f"Delete the project {path} with its issues and its repository?", abort=True)
    print_result(run_with_client(data, OPERATIONS_FILE, lambda forge: forge.run("DeleteProject", path=path), username=username), as_json)
