"""`forgefront directory`."""

import asyncio
from typing import Annotated

import typer

from forgefront import logs
from forgefront.checks.directory_check import check_sign_in
from forgefront.commands.command_context import EXIT_FAILED, EXIT_USAGE, DataOption, JsonOption, fail, load_config
from forgefront.commands.output import print_result

MAX_LISTED = 100
"""Accounts that are printed; --json has all."""

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Check sign-in with an LDAP directory or an OpenID provider.")


@app.callback()
def directory() -> None:
    """Parses the options that precede the command."""


@app.command("check")
def check(
    login: Annotated[str | None, typer.Option(help="Also look this login up in the directory.", show_default=False)] = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Try the directory and the provider of the configuration, and say what is wrong and what to do.

    Lists the accounts that the next comparison with the directory would block, as the first one after an import may.
    Changes nothing, and may run beside the service. Exits with 1 if something is wrong.
    """
    logs.configure("text", "error")
    config = load_config(data)
    try:
        report = asyncio.run(check_sign_in(config, login))
    except ValueError as error:
        fail(f"FORGEFRONT_LDAP_CA_FILE: {error}", EXIT_USAGE)
    if as_json:
        print_result(report.as_json(), True)
    else:
        for problem in report.describe_problems():
            typer.echo(problem)
        for block in report.blocks[:MAX_LISTED]:
            typer.echo(f"block  {block.username}: {block.uid}: {block.reason}")
        if len(report.blocks) > MAX_LISTED:
            typer.echo(f"block  … and {len(report.blocks) - MAX_LISTED:,} more; --json lists them")
        for note in report.notes:
            typer.echo(f"note   {note}")
        typer.echo(f"checked: {'; '.join(report.checked) or 'nothing'}")
        typer.echo(report.count_problems())
    if report.problems:
        raise typer.Exit(EXIT_FAILED)
