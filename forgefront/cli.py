"""The command line: `forgefront serve`, `dump`, `restore`, `admin …` and the others of `forgefront --help`."""

from importlib.metadata import version
from typing import Annotated

import typer

from forgefront.commands import (
    check,
    client,
    demo,
    directory,
    documents,
    dump,
    explain,
    groups,
    instance_import,
    members,
    projects,
    restore,
    runner,
    schema,
    serve,
    shadow,
    tokens,
    translate,
    users,
)

main = typer.Typer(
    name="forgefront",
    no_args_is_help=True,
    # A traceback with the values of all variables would show secrets.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A self-hosted forge. Exit codes: 0 success, 1 refused or failed, 2 wrong usage or configuration.",
)

admin = typer.Typer(no_args_is_help=True, help="Administer users, tokens, groups, projects and members. May run beside the service.")
for name, noun in (("user", users), ("token", tokens), ("group", groups), ("project", projects), ("member", members)):
    admin.add_typer(noun.app, name=name)

main.command("serve")(serve.serve)
main.command("demo")(demo.demo)
main.add_typer(admin, name="admin")
main.command("runner")(runner.runner)
main.command("shadow")(shadow.shadow)
main.command("check")(check.check)
main.add_typer(directory.app, name="directory")
main.command("dump")(dump.dump)
main.command("restore")(restore.restore)
main.command("import")(instance_import.import_instance)
main.command("schema")(schema.schema)
main.command("client")(client.client)
main.command("translate")(translate.translate)
main.command("explain")(explain.explain)
main.command("documents")(documents.documents)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"forgefront {version('forgefront')}")
        raise typer.Exit


@main.callback()
def options(
    shown: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Parses the options that precede the command."""


if __name__ == "__main__":
    main()
