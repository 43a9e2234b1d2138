"""The service in this process, called without a network."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness.load import LoadRequest
from forgefront import logs
from forgefront.app import App, create_app
from forgefront.config import Config


def discard_logs() -> None:
    """Writes the log to the null device for the rest of the process. Lines are rendered as in the server."""
    logs.configure("json", "info", Path(os.devnull).open("w"))  # noqa: SIM115 - the null device, until the process ends


@asynccontextmanager
async def service(folder: Path, url: str) -> AsyncIterator[App]:
    app = create_app(Config.load(data=folder, database_url=url, rate_limit=0))
    try:
        yield app
    finally:
        await app.stop()


async def call(app: Any, request: LoadRequest, number: int) -> int:
    """Sends one of the requests to an ASGI application; returns the status."""
    path, _, query = request.paths[number % len(request.paths)].partition("?")
    headers = [(name.lower().encode(), value.encode()) for name, value in request.headers.items()]
    body = (request.bodies[number % len(request.bodies)] if request.bodies else request.body or "").encode()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
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
