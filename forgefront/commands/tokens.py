"""`forgefront admin token`."""

from pathlib import Path
from typing import Annotated

import typer

from forgefront.commands.command_context import DataOption, JsonOption, fail, run_with_client
from forgefront.commands.output import print_result
from forgefront.local_client import LocalClient

OPERATIONS_FILE = Path(__file__).with_name("users.graphql")

app = typer.Typer(no_args_is_help=True, help="Manage private tokens, which authenticate a user in every request.")

UsernameArgument = Annotated[str, typer.Argument(help="The username.")]


@app.command("show")
def show_token(username: UsernameArgument, data: DataOption = None, as_json: JsonOption = False) -> None:
    """Print a user's private token."""
    _print_token(run_with_client(data, OPERATIONS_FILE, lambda forge: forge.run("Token", by=username)), as_json)


@app.command("create")
def create_token(username: UsernameArgument, data: DataOption = None, as_json: JsonOption = False) -> None:
    """Create and print a new private token; the old one becomes invalid."""

    async def work(forge: LocalClient) -> dict[str, str | None]:
        user = await forge.run("User", username=username)
        await forge.run("ResetPrivateToken", id=user["id"])
        created: dict[str, str | None] = await forge.run("Token", by=username)
        return created

    _print_token(run_with_client(data, OPERATIONS_FILE, work), as_json)


def _print_token(found: dict[str, str | None], as_json: bool) -> None:
    if found["token"] is None:
        fail("the token cannot be shown, since the key that it was encrypted with is lost; create a new one: forgefront admin token create")
    # The bare token, for $(forgefront admin token show NAME).
    print_result(found if as_json else found["token"], as_json)
