"""`forgefront serve`."""

import asyncio
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer

from forgefront import demo
from forgefront.commands import demo as demo_command
from forgefront.commands.operating import FAILED, Data, config_of, fail
from forgefront.config import Config, ConfigError
from forgefront.demo import Demo
from forgefront.demo_folder import can_fill
from storage import soundness
from storage.database import Database


def serve(
    data: Data = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on.  [default: 127.0.0.1]", show_default=False)] = None,
    port: Annotated[int | None, typer.Option(help="The port; 0 takes a free one.  [default: 8080]", show_default=False)] = None,
    external_url: Annotated[
        str | None, typer.Option(help="The address that clients use, for links.  [default: of host and port]", show_default=False)
    ] = None,
    ssh_port: Annotated[
        int | None, typer.Option(help="The port for git over SSH; 0 takes a free one.  [default: no SSH]", show_default=False)
    ] = None,
    with_demo: Annotated[bool, typer.Option("--demo", help="Fill an empty data folder with the demo first.")] = False,
    repository: demo_command.Repository = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C: GraphQL at /graphql, REST v3 at /api/v3.

    Brings the database up to date first. Everything else is configured by FORGEFRONT_* and by forgefront.toml in the data folder.
    """
    config = config_of(data, host=host, port=port, external_url=external_url, ssh_port=ssh_port)
    filled: Demo | None = None
    kept: demo.Kept | None = None
    if with_demo and _can_fill(config):
        source, why_not = demo_command.source_of(repository)
        if why_not:
            typer.echo(f"{why_not}; the demo's project is empty. To see a history: --repository PATH, with a new --data.", err=True)
        filled = demo_command.fill(config, source)
    elif with_demo:
        kept = demo_command.kept(config)
    from forgefront import server

    try:
        server.run(config, on_ready=_greeting(filled, kept))
    except ConfigError as error:
        fail("\n".join(error.problems), FAILED)


def _can_fill(config: Config) -> bool:
    try:
        return can_fill(config)
    except OSError as error:
        fail(f"the data folder cannot be used: {error}")


def _greeting(filled: Demo | None, kept: demo.Kept | None) -> Callable[[Config], None]:
    def greet(config: Config) -> None:
        base = config.base_url
        lines = [
            f"Forgefront answers at {base}",
            f"  pages     {base}/  (open it in a browser, and sign in with a token)",
            f"  GraphQL   {base}/graphql  (to try out at {base}/-/graphiql, described at {base}/-/reference)",
            f"  REST v3   {base}/api/v3  (described at {base}/api/v3/docs)",
            *_ssh_lines(config),
            f"  data      {config.data}",
        ]
        show = f"{_program()} admin token show dev --data {_quoted(config.data)}"
        if filled is not None:
            width = max(map(len, filled.accounts))
            lines += ["", f"Accounts, with their tokens (all of them sign in with the password {filled.password}):"]
            lines += [f"  {name:{width}}  {account.token}  {account.role}" for name, account in filled.accounts.items()]
            lines += ["", "Three commands to try:", *_commands(base, filled.accounts["dev"].token, filled.project_id)]
            lines += ["A runner that builds what is pushed to demo/pipeline:"]
            lines += [f"  FORGEFRONT_RUNNER_TOKEN={filled.runner_token} {_program()} runner --url {base}"]
        elif kept is not None:
            lines += ["", f"The data are kept. The tokens: {show}", "", "Three commands to try:"]
            lines += _commands(base, f"$({show})", kept.project_id)
        elif not _has_administrator(config):
            lines += ["", "Nobody administers it yet. To open the first account:"]
            lines += [f"  {_program()} admin user create NAME --email ADDRESS --admin --data {_quoted(config.data)}"]
            lines += ["To look at a demo instead, which takes a folder of its own:", f"  {_program()} demo --data FOLDER"]
        lines += ["", "Ctrl-C stops it."]
        typer.echo("\n".join(lines))
        sys.stdout.flush()

    return greet


def _ssh_lines(config: Config) -> list[str]:
    if config.ssh_port is None:
        return []
    from forgefront import ssh_host_keys

    shown = [ssh_host_keys.fingerprint(key) for key in ssh_host_keys.load(config.data, config.ssh_host_keys)]
    return [f"  SSH       {config.ssh_prefix}NAMESPACE/PROJECT.git  (host key {', '.join(shown)})"]


def _has_administrator(config: Config) -> bool:
    """Asked of the database on a thread of its own, since the server's loop runs in this one. True where it does not answer."""

    async def ask() -> bool:
        database = Database(config.database_url, pool_size=1)
        try:
            return await soundness.has_administrator(database)
        finally:
            await database.close()

    with ThreadPoolExecutor(1) as threads:
        try:
            return threads.submit(asyncio.run, ask()).result()
        except Exception:
            return True


def _commands(base: str, token: str, project_id: int) -> list[str]:
    header = f'-H "PRIVATE-TOKEN: {token}"'
    query = f'{{"query": "{{ project(path: \\"{project_id}\\") {{ fullPath issues(first: 3) {{ totalCount nodes {{ iid title }} }} }} }}"}}'
    return [
        f'  curl -s {header} "{base}/api/v3/projects/{project_id}/issues?state=opened&per_page=3"',
        f'  curl -s {header} "{base}/api/v3/projects/{project_id}/repository/commits?per_page=3"',
        f"  curl -s {header} -H 'Content-Type: application/json' {base}/graphql -d '{query}'",
    ]


def _program() -> str:
    """How this program was called, as it can be called again from the same place."""
    called = Path(sys.argv[0])
    return _quoted(called) if os.sep in sys.argv[0] else called.name


def _quoted(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))
