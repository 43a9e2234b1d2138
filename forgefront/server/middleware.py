"""What every request gets, at any endpoint: an id, an access line, metrics, and a response even when the endpoint raises.

Endpoints describe a request through `scope["state"]`: they read `request_id`, and set `route` (a template such as "/projects/:id/issues",
for the metrics) and `user_id` (for the access line) when they know them.
"""

import os
import random
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forgefront.logs import REQUEST_ID, create_unredacted_writer, redact_ids, redact_text, redact_tokens
from forgefront.server.metrics import Metrics
from storage.database.errors import describe_error

REQUEST_ID_PATTERN = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NOSNIFF = (b"x-content-type-options", b"nosniff")
OWN_HEADERS = frozenset((b"x-content-type-options", b"x-request-id"))
MAX_LOGGED_PATH_LENGTH = 512
PREFLIGHT = "preflight"
"""The route of preflight requests of browsers, whatever their path."""
_RANDOM = random.Random(os.urandom(16))  # noqa: S311 - request ids are not secrets
RETRY_AFTER_SECONDS = 2
CLIENT_CLOSED_REQUEST = 499
"""Logged and counted, never sent: the client disconnected before the response (nginx's status for it)."""


class RequestMiddleware:
    """Wraps the whole app. `is_unavailable` identifies errors of an unavailable database, which return 503 rather than 500."""

    def __init__(self, app: ASGIApp, metrics: Metrics, is_unavailable: Callable[[BaseException], bool]) -> None:
        self._app = app
        self._metrics = metrics
        self._is_unavailable = is_unavailable
        self._log = structlog.get_logger().bind(logger="access")
        self._write = create_unredacted_writer("access")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            return await self._app(scope, receive, send)
        started = time.perf_counter()
        state: dict[str, Any] | None = scope.get("state")
        if state is None:
            state = scope["state"] = {}
        request_id, id_header = _read_request_id(scope)
        state["request_id"] = request_id
        REQUEST_ID.set(request_id)
        status = 0

        # Not a coroutine function: it returns the awaitable of the wrapped function, which saves a frame for each message.
        def send_with_headers(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # An endpoint may have set one or both itself.
                headers = [pair for pair in message.get("headers", ()) if pair[0] not in OWN_HEADERS]
                headers += (NOSNIFF, (b"x-request-id", id_header))
                message["headers"] = headers
            elif message["type"] == "websocket.accept":
                status = 101
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", id_header)]
            elif message["type"] == "websocket.close" and not status:
                status = 403
            return send(message)

        running = self._metrics.running_requests if kind == "http" else self._metrics.running_sockets
        running.inc()
        try:
            await self._app(scope, receive, send_with_headers)
        except ClientDisconnect:
            status = CLIENT_CLOSED_REQUEST
        except Exception as error:
            if kind != "http":
                self._log.exception("failed")
                raise
            if status:
                # The server closes a connection whose response is incomplete, which is the only signal left.
                self._log.exception("response failed midway")
            else:
                await self._error_response(error)(scope, receive, send_with_headers)
        finally:
            running.dec()
            seconds = time.perf_counter() - started
            self._log_request(scope, state, status or CLIENT_CLOSED_REQUEST, seconds)

    def _error_response(self, error: Exception) -> JSONResponse:
        if self._is_unavailable(error):
            self._log.warning("unavailable", error=describe_error(error))
            return JSONResponse({"message": "503 Service Unavailable"}, 503, {"Retry-After": str(RETRY_AFTER_SECONDS)})
        self._log.error("failed", exc_info=error)
        return JSONResponse({"message": "500 Internal Server Error"}, 500)

    def _log_request(self, scope: Scope, state: dict[str, Any], status: int, seconds: float) -> None:
        method = scope.get("method", "GET")
        self._metrics.count(method, state.get("route") or "unmatched", status, seconds)
        line: dict[str, Any] = {
            "request_id": state["request_id"],
            "method": method,
            "path": _find_logged_path(scope, state, status),
            "status": status,
            "duration_ms": round(seconds * 1000, 2),
        }
        if (user_id := state.get("user_id")) is not None:
            line["user_id"] = user_id
        line["event"] = "request" if scope["type"] == "http" else "websocket"
        self._write(line)


def _find_logged_path(scope: Scope, state: dict[str, Any], status: int) -> str:
    # The URL of an upload grants access to it, so only its kind is logged.
    if state.get("secret_path"):
        return str(state["route"])
    # The raw path has no line breaks, and excludes the query, which may contain private_token.
    path = (scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0].decode("latin-1")
    route = state.get("route")
    if route is None or route == PREFLIGHT or (status == 404 and ":" not in route):
        # Nothing says which of its segments are secret: the token of a trigger may stand below a project whose slash is not encoded.
        path = redact_tokens(path)
    elif status >= 400:
        # Somebody may have sent a token in the place of an id. An id that was found is none.
        path = redact_ids(path, route)
    return redact_text(path[:MAX_LOGGED_PATH_LENGTH])


def _read_request_id(scope: Scope) -> tuple[str, bytes]:
    """The id that the client sent if it is valid (1 to 64 letters, digits, dots, dashes, underscores), or else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            if REQUEST_ID_PATTERN.fullmatch(value):
                return value.decode("ascii"), value
            break
    # Ids are not secrets, and the system's random numbers cost ten times as much.
    generated = b"%024x" % _RANDOM.getrandbits(96)
    return generated.decode("ascii"), generated
