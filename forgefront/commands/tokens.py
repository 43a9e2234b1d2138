"""`forgefront admin token`."""

from pathlib import Path
from typing import Annotated

import typer

from forgefront.commands.operating import Data, Json, operate
from forgefront.commands.printing import show
from forgefront.operator import Forge

DOCUMENT = Path(__file__).with_name("users.graphql")

app = typer.Typer(no_args_is_help=True, help="Private tokens: what speaks for a user in every call.")

Username = Annotated[str, typer.Argument(help="Whose token.")]


@app.command("show")
def show_token(username: Username, data: Data = None, as_json: Json = False) -> None:
    """Print a user's private token."""
    _show(operate(data, DOCUMENT, lambda forge: forge.run("Token", by=username)), as_json)


@app.command("create")
def create_token(username: Username, data: Data = None, as_json: Json = False) -> None:
    """Make and print a new private token; the old one is worthless from now on."""

    async def work(forge: Forge) -> dict[str, str]:
        user = await forge.run("User", username=username)
        await forge.run("ResetPrivateToken", id=user["id"])
        made: dict[str, str] = await forge.run("Token", by=username)
        return made

    _show(operate(data, DOCUMENT, work), as_json)


def _show(found: dict[str, str], as_json: bool) -> None:
    # The bare token, so that $(forgefront admin token show NAME) is one.
    show(found if as_json else found["token"], as_json)
