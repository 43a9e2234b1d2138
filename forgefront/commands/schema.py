"""`forgefront schema`."""

from pathlib import Path
from typing import Annotated

import typer
from graphql import GraphQLError

from forgefront.commands.operating import FAILED, WRONG, fail


def schema(
    against: Annotated[
        Path | None,
        typer.Option("--against", help="Say instead what changed since this schema; 1 when something breaks.", exists=True, dir_okay=False),
    ] = None,
) -> None:
    """Print the GraphQL schema, as schema.graphql has it."""
    # Here, since the other commands need not load the whole schema to be listed.
    from graph.compatibility import Harm, changes
    from graph.schema import printed

    if against is None:
        typer.echo(printed(), nl=False)
        return
    try:
        found = changes(against.read_text(encoding="utf-8"), printed())
    except (GraphQLError, UnicodeDecodeError, TypeError) as error:
        fail(f"{against} is no schema: {error}", WRONG)
    for change in found:
        typer.echo(str(change))
    breaking = sum(change.harm is Harm.BREAKING for change in found)
    typer.echo(f"{len(found)} changes, {breaking} of them breaking" if found else "no change")
    if breaking:
        raise typer.Exit(FAILED)
