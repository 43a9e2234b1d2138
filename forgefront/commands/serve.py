"""`forgefront serve`."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forgefront.commands.command_context import EXIT_FAILED, DataOption, RepositoryOption, fail, load_config
from forgefront.config import Config
from forgefront.settings.config_error import ConfigError

if TYPE_CHECKING:
    # The server answers before these are imported, which takes most of the start.
    from forgefront.demo.demo_builder import Demo, ExistingDemo

READY_TEXT = "Forgefront is running at"
"""Precedes the address on standard output when the service is ready; scripts/release waits for it."""


def serve(
    data: DataOption = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="The port; 0 picks a free one.", show_default="8080")] = None,
    external_url: Annotated[
        str | None, typer.Option(help="The address that clients use, for links.", show_default="from host and port")
    ] = None,
    ssh_port: Annotated[int | None, typer.Option(help="The port for git over SSH; 0 picks a free one.", show_default="no SSH")] = None,
    with_demo: Annotated[bool, typer.Option("--demo", help="Fill an empty data folder with the demo first.")] = False,
    repository: RepositoryOption = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C: GraphQL at /graphql, REST v3 at /api/v3.

    Migrates the database first. Everything else is configured by FORGEFRONT_* variables and by forgefront.toml in the data folder.
    """
    config = load_config(data, host=host, port=port, external_url=external_url, ssh_port=ssh_port)
    created, existing = _prepare_demo(config, repository) if with_demo else (None, None)
    from forgefront.server import http_server

    try:
        http_server.run(config, on_ready=_create_greeting(created, existing))
    except ConfigError as error:
        fail("\n".join(error.problems), EXIT_FAILED)


def _prepare_demo(config: Config, repository: Path | None) -> "tuple[Demo | None, ExistingDemo | None]":
    """Fills an empty folder; returns what it has created, or what an earlier run has."""
    from forgefront.commands import demo as demo_command

    if not _can_fill_folder(config):
        return None, demo_command.find_existing_demo(config)
    source, reason = demo_command.find_source(repository)
    if reason:
        typer.echo(f"{reason}; the demo's project is empty. To show a history: --repository PATH, with a new --data.", err=True)
    return demo_command.fill_folder(config, source), None


def _can_fill_folder(config: Config) -> bool:
    from forgefront.data_folder.data_folder_claim import is_fillable

    try:
        return is_fillable(config)
    except OSError as error:
        fail(f"the data folder cannot be used: {error}")


def _create_greeting(created: "Demo | None", existing: "ExistingDemo | None") -> Callable[[Config], None]:
    def greet(config: Config) -> None:
        base = config.base_url
        lines = [
            f"{READY_TEXT} {base}",
            f"  pages     {base}/  (open it in a browser, and sign in with a token)",
            f"  GraphQL   {base}/graphql  (editor at {base}/-/graphiql, reference at {base}/-/reference)",
            f"  REST v3   {base}/api/v3  (reference at {base}/api/v3/docs)",
            *_format_ssh_lines(config),
            f"  data      {config.data}",
        ]
        show = f"{_program_name()} admin token show dev --data {_quote(config.data)}"
        if created is not None:
            width = max(map(len, created.accounts))
            lines += ["", f"Accounts, with their tokens (the password of all accounts is {created.password}):"]
            lines += [f"  {name:{width}}  {account.token}  {account.role}" for name, account in created.accounts.items()]
            lines += ["", "Three commands to try:", *_example_commands(base, created.accounts["dev"].token, created.project_id)]
            lines += ["A runner for the builds of demo/pipeline:"]
            lines += [f"  FORGEFRONT_RUNNER_TOKEN={created.runner_token} {_program_name()} runner --url {base}"]
        elif existing is not None:
            token = f"$({show})"
            lines += ["", f"The data are from an earlier run. To print a token: {show}", "", "Three commands to try:"]
            lines += _example_commands(base, token, existing.project_id)
            lines += ["A runner for the builds of demo/pipeline, with the token that the first command prints:"]
            lines += [_graphql_command(base, token, '{ project(path: "demo/pipeline") { runners(first: 1) { nodes { token } } } }')]
            lines += [f"  FORGEFRONT_RUNNER_TOKEN=TOKEN {_program_name()} runner --url {base}"]
        elif not _has_administrator(config):
            lines += ["", "There is no administrator yet. To create the first account:"]
            lines += [f"  {_program_name()} admin user create NAME --email ADDRESS --admin --data {_quote(config.data)}"]
            lines += ["To serve a demo instead, in its own folder:", f"  {_program_name()} demo --data FOLDER"]
        lines += ["", "Ctrl-C stops it."]
        typer.echo("\n".join(lines))
        sys.stdout.flush()

    return greet


def _format_ssh_lines(config: Config) -> list[str]:
    if config.ssh_port is None:
        return []
    from forgefront.ssh import host_keys

    fingerprints = [host_keys.fingerprint(key) for key in host_keys.load_host_keys(config.data, config.ssh_host_keys)]
    return [f"  SSH       {config.ssh_prefix}NAMESPACE/PROJECT.git  (host key {', '.join(fingerprints)})"]


def _has_administrator(config: Config) -> bool:
    """Reads the database in a thread of its own, since the server's event loop runs in this one. True if the database cannot be reached."""
    from storage import integrity
    from storage.database.engine import Database

    async def query() -> bool:
        database = Database(config.database_url, pool_size=1)
        try:
            return await integrity.has_administrator(database)
        finally:
            await database.close()

    with ThreadPoolExecutor(1) as threads:
        try:
            return threads.submit(asyncio.run, query()).result()
        except Exception:
            return True


def _example_commands(base: str, token: str, project_id: int) -> list[str]:
    curl = _curl(token)
    query = f'{{ project(path: "{project_id}") {{ fullPath issues(first: 3) {{ totalCount nodes {{ iid title }} }} }} }}'
    return [
        f'{curl} "{base}/api/v3/projects/{project_id}/issues?state=opened&per_page=3"',
        f'{curl} "{base}/api/v3/projects/{project_id}/repository/commits?per_page=3"',
        _graphql_command(base, token, query),
    ]


def _graphql_command(base: str, token: str, query: str) -> str:
    return f"{_curl(token)} -H 'Content-Type: application/json' {base}/graphql -d '{json.dumps({'query': query})}'"


def _curl(token: str) -> str:
    return f'  curl -s -H "PRIVATE-TOKEN: {token}"'


def _program_name() -> str:
    """The name of this program, as it can be called again from the same folder."""
    called = Path(sys.argv[0])
    return _quote(called) if os.sep in sys.argv[0] else called.name


def _quote(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))
