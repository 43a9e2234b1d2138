"""`forgefront client`."""

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from forgefront.commands.command_context import EXIT_USAGE, fail

FolderArgument = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="The folder with the `.graphql` files.", exists=True, file_okay=False, show_default=False)
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", help="Write the module to this file instead.", dir_okay=False, show_default=False)
]


def client(folder: FolderArgument, output: OutputOption = None) -> None:
    """Print a typed Python client for the operations in a folder.

    The module depends only on httpx. Its classes `Client` and `AsyncClient`
    have a method for each operation: variables are arguments, and results are
    frozen dataclasses, one for each selection and fragment. Fragments may be
    in any of the `.graphql` files. An interface or a union has a class for each
    type that the operation names; a DateTime is a datetime, enumerations are
    StrEnums, and omitted arguments are not sent. Subscriptions are iterators:
    they resume after the last event when the connection is lost, and end when
    the service ends them.

        forgefront client queries/ --output forge_client.py

        with Client("https://forge.example.com", token) as forge:
            print(forge.project_builds(path="group/name").project)

    Errors are raised as ForgefrontError with their codes and the id of the
    request. The same files produce the same module, formatted, and valid under
    `mypy --strict`. For operations that do not match the schema, the command
    prints file, line and reason, and exits with 2.
    """
    # Imported here, so that other commands do not load the whole schema.
    from forgefront.client import InvalidOperationsError, generate
    from graph.schema import graphql_schema

    try:
        source = generate(folder, graphql_schema, version("forgefront"))
    except InvalidOperationsError as error:
        fail(str(error), EXIT_USAGE)
    if output is None:
        typer.echo(source, nl=False)
        return
    try:
        output.write_text(source, encoding="utf-8")
    except OSError as error:
        fail(f"{output} cannot be written: {error.strerror}")
