"""`forgefront demo`."""

import asyncio
from pathlib import Path

import typer

from forgefront.backend import Backend
from forgefront.commands import command_context
from forgefront.commands.command_context import DataOption, JsonOption, RepositoryOption, fail, load_config
from forgefront.commands.output import print_result, show_progress
from forgefront.config import Config
from forgefront.data_folder.data_folder_claim import FolderNotEmpty, claim_folder
from forgefront.demo import demo_builder, demo_history, demo_pipeline
from forgefront.demo.demo_builder import Demo, DemoBuilder, ExistingDemo

CHECKOUT_FOLDER = Path(__file__).parents[2]
"""The checkout that this program runs from, if it is one."""
OWN_PROJECT_NAME = "forgefront"


def demo(data: DataOption = None, repository: RepositoryOption = None, as_json: JsonOption = False) -> None:
    """Fill an empty data folder with a demo, built from a real repository.

    Every author becomes a user; projects, members, labels, a milestone, and issues with notes are added around the history. Prints the
    accounts with their tokens. Refuses a folder that is not empty, without changing it.
    """
    source, reason = find_source(repository)
    if reason:
        fail(f"{reason}; name a repository with --repository PATH")
    created = fill_folder(load_config(data), source)
    if as_json:
        print_result(created.as_json(), True)
        return
    width = max(map(len, created.accounts))
    typer.echo(f"Created the demo with the project {created.project_path} (id {created.project_id}).")
    typer.echo(f"Accounts, with their tokens (the password of all accounts is {created.password}):")
    for name, account in created.accounts.items():
        typer.echo(f"  {name:{width}}  {account.token}  {account.role}")
    typer.echo("Serve it: forgefront serve" + (f" --data {data}" if data else ""))


def find_source(repository: Path | None) -> tuple[Path | None, str]:
    """The repository to show, or the reason why there is none. A named repository without a commit ends the command."""
    if repository is not None:
        if not demo_history.has_history(repository):
            fail(f"--repository {repository}: there is no git repository with a commit", command_context.EXIT_USAGE)
        return repository, ""
    if demo_history.has_history(CHECKOUT_FOLDER):
        return CHECKOUT_FOLDER, ""
    reason = "has no commit yet" if (CHECKOUT_FOLDER / ".git").exists() else "is not a git checkout"
    return None, f"{CHECKOUT_FOLDER} {reason}"


def fill_folder(config: Config, source: Path | None) -> Demo:
    """Fills the folder; ends the command if that is refused."""
    name = OWN_PROJECT_NAME if source in (None, CHECKOUT_FOLDER) else demo_history.project_name_of(source or CHECKOUT_FOLDER)
    try:
        clock = demo_history.create_clock(source)
        with claim_folder(config), show_progress() as report_progress:

            async def work(backend: Backend) -> Demo:
                return await DemoBuilder(backend, clock, source, name, report_progress).build()

            demo = command_context.run_with_backend(config, work, progress=report_progress, clock=clock)
            report_progress("running builds", 0, demo_pipeline.BUILD_COUNT)
            asyncio.run(demo_pipeline.run_builds(config, demo.runner_token))
            report_progress("running builds", demo_pipeline.BUILD_COUNT, demo_pipeline.BUILD_COUNT)
            return demo
    except (FolderNotEmpty, OSError) as error:
        fail(str(error))


def find_existing_demo(config: Config) -> ExistingDemo | None:
    """The demo that the folder contains; None if it contains something else."""
    # `serve` migrates the database too, when it has this.
    return command_context.run_with_backend(config, demo_builder.find_existing_demo, may_migrate=True)
