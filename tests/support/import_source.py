"""An instance that is imported, served on a port, and the import of it in this process."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from forgefront.app import create_app
from forgefront.backend import Backend
from forgefront.commands.instance_import import run_import
from forgefront.config import Config
from forgefront.importing.import_report import ImportReport
from forgefront.importing.import_run import ImportOptions, ImportProgress
from forgefront.importing.source_client import SourceClient
from forgefront.importing.source_instance import open_source
from storage import tables
from storage.git.repository import Repository
from tests.make import DataFactory

Answer = tuple[int, bytes, list[tuple[bytes, bytes]]]
Sabotage = Callable[[str, dict[str, list[str]]], Answer | None]
"""What a hostile source answers to a path with these parameters; None lets the real one answer."""


class SourceApp:
    """The application of the source: `sudo` as servers of that time know it, and answers that are replaced."""

    def __init__(self, app: ASGIApp, tokens: dict[int, str] | None = None, sabotage: Sabotage | None = None) -> None:
        self.app = app
        self.tokens = tokens or {}
        self.sabotage = sabotage
        self.paths: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["raw_path"].decode()
        self.paths.append(path)
        query = parse_qs(scope["query_string"].decode())
        if self.sabotage is not None and (answer := self.sabotage(path, query)) is not None:
            status, body, headers = answer
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json"), *headers]})
            await send({"type": "http.response.body", "body": body})
            return
        if path == "/api/v3/user" and (token := self.tokens.get(int(query.get("sudo", ["0"])[0]))):
            headers = [(name, value) for name, value in scope["headers"] if name != b"private-token"]
            scope = {**scope, "headers": [*headers, (b"private-token", token.encode())], "query_string": b""}
        await self.app(scope, receive, send)


@asynccontextmanager
async def serve_app(app: ASGIApp, listening: socket.socket | None = None) -> AsyncIterator[str]:
    """Serves an application in this process; gives its address."""
    listening = listening or socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
        listening.close()


@asynccontextmanager
async def serve_source(
    config: Config, *, tokens: dict[int, str] | None = None, sabotage: Sabotage | None = None
) -> AsyncIterator[tuple[str, SourceApp]]:
    """Serves the instance of a configuration."""
    app = create_app(config)
    await app.start()
    source = SourceApp(app, tokens, sabotage)
    try:
        async with serve_app(source) as address:
            yield address, source
    finally:
        await app.stop()


def head_of(make: DataFactory, project: tables.Project) -> str:
    """The newest commit of the project's default branch."""
    branches = Repository.open(make.services.repositories.path_of(project.id)).branches()
    return next(branch.oid for branch in branches if branch.name == project.default_branch)


@asynccontextmanager
async def open_backend(config: Config) -> AsyncIterator[Backend]:
    backend = Backend(config)
    await backend.start()
    try:
        yield backend
    finally:
        await backend.stop()


async def import_from(
    address: str,
    token: str,
    backend: Backend,
    *,
    parallel: int = 4,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    **options: Any,
) -> ImportReport:
    """A run of an import into a started backend."""
    client = SourceClient(address, token, 10_000, parallel, sleep=sleep)
    report = ImportReport(address, keeps_ids=options.get("keeps_ids", False))
    try:
        source = await open_source(client)
        report.api = str(source.api)
        progress = ImportProgress(lambda *_: None, is_terminal=False)
        await run_import(backend, source, ImportOptions(**options), report, progress, clones=2)
    finally:
        await client.aclose()
        report.requests = client.requests
    return report
