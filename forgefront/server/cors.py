"""Cross-origin resource sharing (https://fetch.spec.whatwg.org/#http-cors-protocol) for all APIs.

Any origin may call by default. That is safe because callers authenticate with headers only, which a page of another origin must already
know: cookies are ignored, and `Access-Control-Allow-Credentials` is never sent, so that no browser shows a page the response to a request
with stored credentials (such as a password typed for `/q`).

Git, the pages, health and metrics are excluded: pages of other origins do not need them, and what they reveal without a credential may be
meant only for clients that can reach the address.
"""

from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ANY_ORIGIN = "*"
MAX_AGE_SECONDS = 7200
"""Maximum time for which Chromium caches a preflight response."""
ALLOWED_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
ALLOWED_HEADERS = b"Authorization, PRIVATE-TOKEN, BUILD-TOKEN, Content-Type, Last-Event-ID, X-Request-Id, If-None-Match, Range, *"
"""The wildcard covers all headers except Authorization; the names are for browsers that do not support it."""
EXPOSED_HEADERS = ", ".join(
    (
        "Link, X-Page, X-Per-Page, X-Next-Page, X-Prev-Page, X-Total, X-Total-Pages",
        "X-RateLimit-Limit, X-RateLimit-Cost, X-RateLimit-Used, X-RateLimit-Remaining, X-RateLimit-Reset",
        "X-Request-Id, ETag, Retry-After, Last-Event-ID, Allow, WWW-Authenticate, Location",
        "Content-Disposition, Content-Length, Content-Range, Accept-Ranges",
    )
).encode()
VARY_ORIGIN = (b"vary", b"Origin")


class CorsMiddleware:
    """The outermost middleware. It adds headers to the responses of `app`; `answer_preflight` answers preflights.

    `is_covered` says which paths participate, `origins` who may call: ("*",) is everybody, () nobody. `own_url` is the URL of the service.
    """

    def __init__(self, app: ASGIApp, origins: tuple[str, ...], own_url: str, is_covered: Callable[[str], bool]) -> None:
        self._app = app
        self._allows_any_origin = ANY_ORIGIN in origins
        self._origins = frozenset(origin.encode() for origin in origins)
        parts = urlsplit(own_url)
        self._own_origin = f"{parts.scheme}://{parts.netloc}".lower().encode()
        self._is_covered = is_covered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        origin = None
        if kind != "lifespan":
            for name, value in scope["headers"]:
                if name == b"origin":
                    origin = value
                    break
        if kind == "websocket" and origin is not None and not self._is_websocket_allowed(origin, scope):
            # Closed before it is accepted: the server rejects the handshake with 403.
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        elif kind != "http" or (origin is None and self._allows_any_origin) or not self._is_covered(scope["path"]):
            await self._app(scope, receive, send)
        else:
            await self._app(scope, receive, self._add_headers(self._headers_for(origin), send))

    @staticmethod
    def is_preflight(scope: Scope) -> bool:
        """Whether the request is a preflight."""
        if scope["type"] != "http" or scope["method"] != "OPTIONS":
            return False
        names = {name for name, _ in scope["headers"]}
        return b"origin" in names and b"access-control-request-method" in names

    async def answer_preflight(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a preflight of a participating path. The 405 of the call itself reports which methods a path has."""
        origin = next(value for name, value in scope["headers"] if name == b"origin")
        if not self._is_allowed(origin):
            message = "403 Forbidden - this origin is not in FORGEFRONT_CORS_ORIGINS"
            await JSONResponse({"message": message}, 403)(scope, receive, send)
            return
        headers = [
            (b"access-control-allow-methods", ALLOWED_METHODS),
            (b"access-control-allow-headers", ALLOWED_HEADERS),
            (b"access-control-max-age", b"%d" % MAX_AGE_SECONDS),
        ]
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def _is_allowed(self, origin: bytes) -> bool:
        return self._allows_any_origin or origin in self._origins

    def _is_websocket_allowed(self, origin: bytes, scope: Scope) -> bool:
        # Browsers send no preflight before they open a WebSocket to another origin.
        if self._is_allowed(origin) or origin.lower() == self._own_origin:
            return True
        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        return bool(host) and origin.partition(b"://")[2] == host

    def _headers_for(self, origin: bytes | None) -> list[tuple[bytes, bytes]]:
        if self._allows_any_origin:
            return [(b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", EXPOSED_HEADERS)]
        if origin is None or origin not in self._origins:
            return [VARY_ORIGIN]
        return [(b"access-control-allow-origin", origin), (b"access-control-expose-headers", EXPOSED_HEADERS), VARY_ORIGIN]

    @staticmethod
    def _add_headers(headers: list[tuple[bytes, bytes]], send: Send) -> Send:
        def send_with_headers(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *headers]
            return send(message)

        return send_with_headers
