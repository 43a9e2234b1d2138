"""`forgefront admin token`."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from forgefront.commands.command_context import EXIT_USAGE, DataOption, JsonOption, fail, run_with_client
from forgefront.commands.output import print_result
from forgefront.local_client import LocalClient
from storage.tables import TokenScope

OPERATIONS_FILE = Path(__file__).with_name("users.graphql")
COLUMNS = ("id", "name", "scopes", "expires_at", "last_used_at")

app = typer.Typer(
    no_args_is_help=True,
    help="Manage the private token of a user, which has every right, and access tokens, which have scopes and may expire.",
)

UsernameArgument = Annotated[str, typer.Argument(help="The username.")]


@app.command("show")
def show_token(username: UsernameArgument, data: DataOption = None, as_json: JsonOption = False) -> None:
    """Print a user's private token."""
    _print_token(run_with_client(data, OPERATIONS_FILE, lambda forge: forge.run("Token", by=username)), as_json)


@app.command("list")
def list_tokens(username: UsernameArgument, data: DataOption = None, as_json: JsonOption = False) -> None:
    """List a user's access tokens, newest first."""

    async def work(forge: LocalClient) -> list[Any]:
        return await forge.list_all("AccessTokens", "access_tokens", username=username)

    found = run_with_client(data, OPERATIONS_FILE, work)
    print_result([{**token, "scopes": [scope.lower() for scope in token["scopes"]]} for token in found], as_json, COLUMNS)


@app.command("create")
def create_token(
    username: UsernameArgument,
    name: Annotated[str | None, typer.Option(help="Create an access token with this name.", show_default=False)] = None,
    scopes: Annotated[
        list[TokenScope] | None, typer.Option("--scope", help="What the access token may do; may be repeated.", show_default=False)
    ] = None,
    expires_at: Annotated[
        datetime | None,
        typer.Option(
            "--expires-at",
            help="When the access token becomes invalid, UTC.",
            formats=["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d"],
            show_default=False,
        ),
    ] = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create and print a token. Without --name it is a new private token, and the old one becomes invalid."""
    if name is None:
        if scopes or expires_at is not None:
            fail("--scope and --expires-at belong to access tokens, which need a --name", EXIT_USAGE)
        _reset_private_token(username, data, as_json)
        return

    async def work(forge: LocalClient) -> str:
        expiry = expires_at.replace(tzinfo=UTC).isoformat() if expires_at is not None else None
        names = [scope.name for scope in scopes or ()]
        created: str = await forge.run("CreateAccessToken", by=username, token_name=name, scopes=names, expires_at=expiry)
        return created

    _print_token({"username": username, "token": run_with_client(data, OPERATIONS_FILE, work)}, as_json)


@app.command("revoke")
def revoke_token(
    username: UsernameArgument,
    token_id: Annotated[int, typer.Argument(help="The id of the access token, as `list` shows it.")],
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete an access token, which becomes invalid."""

    async def work(forge: LocalClient) -> Any:
        user = await forge.run("User", username=username)
        return await forge.run("RevokeAccessToken", user_id=user["id"], id=token_id)

    print_result(run_with_client(data, OPERATIONS_FILE, work), as_json)


def _reset_private_token(username: str, data: Path | None, as_json: bool) -> None:
    async def work(forge: LocalClient) -> dict[str, str | None]:
        user = await forge.run("User", username=username)
        await forge.run("ResetPrivateToken", id=user["id"])
        created: dict[str, str | None] = await forge.run("Token", by=username)
        return created

    _print_token(run_with_client(data, OPERATIONS_FILE, work), as_json)


def _print_token(found: dict[str, str | None], as_json: bool) -> None:
    if found["token"] is None:
        fail(
            "the token cannot be shown, since the key that it was encrypted with is lost;"
            " create a new one with `forgefront admin token create USERNAME`"
        )
    # The bare token, for $(forgefront admin token show NAME).
    print_result(found if as_json else found["token"], as_json)
