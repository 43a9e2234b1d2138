"""`forgefront demo`."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from forgefront import demo as filling
from forgefront import demo_history, demo_pipeline
from forgefront.commands import operating
from forgefront.commands.operating import Data, Json, config_of, fail
from forgefront.commands.printing import progress, show
from forgefront.config import Config
from forgefront.demo import Builder, Demo, Kept
from forgefront.demo_folder import NotEmpty, claimed
from forgefront.engine import Engine

CHECKOUT = Path(__file__).parents[2]
"""The checkout that this program runs from, if it does."""
OWN_NAME = "forgefront"

Repository = Annotated[
    Path | None,
    typer.Option(
        "--repository", help="The repository whose history the demo shows.  [default: this checkout's]", file_okay=False, show_default=False
    ),
]


def demo(data: Data = None, repository: Repository = None, as_json: Json = False) -> None:
    """Fill an empty data folder with a forge to look at, from a real repository.

    Every author becomes a user; around the history stand projects, members, labels, a milestone, issues with notes. Prints the accounts
    with their tokens. A folder that holds anything is refused, and not changed.
    """
    source, why_not = source_of(repository)
    if why_not:
        fail(f"{why_not}; name a repository with --repository PATH")
    made = fill(config_of(data), source)
    if as_json:
        show(made.as_json(), True)
        return
    width = max(map(len, made.accounts))
    typer.echo(f"Filled, with the project {made.project_path} (id {made.project_id}).")
    typer.echo(f"Accounts, with their tokens (all of them sign in with the password {made.password}):")
    for name, account in made.accounts.items():
        typer.echo(f"  {name:{width}}  {account.token}  {account.role}")
    typer.echo("Serve it: forgefront serve" + (f" --data {data}" if data else ""))


def source_of(given: Path | None) -> tuple[Path | None, str]:
    """The repository to show, and why there is none. One that was named and has no commit ends the command."""
    if given is not None:
        if not demo_history.has_history(given):
            fail(f"--repository {given}: there is no git repository with a commit", operating.WRONG)
        return given, ""
    if demo_history.has_history(CHECKOUT):
        return CHECKOUT, ""
    what = "has no commit yet" if (CHECKOUT / ".git").exists() else "is no git checkout"
    return None, f"{CHECKOUT} {what}"


def fill(config: Config, source: Path | None) -> Demo:
    """Fills the folder; ends the command where that is refused."""
    name = OWN_NAME if source in (None, CHECKOUT) else demo_history.name_of(source or CHECKOUT)
    try:
        clock = demo_history.clock_of(source)
        with claimed(config), progress() as tell:

            async def work(engine: Engine) -> Demo:
                return await Builder(engine, clock, source, name, tell).build()

            made = operating.run(config, work, progress=tell, clock=clock)
            tell("running builds", 0, demo_pipeline.BUILDS)
            asyncio.run(demo_pipeline.run(config, made.runner_token))
            tell("running builds", demo_pipeline.BUILDS, demo_pipeline.BUILDS)
            return made
    except (NotEmpty, OSError) as error:
        fail(str(error))


def kept(config: Config) -> Kept | None:
    """The demo that the folder holds; None when it holds something else."""
    return operating.run(config, filling.kept)
