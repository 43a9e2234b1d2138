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
    Path | None, typer.Option("--output", metavar="FILE", help="Write the module there instead.", dir_okay=False, show_default=False)
]


def client(folder: FolderArgument, output: OutputOption = None) -> None:
    """Print a typed Python client for the operations in a folder.

    The module needs httpx and nothing else. Its classes `Client` and
    `AsyncClient` have a method for each operation: variables are arguments,
    and answers are frozen dataclasses, one for each selection and fragment.
    Fragments may stand in any of the `.graphql` files. Behind an interface or
    a union there is a class for each type that the operation names; a
    DateTime is a datetime, enumerations are StrEnums, and what is not given is
    not sent. Subscriptions are iterators, which go on after the last event
    when their connection is cut, and end when the service ends them.

        forgefront client queries/ --output forge_client.py

        with Client("https://forge.example.com", token) as forge:
            print(forge.project_builds(path="group/name").project)

    What is refused is a ForgefrontError with its codes and the id of the
    request. The same files give the same module, formatted, and right under
    `mypy --strict`. Operations that do not fit the schema are told with file,
    line and reason, and the exit code is 2.
    """
    # Here, since the other commands need not load the whole schema to be listed.
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
