"""The ASGI application: routing, methods and the headers that every answer has."""

import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import orjson

from graph.caches import CacheBounds, LruCache
from rest_v3.endpoint import Endpoint, Request, Response
from rest_v3.errors import refusal
from rest_v3.route import Route
from rest_v3.router import Place, Router, segments_of, split
from rest_v3.sending import FileResponse, send_file

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON = (b"content-type", b"application/json")
NOSNIFF = (b"x-content-type-options", b"nosniff")
PATHS = CacheBounds("v3 paths", max_entries=2_000, max_bytes=4 * 2**20, per="application")
"""Where paths lead."""
LONGEST_KNOWN = 100
"""Bytes of such a path."""


class Page:
    """A fixed answer to GET, without a credential: the OpenAPI document and its reading page."""

    def __init__(self, body: bytes, content_type: str, policy: str | None = None) -> None:
        headers = [(b"content-type", content_type.encode()), (b"cache-control", b"max-age=0, must-revalidate")]
        if policy is not None:
            headers.append((b"content-security-policy", policy.encode()))
        self.response = Response(200, body, headers)


Target = Endpoint | Page
Found = tuple[list[str], Place[Target], list[str]]
"""The segments of a path, its place, and the values of its parameters."""


class Door:
    """Answers every request below `base`, and every error with a JSON object."""

    base = "/api/v3"

    def __init__(self, endpoints: Iterable[Endpoint], pages: Iterable[tuple[str, Page]] = ()) -> None:
        self._router: Router[Target] = Router()
        self._known: LruCache[bytes, Found] = LruCache(PATHS, lambda path, _: 1_000 + 4 * len(path))
        self.endpoints = tuple(endpoints)
        for endpoint in self.endpoints:
            for path in endpoint.route.spellings:
                self._router.add(endpoint.route.method, path, endpoint)
        for path, page in pages:
            self._router.add("GET", path, page)

    def route_of(self, method: str, path: str) -> Route | None:
        """The row that answers a method on a path, which is given below /api/v3 and may have a query."""
        endpoint = self.endpoint_of(method, path)
        return endpoint.route if endpoint is not None else None

    def endpoint_of(self, method: str, path: str) -> Endpoint | None:
        """The same, with its operation."""
        found = self._router.find(split(path.partition("?")[0].encode()))
        target = found[0].methods.get("GET" if method == "HEAD" else method) if found else None
        return target if isinstance(target, Endpoint) else None

    def segments_of(self, scope: Scope) -> list[str]:
        """The segments of a request's path below `base`."""
        return segments_of(scope, self.base)

    def _found(self, scope: Scope) -> Found | None:
        """Where the request's path leads. Most paths come again and again."""
        raw: bytes = scope.get("raw_path") or b""
        mounted = scope.get("root_path") == self.base
        known = self._known.get(raw) if mounted else None
        if known is not None:
            return known
        segments = self.segments_of(scope)
        place = self._router.find(segments)
        if place is None:
            return None
        found = segments, *place
        if mounted and 0 < len(raw) <= LONGEST_KNOWN:
            self._known.put(raw, found)
        return found

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
            return
        # The first of equal names is the one that counts.
        headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        request_id = (scope.get("state") or {}).get("request_id")
        try:
            response = await self._answer(scope, receive, headers, request_id or uuid.uuid4().hex)
        except Exception:
            logger.exception("a request failed", extra={"request_id": request_id})
            response = _refused(500)
        if response is None:
            return
        if request_id is not None:
            response.headers.append((b"x-request-id", str(request_id).encode("latin-1", "replace")))
        bodiless = scope["method"] == "HEAD"
        if isinstance(response, FileResponse):
            if await send_file(receive, send, response, NOSNIFF, bodiless=bodiless):
                return
            response = _refused(404, "404 Not Found")
        await _send(send, response, bodiless=bodiless)

    async def _answer(self, scope: Scope, receive: Receive, headers: dict[bytes, bytes], request_id: str) -> Response | None:
        found = self._found(scope)
        if found is None:
            return _refused(404, "404 Not Found")
        segments, place, values = found
        method = scope["method"]
        target = place.methods.get("GET" if method == "HEAD" else method)
        if target is None:
            return _with_allow(Response(204, b"", []) if method == "OPTIONS" else _refused(405), place)
        if isinstance(target, Page):
            return Response(200, target.response.body, [*target.response.headers])
        state = scope.setdefault("state", {})
        # For the server's metrics: the row, not the path, of which there is no end.
        state["route"] = self.base + target.path
        query = scope.get("query_string", b"")
        response = await target.answer(Request(method, values, segments, query, headers, receive, request_id, state))
        if response is not None and not isinstance(response, FileResponse):
            response.headers.append(JSON)
            if response.status == 405:
                return _with_allow(response, place)
        return response


def _refused(status: int, message: str | None = None) -> Response:
    return Response(status, orjson.dumps(refusal(status, message).body), [JSON])


def _with_allow(response: Response, place: Place[Target]) -> Response:
    response.headers.append((b"allow", place.allow.encode()))
    return response


async def _send(send: Send, response: Response, *, bodiless: bool) -> None:
    headers = [*response.headers, NOSNIFF]
    if response.status != 204:
        headers.append((b"content-length", b"%d" % len(response.body)))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if bodiless else response.body})
