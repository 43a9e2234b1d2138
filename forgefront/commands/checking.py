"""`forgefront check`."""

import asyncio
from typing import Annotated

import typer

from forgefront import logs
from forgefront.check import check as look
from forgefront.check import mend
from forgefront.commands.operating import FAILED, Data, Json, config_of, run
from forgefront.commands.printing import show


def check(
    data: Data = None,
    full: Annotated[bool, typer.Option("--full", help="Also have git follow every object of every repository; slow.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Also repair what the repositories tell: the index of their branches and commits.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Look whether the data folder, the database and the repositories are whole, and say what to do where they are not.

    Changes nothing without --repair, and may run beside the service. Exits with 1 when anything is wrong, and was not repaired.
    """
    logs.configure("text", "error")
    config = config_of(data)
    report = asyncio.run(look(config, full=full))
    if repair and report.to_index:
        run(config, lambda engine: mend(engine, report))
    if as_json:
        show(report.as_json(), True)
    else:
        for finding in report.problems:
            typer.echo(f"WRONG  {finding.area}: {finding.subject}: {finding.problem}\n       → {finding.remedy}")
        for finding in report.repaired:
            typer.echo(f"mended {finding.area}: {finding.subject}: {finding.problem}")
        for note in report.notes:
            typer.echo(f"note   {note}")
        typer.echo(f"looked at: {'; '.join(report.looked_at)}")
        typer.echo(f"{len(report.problems)} problems" if report.problems else "all is well")
    if report.problems:
        raise typer.Exit(FAILED)
