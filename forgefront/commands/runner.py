"""`forgefront runner`."""

import asyncio
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import orjson
import typer

from forgefront import logs
from forgefront.commands.command_context import fail
from forgefront.runner.build_execution import BuildOutcome
from forgefront.runner.build_runner import GRACE_SECONDS, BuildRunner
from forgefront.runner.forge_client import ClaimedBuild, ForgeClient, RequestRejected

UrlOption = Annotated[
    str, typer.Option("--url", help="The address of the service, such as http://localhost:8080.", envvar="FORGEFRONT_RUNNER_URL")
]
TokenOption = Annotated[
    str,
    typer.Option(
        "--token",
        help="The runner's token. Other users of this machine can read command lines, so prefer the environment variable.",
        envvar="FORGEFRONT_RUNNER_TOKEN",
        show_envvar=True,
    ),
]
ConcurrentOption = Annotated[int, typer.Option("--concurrent", help="Number of builds that run concurrently.", min=1, max=64)]
BuildsFolderOption = Annotated[Path, typer.Option("--builds-dir", help="The working folder.", file_okay=False)]
OnceOption = Annotated[bool, typer.Option("--once", help="Run one build, then exit: with 0 if it passed, else with 1.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print a line of JSON for each finished build; log in JSON too.")]
GraceOption = Annotated[float, typer.Option("--grace", help="Seconds that builds have to finish when the runner is stopped.", min=0)]
NameOption = Annotated[str, typer.Option("--name", help="The name of this runner.")]


def runner(
    url: UrlOption,
    token: TokenOption,
    concurrent: ConcurrentOption = 1,
    builds_dir: BuildsFolderOption = Path("builds"),
    once: OnceOption = False,
    as_json: JsonOption = False,
    grace: GraceOption = GRACE_SECONDS,
    name: NameOption = "",
) -> None:
    """Take builds from a service, and run them in a shell on this machine.

    The scripts come from the repositories, so everybody who may push to one runs commands here, as this user: use a dedicated user, in a
    container or a virtual machine. Ctrl-C lets builds finish, or returns them to the queue; a second Ctrl-C does not wait.
    """
    log_format: Literal["json", "text"] = "json" if as_json else "text"
    logs.configure(log_format, "info")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        fail("--url must be an address such as http://localhost:8080")

    def report(job: ClaimedBuild, outcome: BuildOutcome) -> None:
        if as_json:
            typer.echo(orjson.dumps({"build": job.build_id, "name": job.name, "ended": outcome.value}).decode())
        else:
            typer.echo(f"Build {job.build_id} ({job.name}): {outcome.value}")

    async def work() -> bool:
        service = ForgeClient(url, token, name=name)
        try:
            return await BuildRunner(service, token, builds_dir, max_concurrent=concurrent, grace=grace, on_build_end=report).run(
                only_one=once
            )
        finally:
            await service.close()

    try:
        passed = asyncio.run(work())
    except (RequestRejected, OSError) as error:
        fail(str(error))
    if once and not passed:
        raise typer.Exit(1)
