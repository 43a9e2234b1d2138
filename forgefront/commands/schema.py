"""`forgefront schema`."""

from pathlib import Path
from typing import Annotated

import typer
from graphql import GraphQLError

from forgefront.commands.command_context import EXIT_FAILED, EXIT_USAGE, fail


def schema(
    against: Annotated[
        Path | None,
        typer.Option(
            "--against", help="Print the changes since this schema instead; exit with 1 if one is breaking.", exists=True, dir_okay=False
        ),
    ] = None,
) -> None:
    """Print the GraphQL schema, as in schema.graphql."""
    # Imported here, so that other commands do not load the whole schema.
    from graph.compatibility import Severity, compare_schemas
    from graph.schema import print_schema

    if against is None:
        typer.echo(print_schema(), nl=False)
        return
    try:
        schema_changes = compare_schemas(against.read_text(encoding="utf-8"), print_schema())
    except (GraphQLError, UnicodeDecodeError, TypeError) as error:
        fail(f"{against} is not a valid schema: {error}", EXIT_USAGE)
    for change in schema_changes:
        typer.echo(str(change))
    breaking = sum(change.severity is Severity.BREAKING for change in schema_changes)
    typer.echo(f"{len(schema_changes)} changes, {breaking} of them breaking" if schema_changes else "no changes")
    if breaking:
        raise typer.Exit(EXIT_FAILED)
