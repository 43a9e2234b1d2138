"""An app that is built and started while the server already accepts connections.

Until it has started, `/-/health` answers 200 and `/-/readiness` 503. All other requests wait for it, and it then serves them.
"""

import asyncio
import gc
import sys
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forgefront.server.liveness import HEALTH, NOSNIFF, READINESS, answer_liveness, send_status

MAX_WAITING_REQUESTS = 1_000
"""Requests and handshakes of WebSockets beyond them are refused."""
SWITCH_SECONDS = 0.001
"""How long the thread that builds the app may hold the interpreter while the event loop waits for it. Python's default is five times
as long, and an answer waits some ten times."""
STARTING_STATUS = {"status": "unavailable", "checks": {"start": {"status": "unavailable", "problem": "the service is starting"}}}
"""What `/-/readiness` answers during the start."""
_RETRY_AFTER = {"Retry-After": "2"}


@runtime_checkable
class DrainableApp(Protocol):
    """An app with its own connections, such as SSH."""

    def begin_shutdown(self, seconds: float) -> None:
        """Called when a shutdown begins: accepts nothing new; running work has these seconds to end."""


class DeferredApp:
    """Stands for the app that `build` returns. The server awaits `build_app`, and then runs the lifespan, which is that of the app."""

    def __init__(self, build: Callable[[], ASGIApp]) -> None:
        self._build = build
        self._app: ASGIApp = _refuse
        self._start_ended = asyncio.Event()
        self._waiting_count = 0
        self.is_built = False
        self.has_started = False

    async def build_app(self) -> None:
        """Builds the app in a thread. Raises what `build` raises."""
        default_seconds = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            self._app = await asyncio.to_thread(self._build_without_collections)
        finally:
            sys.setswitchinterval(default_seconds)
        self.is_built = True

    def _build_without_collections(self) -> ASGIApp:
        # Next to nothing that is loaded and built is garbage, and the event loop would wait while the collector traverses it.
        gc.disable()
        try:
            return self._build()
        finally:
            gc.freeze()
            gc.enable()

    def refuse_requests(self) -> None:
        """Answers the requests that wait, and all later ones, with 503: the start has failed, or the server stops before its end."""
        self._start_ended.set()

    def begin_shutdown(self, seconds: float) -> None:
        if self.has_started and isinstance(self._app, DrainableApp):
            self._app.begin_shutdown(seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.has_started:
            await self._app(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._run_lifespan(scope, receive, send)
        else:
            await self._serve_during_start(scope, receive, send)

    async def _run_lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_and_note(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self.has_started = True
                self._start_ended.set()
            await send(message)

        await self._app(scope, receive, send_and_note)

    async def _serve_during_start(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path == HEALTH:
            await answer_liveness(scope, receive, send)
        elif path == READINESS:
            await send_status(scope, receive, send, 503, STARTING_STATUS, _RETRY_AFTER)
        elif self._waiting_count >= MAX_WAITING_REQUESTS:
            await _refuse(scope, receive, send)
        else:
            self._waiting_count += 1
            try:
                await self._start_ended.wait()
            finally:
                self._waiting_count -= 1
            await (self._app if self.has_started else _refuse)(scope, receive, send)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        # Closing before accepting rejects the handshake with 403; "try again later" (RFC 6455, section 7.4, and its registry).
        await send({"type": "websocket.close", "code": 1013})
    else:
        await JSONResponse({"message": "503 Service Unavailable"}, 503, _RETRY_AFTER | NOSNIFF)(scope, receive, send)
