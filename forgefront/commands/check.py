"""`forgefront check`."""

import asyncio
from typing import Annotated

import typer

from forgefront import logs
from forgefront.checks.data_folder_check import check_data_folder
from forgefront.checks.data_folder_check import repair as repair_findings
from forgefront.commands.command_context import EXIT_FAILED, DataOption, JsonOption, load_config, run_with_backend
from forgefront.commands.output import print_result


def check(
    data: DataOption = None,
    full: Annotated[bool, typer.Option("--full", help="Also read and check every object of every repository; slow.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Also correct counters, and rebuild the index of commits where it differs.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check the data folder, the database and the repositories, and report how to repair what is wrong.

    Changes nothing without --repair, and may run beside the service. Exits with 1 if a problem was found and not repaired.
    """
    logs.configure("text", "error")
    config = load_config(data)
    report = asyncio.run(check_data_folder(config, full=full))
    if repair and report.is_repairable:
        run_with_backend(config, lambda backend: repair_findings(backend, report))
    if as_json:
        print_result(report.as_json(), True)
    else:
        for problem in report.describe_problems():
            typer.echo(problem)
        for finding in report.repaired:
            typer.echo(f"fixed  {finding}")
        for note in report.notes:
            typer.echo(f"note   {note}")
        typer.echo(f"checked: {'; '.join(report.checked)}")
        typer.echo(report.count_problems())
    if report.problems:
        raise typer.Exit(EXIT_FAILED)
