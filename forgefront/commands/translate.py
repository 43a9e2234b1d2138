"""`forgefront translate`."""

import asyncio
import shlex
from functools import cache
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from forgefront.commands.command_context import EXIT_FAILED, EXIT_USAGE, JsonOption, fail
from forgefront.commands.output import print_result

if TYPE_CHECKING:
    from rest_v3.translation import Translator, UnknownCallError

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")

CallArgument = Annotated[
    str,
    typer.Argument(
        metavar="CALL", help="The method and the path below /api/v3, with its query string, or a whole URL.", show_default=False
    ),
]
DataOption = Annotated[
    list[str] | None,
    typer.Option(
        "-d", "--data", metavar="NAME=VALUE", help="A parameter of the body, as curl sends it; or one JSON object.", show_default=False
    ),
]
CurlOption = Annotated[bool, typer.Option("--curl", help="Print an equivalent curl command for /graphql; it reads the token from $TOKEN.")]
UrlOption = Annotated[str, typer.Option("--url", envvar="FORGEFRONT_EXTERNAL_URL", help="The address in the curl command.")]
ProfileOption = Annotated[str, typer.Option("--profile", envvar="FORGEFRONT_V3_PROFILE", help="The v3 profile.")]


def translate(
    call: CallArgument,
    sent: DataOption = None,
    as_json: JsonOption = False,
    curl: CurlOption = False,
    url: UrlOption = "http://127.0.0.1:8080",
    profile: ProfileOption = "document",
) -> None:
    """Print the GraphQL operation that answers a v3 call, and its variables.

    The call goes through the routes of the v3 layer itself, so this is what
    the service runs for it; neither a server nor a database is needed.

        forgefront translate 'GET /projects/3/builds?scope=failed'

        forgefront translate 'PUT /projects/3/issues/41' -d state_event=close

        forgefront translate 'GET /projects/3/issues' --curl | sh

    Notes follow if the endpoint does more than run one operation. The exit
    code is 1 if no route matches the call, and if v3 rejects its parameters;
    then the status and the body of the response are printed.
    """
    # Imported here, so that other commands do not load the whole schema.
    from rest_v3.profiles import UnknownProfileError
    from rest_v3.translation import RejectedCallError, UnknownCallError

    method, path = parse_call(call)
    if sent and method.upper() in ("GET", "HEAD"):
        fail(f"{method} sends no body: put the parameters after the path, as in '?scope=failed'", EXIT_USAGE)
    try:
        translation = asyncio.run(create_translator(profile).translate(method, path, "&".join(sent or ())))
    except UnknownProfileError as error:
        fail(str(error), EXIT_USAGE)
    except UnknownCallError as error:
        if as_json:
            print_result({"error": str(error), "nearest": list(error.suggestions)}, True)
            raise typer.Exit(EXIT_FAILED) from None
        fail(describe_unknown_call(error))
    except RejectedCallError as error:
        if as_json:
            print_result({"status": error.status, "body": error.body}, True)
            raise typer.Exit(EXIT_FAILED) from None
        fail(f"v3 responds with {error}")
    if curl:
        if not translation.can_run_as_graphql:
            fail(f"{translation.call} takes a file, which /graphql does not: call v3")
        body = orjson.dumps({"query": translation.query, "variables": translation.variables}).decode()
        headers = "-H \"PRIVATE-TOKEN: $TOKEN\" -H 'Content-Type: application/json'"
        typer.echo(f"curl {headers} {shlex.quote(url.rstrip('/') + '/graphql')} -d {shlex.quote(body)}")
    elif as_json:
        translated = {
            "call": translation.call,
            "operation": translation.operation,
            "query": translation.query,
            "variables": translation.variables,
        }
        print_result({**translated, "notes": translation.notes}, True)
    else:
        variables = orjson.dumps(translation.variables, option=orjson.OPT_INDENT_2).decode()
        typer.echo(f"# {translation.call}\n{translation.query}\n\n# Variables\n{variables}")
        for note in translation.notes:
            typer.echo(f"# {note}")


def parse_call(call: str) -> tuple[str, str]:
    """The method and the path; ends the command if `call` is not both."""
    method, _, path = call.strip().partition(" ")
    if method.upper() not in METHODS or not path.strip() or not path.isprintable():
        fail(f"{call!r} is not a call: write the method and the path, as in 'GET /projects/3/builds'", EXIT_USAGE)
    return method, path.strip()


def describe_unknown_call(error: "UnknownCallError") -> str:
    return "\n".join((f"{error}; the most similar routes are", *(f"  {suggestion}" for suggestion in error.suggestions)))


@cache
def create_translator(profile: str) -> "Translator":
    """Raises UnknownProfileError."""
    from rest_v3.translation import Translator

    return Translator(profile)
