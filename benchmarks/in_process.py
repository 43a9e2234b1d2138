"""The service in this process, asked without a network."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.load import Ask
from forgefront import logs
from forgefront.app import App, build
from forgefront.config import Config
from tests.statements import Statements


def lose_the_logs() -> None:
    """For the rest of the process: as in the server, the lines are made and written; nobody reads them."""
    logs.configure("json", "info", Path(os.devnull).open("w"))  # noqa: SIM115 - the null device, until the process ends


@asynccontextmanager
async def service(folder: Path, url: str) -> AsyncIterator[App]:
    app = build(Config.load(data=folder, database_url=url, rate_limit=0))
    try:
        yield app
    finally:
        await app.stop()


async def call(app: Any, ask: Ask, number: int) -> int:
    """Sends one of the questions to an ASGI application; gives the status."""
    path, _, query = ask.paths[number % len(ask.paths)].partition("?")
    headers = [(name.lower().encode(), value.encode()) for name, value in ask.headers.items()]
    body = (ask.bodies[number % len(ask.bodies)] if ask.bodies else ask.body or "").encode()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": ask.method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [*headers, (b"content-length", str(len(body)).encode())],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
    status = 0

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)

    await app(scope, receive, send)
    return status


async def statements_of(app: App, asks: Mapping[str, Ask]) -> dict[str, int]:
    """How many SQL statements each of these questions takes, when it is not the first of its kind."""
    found = {}
    for name, ask in asks.items():
        assert await call(app, ask, 0) == ask.status
        with Statements(app.database.engine.sync_engine).counted() as seen:
            await call(app, ask, 0)
        found[name] = len(seen)
    return found
