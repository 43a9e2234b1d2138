"""`forgefront check`."""

import asyncio
from typing import Annotated

import typer

from forgefront import logs
from forgefront.commands.command_context import EXIT_FAILED, DataOption, JsonOption, load_config, run_with_backend
from forgefront.commands.output import print_result
from forgefront.data_folder_check import check_data_folder, repair_indexes


def check(
    data: DataOption = None,
    full: Annotated[bool, typer.Option("--full", help="Also have git follow every object of every repository; slow.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Also repair what the repositories tell: the index of their branches and commits.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Look whether the data folder, the database and the repositories are whole, and say what to do where they are not.

    Changes nothing without --repair, and may run beside the service. Exits with 1 when anything is wrong, and was not repaired.
    """
    logs.configure("text", "error")
    config = load_config(data)
    report = asyncio.run(check_data_folder(config, full=full))
    if repair and report.unindexed_projects:
        run_with_backend(config, lambda engine: repair_indexes(engine, report))
    if as_json:
        print_result(report.as_json(), True)
    else:
        for finding in report.problems:
            typer.echo(f"WRONG  {finding.area}: {finding.subject}: {finding.problem}\n       → {finding.remedy}")
        for finding in report.repaired:
            typer.echo(f"mended {finding.area}: {finding.subject}: {finding.problem}")
        for note in report.notes:
            typer.echo(f"note   {note}")
        typer.echo(f"looked at: {'; '.join(report.checked)}")
        typer.echo(f"{len(report.problems)} problems" if report.problems else "all is well")
    if report.problems:
        raise typer.Exit(EXIT_FAILED)
