"""A server in its own process with an app for tests; run with `python -m`."""

import asyncio
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from forgefront.config import Config
from forgefront.server import http_server, worker_processes
from forgefront.server.metrics import Metrics
from forgefront.server.middleware import RequestMiddleware
from forgefront.settings.config_error import ConfigError
from graph.operations.disconnects import wait_disconnected
from storage.database.errors import is_unavailable


def build_app(config: Config) -> ASGIApp:
    """An app with the ways to be slow that the tests need."""
    if gate := os.environ.get("SERVING_GATE"):
        # A FIFO: this thread waits until the test writes to it.
        Path(gate).read_bytes()
    if os.environ.get("SERVING_FAILS") == "build":
        raise ConfigError(["as asked"])
    metrics = Metrics()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            if os.environ.get("SERVING_FAILS"):
                await send({"type": "lifespan.startup.failed", "message": "as asked"})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        if scope["type"] == "websocket":
            await serve_websocket(receive, send)
            return
        request = Request(scope, receive)
        path = request.url.path
        scope["state"]["route"] = path
        response: Response
        if path == "/sleep":
            await asyncio.sleep(float(request.query_params["seconds"]))
            response = PlainTextResponse("slept")
        elif path == "/hang":
            await asyncio.to_thread(time.sleep, 60)
            response = PlainTextResponse("never")
        elif path == "/body":
            response = JSONResponse({"length": len(await request.body())})
        elif path == "/fields":
            await request.body()
            response = JSONResponse({"names": [name.decode() for name, _ in scope["headers"]]})
        elif path == "/wait":
            await wait_disconnected(receive)
            raise ClientDisconnect
        elif path == "/ignore":
            response = PlainTextResponse("did not read", 413)
        elif path == "/large":
            response = StreamingResponse(b"x" * 65536 for _ in range(1000))
        elif path == "/doubled":
            own = {"X-Request-Id": scope["state"]["request_id"], "X-Content-Type-Options": "nosniff"}
            response = PlainTextResponse("x", headers=own)
        elif path == "/fail":
            raise ValueError(f"failed with private_token={request.query_params.get('private_token')}")
        elif path == "/exit":
            os._exit(7)
        elif path == "/metrics":
            await metrics(scope, receive, send)
            return
        else:
            response = JSONResponse({"process": os.getpid(), "url": config.base_url, "client": scope["client"][0]})
        await response(scope, receive, send)

    with_middleware = RequestMiddleware(app, metrics, is_unavailable)

    async def asgi(scope: Scope, receive: Receive, send: Send) -> None:
        await (app if scope["type"] == "lifespan" else with_middleware)(scope, receive, send)

    return asgi


async def serve_websocket(receive: Receive, send: Send) -> None:
    """Answers each message with its length, and the message "large" with a large one."""
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        text = "x" * 20_000_000 if message["text"] == "large" else str(len(message["text"]))
        await send({"type": "websocket.send", "text": text})
        await send({"type": "websocket.send", "text": "end"})


@dataclass
class AppServer:
    """The server's process, its port, and the file that its log goes to."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(20)


@contextmanager
def run_app_server(folder: Path, *, port: int = 0, **environment: str) -> Iterator[AppServer]:
    """A server that has said that it is ready; with a port, one that has just been started."""
    log = folder / "log"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("FORGEFRONT_")},
        "FORGEFRONT_DATA": str(folder),
        "FORGEFRONT_PORT": str(port),
        **environment,
    }
    # Loads pytest, which worker processes of the server do not need.
    from tests.support.servers.fork_server import start_program

    with log.open("wb") as errors:
        process = start_program(__name__, env=environment, stdout=subprocess.PIPE, stderr=errors)
    assert process.stdout is not None
    try:
        yield AppServer(process, port or int(process.stdout.readline() or 0), log)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def main() -> None:
    if "SERVING_FORKS" in os.environ:
        # Quicker than new interpreters. They know neither the end of their parent nor the metrics of each other.
        vars(worker_processes)["_spawn"] = multiprocessing.get_context("fork")
    http_server.run(Config.load(), build=build_app, on_ready=lambda config: print(config.port, flush=True))


if __name__ == "__main__":
    # By its name as a module, so that worker processes can find `build`.
    from tests.forgefront.support import app_server

    app_server.main()
