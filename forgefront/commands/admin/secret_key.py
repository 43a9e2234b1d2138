"""`forgefront admin secret-key`."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from forgefront import logs
from forgefront.commands.command_context import DataOption, JsonOption, load_existing_config, run_work
from forgefront.commands.output import print_result, show_progress
from forgefront.data_folder.secret_key_rotation import RotatedKey, forget_lost_secrets, rotate_secret_key

app = typer.Typer(
    no_args_is_help=True,
    help="Replace the secret key, which encrypts stored tokens, secrets of hooks and variables, while the service is stopped.",
)


@app.command()
def rotate(
    new_key: Annotated[
        Path | None,
        typer.Option(
            "--new-key",
            metavar="FILE",
            help="A file with the new key, 32 bytes in base64. Required if FORGEFRONT_SECRET_KEY is set.",
            show_default="a random key",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Encrypt all stored secrets with a new key, and replace DATA/secret.key. All hosts of the instance must be stopped.

    Tokens, passwords and sessions stay valid. A run that was killed is completed by the next one.
    """
    logs.configure("text", "error")
    config = load_existing_config(data)
    started = time.monotonic()
    with show_progress() as progress:
        rotated = run_work(rotate_secret_key(config, new_key, progress))
    if as_json:
        print_result(_summarize(rotated, time.monotonic() - started), True)
    else:
        _print(rotated, time.monotonic() - started)


@app.command()
def forget(
    data: DataOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the stored secrets of a key that is lost, so that the service starts with the present key, or with a new one.

    Tokens can still be used, but not shown. Secrets of hooks and values of variables must be set again. All hosts must be stopped.
    """
    logs.configure("text", "error")
    config = load_existing_config(data)
    yes or typer.confirm(f"Delete all stored secrets of {config.data}? The lost key would decrypt them.", abort=True)
    run_work(forget_lost_secrets(config))
    if as_json:
        print_result({"forgotten": True}, True)
    else:
        typer.echo("Tokens can be used, but not shown any more. Set the secrets of hooks and the values of variables again.")


def _summarize(rotated: RotatedKey, seconds: float) -> dict[str, Any]:
    return {
        "encrypted": rotated.result.encrypted,
        "unchanged": rotated.result.unchanged,
        "unreadable": rotated.result.unreadable,
        "fingerprint": rotated.fingerprint,
        "key_file": str(rotated.key_file) if rotated.key_file else None,
        "old_key_file": str(rotated.old_key_file) if rotated.old_key_file else None,
        "seconds": round(seconds, 3),
    }


def _print(rotated: RotatedKey, seconds: float) -> None:
    result = rotated.result
    typer.echo(f"Encrypted {result.encrypted:,} values with the new key in {seconds:.0f} s.")
    if result.unchanged:
        typer.echo(f"note   {result.unchanged:,} values had the new key already, from a run that was interrupted")
    if result.unreadable:
        typer.echo(f"note   {result.unreadable:,} values could not be decrypted before either; they were left as they are")
    if rotated.key_file is None:
        typer.echo(
            "Set FORGEFRONT_SECRET_KEY to the new key on all hosts before you start them. Keep the old key with the dumps made so far."
        )
    else:
        typer.echo(f"The new key is in {rotated.key_file}: copy it to all hosts before you start them, and to where you keep the key.")
        typer.echo(f"The old key is in {rotated.old_key_file}: move it to where you keep the dumps made so far, which need it.")
