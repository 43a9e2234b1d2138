"""`forgefront runner`."""

import asyncio
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import orjson
import typer

from forgefront import logs
from forgefront.commands.operating import fail
from forgefront.runner.loop import GRACE_SECONDS, Runner
from forgefront.runner.service import Job, Refused, Service
from forgefront.runner.work import Ended

Url = Annotated[str, typer.Option("--url", help="The address of the service, as http://localhost:8080.", envvar="FORGEFRONT_RUNNER_URL")]
Token = Annotated[
    str,
    typer.Option(
        "--token",
        help="The runner's token. Others on this machine see what stands on a command line, so better set the variable.",
        envvar="FORGEFRONT_RUNNER_TOKEN",
        show_envvar=True,
    ),
]
Concurrent = Annotated[int, typer.Option("--concurrent", help="How many builds run side by side.", min=1, max=64)]
Builds = Annotated[Path, typer.Option("--builds-dir", help="The folder to work in.", file_okay=False)]
Once = Annotated[bool, typer.Option("--once", help="Run one build, then end: with 0 when it passed, else with 1.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print a line of JSON for each build that ended; log in JSON too.")]
Grace = Annotated[float, typer.Option("--grace", help="Seconds that builds get to end when the runner is told to stop.", min=0)]
Name = Annotated[str, typer.Option("--name", help="What the runner calls itself.")]


def runner(
    url: Url,
    token: Token,
    concurrent: Concurrent = 1,
    builds_dir: Builds = Path("builds"),
    once: Once = False,
    as_json: AsJson = False,
    grace: Grace = GRACE_SECONDS,
    name: Name = "",
) -> None:
    """Take builds from a service, and run them in a shell on this machine.

    The scripts come from the repositories, so everybody who may push to one runs commands here, as this user: run it as a user of its own,
    in a container or a virtual machine. Ctrl-C lets builds end, or gives them back; a second one does not wait.
    """
    form: Literal["json", "text"] = "json" if as_json else "text"
    logs.configure(form, "info")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        fail("--url must be an address such as http://localhost:8080")

    def told(job: Job, ended: Ended) -> None:
        if as_json:
            typer.echo(orjson.dumps({"build": job.build_id, "name": job.name, "ended": ended.value}).decode())
        else:
            typer.echo(f"Build {job.build_id} ({job.name}): {ended.value}")

    async def work() -> bool:
        service = Service(url, token, name=name)
        try:
            return await Runner(service, token, builds_dir, at_once=concurrent, grace=grace, told=told).run(once=once)
        finally:
            await service.close()

    try:
        passed = asyncio.run(work())
    except (Refused, OSError) as error:
        fail(str(error))
    if once and not passed:
        raise typer.Exit(1)
