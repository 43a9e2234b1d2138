"""`/-/health`, and the responses that the server can give before the service is loaded. This module imports little."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

HEALTH = "/-/health"
READINESS = "/-/readiness"
NOSNIFF = {"X-Content-Type-Options": "nosniff"}


async def answer_liveness(scope: Scope, receive: Receive, send: Send) -> None:
    """Serves `GET /-/health`: the process and its event loop run. It checks nothing else."""
    await send_status(scope, receive, send, 200, {"status": "ok"})


async def send_status(
    scope: Scope, receive: Receive, send: Send, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> None:
    """Sends the status of the service, which must not be cached; 405 for a method other than GET and HEAD."""
    if Request(scope).method not in ("GET", "HEAD"):
        response = JSONResponse({"message": "405 Method Not Allowed"}, 405, {"Allow": "GET, HEAD", **NOSNIFF})
    else:
        response = JSONResponse(body, status, {"Cache-Control": "no-store", **NOSNIFF, **(headers or {})})
    await response(scope, receive, send)
