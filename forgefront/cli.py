"""The command line: `forgefront serve`, `dump`, `restore`, `admin …` and the others of `forgefront --help`."""

import errno
import gc
import os
import sys
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

COMMANDS = {
    "serve": ("serve:serve", "Serve until SIGTERM or Ctrl-C: GraphQL at /graphql, REST v3 at /api/v3."),
    "demo": ("demo:demo", "Fill an empty data folder with a demo, built from a real repository."),
    "admin": ("admin:app", "Administer users, tokens, groups, projects and members, beside the running service, and the secret key."),
    "runner": ("runner:app", "Take builds from services, and run their scripts on this machine."),
    "shadow": ("shadow:shadow", "Answer from one server, and compare its answers with those of another."),
    "check": ("check:check", "Check the data folder, the database and the repositories, and report how to repair what is wrong."),
    "analytics": ("analytics:app", "Administer the columnar copy that answers statistics."),
    "directory": ("directory:app", "Check sign-in with an LDAP directory or an OpenID provider."),
    "dump": ("dump:dump", "Dump the whole instance into one tar file: the database, repositories, artifacts, traces and uploads."),
    "restore": ("restore:restore", "Restore a dump into an empty data folder and an empty database, and check the result."),
    "import": (
        "instance_import:import_instance",
        "Import an instance through its REST interface, v3 or v4, and its repositories through git.",
    ),
    "schema": ("schema:schema", "Print the GraphQL schema, as in schema.graphql."),
    "client": ("client:client", "Print a typed Python client for the operations in a folder."),
    "translate": ("translate:translate", "Print the GraphQL operation that answers a v3 call, and its variables."),
    "explain": ("explain:explain", "Print the plan of an operation: its nodes, the SQL of each, and why resolvers compute fields."),
    "documents": ("documents:documents", "Check trusted documents against the schema, and list them: name, kind, cost in points, id."),
}
"""Module and attribute of each command in `forgefront.commands`, and the first sentence of its help."""


def _open_closed_streams() -> None:
    """Opens /dev/null for each standard stream that the caller closed: libraries write to them, and a file that got the number 2 would get
    their messages."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


class CommandGroup(TyperGroup):
    """The group of all commands. A command whose output cannot be written because the disk is full ends with a message."""

    def main(self, *args: Any, **settings: Any) -> Any:
        _open_closed_streams()
        try:
            return super().main(*args, **settings)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            typer.echo(f"forgefront: {error.filename or 'the output'} cannot be written: {error.strerror}", err=True)
            raise SystemExit(1) from None


main = typer.Typer(
    name="forgefront",
    cls=CommandGroup,
    no_args_is_help=True,
    # A traceback with the values of all variables would show secrets.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A self-hosted forge. Exit codes: 0 success, 1 refused or failed, 2 wrong usage or configuration, 3 done, but an import"
    " left something behind or a dump lacks what was missing or damaged, 130 interrupted, 143 terminated.",
)


class LazyCommand(TyperCommand):
    """A command, or a group of them, whose module is imported when it is called: most import the whole service, which takes seconds."""

    def load(self) -> Any:
        module, attribute = COMMANDS[self.name or ""][0].split(":")
        # Next to nothing that is loaded is garbage; collections would be a tenth of the time, and so would a first one after it.
        gc.disable()
        loaded = getattr(import_module(f"forgefront.commands.{module}"), attribute)
        gc.freeze()
        gc.enable()
        if not isinstance(loaded, typer.Typer):
            function, loaded = loaded, typer.Typer(add_completion=False)
            loaded.command(self.name)(function)
        return typer.main.get_command(loaded)

    def make_context(self, *args: Any, **settings: Any) -> Any:
        return self.load().make_context(*args, **settings)


for name, (_, summary) in COMMANDS.items():
    main.command(name, cls=LazyCommand, help=summary)(lambda: None)


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
