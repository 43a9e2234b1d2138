"""`forgefront documents`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from forgefront.commands.command_context import EXIT_FAILED, JsonOption, fail


def documents(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FOLDER]",
            help="A folder of .graphql files, or a manifest.",
            show_default="the built-in ones",
            exists=True,
        ),
    ] = None,
    as_json: JsonOption = False,
    manifest: Annotated[
        bool, typer.Option("--manifest", help="Print the manifest of the documents, which FORGEFRONT_DOCUMENTS accepts.")
    ] = False,
) -> None:
    """Check trusted documents against the schema, and list them: name, kind, cost in points, id.

    FORGEFRONT_DOCUMENTS names the folder or manifest to be served. The cost is that without variables.
    """
    # Imported here, so that other commands do not load the whole schema.
    from forgefront.served_documents import built_in_documents
    from graph.documents import trusted_documents

    problems: tuple[str, ...] = ()
    if path is None:
        checked = built_in_documents()
    else:
        try:
            read = trusted_documents.read_documents(path)
        except OSError as error:
            fail(f"{path}: {error.strerror or error}")
        checked, problems = read.documents, read.problems
        if not checked and not problems:
            fail(f"{path}: there are no documents")
    if manifest:
        typer.echo(json.dumps(trusted_documents.make_manifest(checked), indent=2, ensure_ascii=False))
    elif as_json:
        keys = ("name", "kind", "points", "rows", "id")
        typer.echo(json.dumps([{key: getattr(one, key) for key in keys} | {"file": str(one.source)} for one in checked], indent=2))
    else:
        width = max((len(one.name or "") for one in checked), default=0)
        for one in checked:
            typer.echo(f"{one.name or '':{width}}  {one.kind:12}  {one.points:3}  {one.id}")
    for problem in problems:
        typer.echo(f"forgefront: {problem}", err=True)
    if problems:
        raise typer.Exit(EXIT_FAILED)
