"""Cross-origin resource sharing (https://fetch.spec.whatwg.org/#http-cors-protocol) for all interfaces of programs alike.

Any origin may call by default. That is safe because a caller is known by headers alone, which a page of another origin must have been
given: cookies never count, and `Access-Control-Allow-Credentials` is never sent, so that no browser shows a page the answer to a request
that carried credentials of its own accord (as it does with a password that was typed for `/q`).

Git, the pages, health and metrics are left out: browsers of other origins have no use for them, and what they tell without a credential
may be meant for those who reach the address only.
"""

from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ANY = "*"
MAX_AGE_SECONDS = 7200
"""The most that Chromium keeps the answer to a preflight."""
METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
HEADERS = b"Authorization, PRIVATE-TOKEN, BUILD-TOKEN, Content-Type, Last-Event-ID, X-Request-Id, If-None-Match, Range, *"
"""The wildcard stands for all but Authorization; the names are for browsers that do not know it."""
EXPOSED = ", ".join(
    (
        "Link, X-Page, X-Per-Page, X-Next-Page, X-Prev-Page, X-Total, X-Total-Pages",
        "X-RateLimit-Limit, X-RateLimit-Cost, X-RateLimit-Used, X-RateLimit-Remaining, X-RateLimit-Reset",
        "X-Request-Id, ETag, Retry-After, Last-Event-ID, Allow, WWW-Authenticate, Location",
        "Content-Disposition, Content-Length, Content-Range, Accept-Ranges",
    )
).encode()
VARY = (b"vary", b"Origin")


class Cors:
    """The outermost part of the service. It adds headers to whatever `app` answers, and preflights are answered by `preflight`.

    `covers` says which paths take part, `origins` who may call: ("*",) is everybody, () nobody. `own` is the address of the service.
    """

    def __init__(self, app: ASGIApp, origins: tuple[str, ...], own: str, covers: Callable[[str], bool]) -> None:
        self._app = app
        self._is_any = ANY in origins
        self._origins = frozenset(origin.encode() for origin in origins)
        parts = urlsplit(own)
        self._own = f"{parts.scheme}://{parts.netloc}".lower().encode()
        self._covers = covers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        origin = None
        if kind != "lifespan":
            for name, value in scope["headers"]:
                if name == b"origin":
                    origin = value
                    break
        if kind == "websocket" and origin is not None and not self._may_connect(origin, scope):
            # Before it is accepted: the server answers the handshake with 403.
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        elif kind != "http" or (origin is None and self._is_any) or not self._covers(scope["path"]):
            await self._app(scope, receive, send)
        else:
            await self._app(scope, receive, self._adding(self._headers_for(origin), send))

    @staticmethod
    def is_preflight(scope: Scope) -> bool:
        """Whether a browser asks what a page of another origin may send."""
        if scope["type"] != "http" or scope["method"] != "OPTIONS":
            return False
        names = {name for name, _ in scope["headers"]}
        return b"origin" in names and b"access-control-request-method" in names

    async def preflight(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a preflight of a path that takes part. Which methods a path has is told by the 405 of the call itself."""
        origin = next(value for name, value in scope["headers"] if name == b"origin")
        if not self._is_allowed(origin):
            message = "403 Forbidden - this origin is not in FORGEFRONT_CORS_ORIGINS"
            await JSONResponse({"message": message}, 403)(scope, receive, send)
            return
        headers = [
            (b"access-control-allow-methods", METHODS),
            (b"access-control-allow-headers", HEADERS),
            (b"access-control-max-age", b"%d" % MAX_AGE_SECONDS),
        ]
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def _is_allowed(self, origin: bytes) -> bool:
        return self._is_any or origin in self._origins

    def _may_connect(self, origin: bytes, scope: Scope) -> bool:
        # A browser does not ask before it opens a WebSocket to another origin.
        if self._is_allowed(origin) or origin.lower() == self._own:
            return True
        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        return bool(host) and origin.partition(b"://")[2] == host

    def _headers_for(self, origin: bytes | None) -> list[tuple[bytes, bytes]]:
        if self._is_any:
            return [(b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", EXPOSED)]
        if origin is None or origin not in self._origins:
            return [VARY]
        return [(b"access-control-allow-origin", origin), (b"access-control-expose-headers", EXPOSED), VARY]

    @staticmethod
    def _adding(headers: list[tuple[bytes, bytes]], send: Send) -> Send:
        def answer(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *headers]
            return send(message)

        return answer
