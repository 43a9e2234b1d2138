"""`forgefront check`."""

import asyncio
from typing import Annotated

import typer

from forgefront import logs
from forgefront.check import check as look
from forgefront.commands.operating import FAILED, Data, Json, config_of
from forgefront.commands.printing import show


def check(
    data: Data = None,
    full: Annotated[bool, typer.Option("--full", help="Also have git follow every object of every repository; slow.")] = False,
    as_json: Json = False,
) -> None:
    """Look whether the data folder, the database and the repositories are whole, and say what to do where they are not.

    Changes nothing, and may run beside the service. Exits with 1 when anything is wrong.
    """
    logs.configure("text", "error")
    report = asyncio.run(look(config_of(data), full=full))
    if as_json:
        show(report.as_json(), True)
    else:
        for finding in report.problems:
            typer.echo(f"WRONG  {finding.area}: {finding.subject}: {finding.problem}\n       → {finding.remedy}")
        for note in report.notes:
            typer.echo(f"note   {note}")
        typer.echo(f"looked at: {'; '.join(report.looked_at)}")
        typer.echo(f"{len(report.problems)} problems" if report.problems else "all is well")
    if report.problems:
        raise typer.Exit(FAILED)
