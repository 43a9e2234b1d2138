"""The table of the service's routes: which endpoint serves a path, under which name it is counted and logged, and whether it is an API."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

MOUNT_SUFFIX = "/*"


@dataclass(frozen=True, slots=True)
class AppRoute:
    """A row of the table.

    `path` is one path ("/graphql"), a path and everything below it ("/api/v3/*"), or a pattern of whole paths. With "/*", the part before
    it is the `root_path` of the endpoint and the path of the scope stays complete, as with Starlette's mounts.
    """

    path: str | re.Pattern[str]
    endpoint: ASGIApp
    name: str | None = None
    """The route in metrics; None for an endpoint that sets `scope["state"]["route"]` itself."""
    is_api: bool = False
    """Whether pages of other origins may call it (`forgefront/server/cors.py`)."""
    is_secret: bool = False
    """Whether the path itself grants access, so that the log has the name in its place."""
    takes_websockets: bool = False
    mount_path: str = field(init=False, default="")
    """The `root_path` of the endpoint; "" unless the path ends in "/*"."""

    def __post_init__(self) -> None:
        if isinstance(self.path, str) and self.path.endswith(MOUNT_SUFFIX):
            object.__setattr__(self, "mount_path", self.path.removesuffix(MOUNT_SUFFIX))


class AppRouter:
    """Finds the route of a path. One path has precedence over "/*", and that over a pattern; equals have the order of the table."""

    def __init__(self, routes: Iterable[AppRoute]) -> None:
        self.by_path: dict[str, AppRoute] = {}
        self._by_prefix: list[tuple[str, AppRoute]] = []
        self._by_pattern: list[tuple[re.Pattern[str], AppRoute]] = []
        for route in routes:
            if isinstance(route.path, re.Pattern):
                self._by_pattern.append((route.path, route))
            elif route.mount_path:
                self.by_path[route.mount_path] = route
                self._by_prefix.append((f"{route.mount_path}/", route))
            else:
                self.by_path[route.path] = route

    def find(self, path: str) -> AppRoute | None:
        """The route of a path; None if there is none."""
        route = self.by_path.get(path)
        if route is not None:
            return route
        for prefix, route in self._by_prefix:
            if path.startswith(prefix):
                return route
        for pattern, route in self._by_pattern:
            if pattern.fullmatch(path):
                return route
        return None

    def drop_leading_slashes(self, scope: Scope) -> None:
        """Changes the path of a request to an API that begins with several slashes, so that it begins with one.

        Clients that join the URL of the service, with a slash at its end, and "/api/v3" send such paths. Those of pages stay unknown: a
        script of a page that takes such a path for an address would leave the site.
        """
        # Only slashes of the raw path: those that are percent-encoded belong to a segment.
        raw_path: bytes = scope.get("raw_path") or b""
        surplus = len(raw_path) - len(raw_path.lstrip(b"/")) - 1
        if surplus > 0 and self.is_api_path(scope["path"][surplus:]):
            scope["path"] = scope["path"][surplus:]
            scope["raw_path"] = raw_path[surplus:]

    def is_api_path(self, path: str) -> bool:
        """Whether the path belongs to an API that pages of other origins may call."""
        route = self.find(path)
        return route is not None and route.is_api


async def send_not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers 404 as JSON; rejects the handshake of a WebSocket."""
    if scope["type"] == "websocket":
        # Closing before accepting rejects the handshake with 403.
        await receive()
        await send({"type": "websocket.close", "code": 1000})
    else:
        await JSONResponse({"message": "404 Not Found"}, 404)(scope, receive, send)
