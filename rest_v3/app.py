"""The ASGI application: routing, methods and common response headers."""

import asyncio
import gzip
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from functools import cached_property
from typing import Any

import orjson

from graph.caches import CacheBounds, LruCache
from graph.errors import Unavailable
from graph.http.content_coding import accepts_gzip
from rest_v3.endpoints.endpoint import Endpoint
from rest_v3.endpoints.file_downloads import FileResponse, send_file
from rest_v3.endpoints.messages import RestRequest, RestResponse
from rest_v3.errors import error_response
from rest_v3.old_ids import OldIds
from rest_v3.route import Route
from rest_v3.router import RouteNode, Router, path_segments, split_path

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON_CONTENT_TYPE = (b"content-type", b"application/json")
NOSNIFF = (b"x-content-type-options", b"nosniff")
PATH_CACHE_BOUNDS = CacheBounds("v3 paths", max_entries=2_000, max_bytes=4 * 2**20, per="application")
"""Cached results of routing, by path."""
MAX_CACHED_PATH_BYTES = 100
"""A longer path is matched each time."""


class StaticPage:
    """A constant response to GET without a credential: the OpenAPI document and its page. Clients that accept gzip get it compressed."""

    def __init__(self, build_body: Callable[[], bytes], content_type: str, policy: str | None = None) -> None:
        self._build_body = build_body
        self._headers = [(b"content-type", content_type.encode()), (b"cache-control", b"max-age=0, must-revalidate")]
        self._headers.append((b"vary", b"accept-encoding"))
        if policy is not None:
            self._headers.append((b"content-security-policy", policy.encode()))

    async def respond(self, headers: Mapping[bytes, bytes]) -> RestResponse:
        """The response. Both bodies are built in a thread, at the first request."""
        if "_compressed" not in self.__dict__:
            await asyncio.to_thread(lambda: self._compressed)
        if accepts_gzip(headers.get(b"accept-encoding", b"").decode("latin-1")):
            return RestResponse(200, self._compressed, [*self._headers, (b"content-encoding", b"gzip")])
        return RestResponse(200, self.body, [*self._headers])

    @cached_property
    def body(self) -> bytes:
        return self._build_body()

    @cached_property
    def _compressed(self) -> bytes:
        return gzip.compress(self.body, mtime=0)


Target = Endpoint | StaticPage
RouteMatch = tuple[list[str], RouteNode[Target], list[str]]
"""A matched path: its segments, its node and the values of its parameters."""


class RestApp:
    """Serves every request below `base`, and returns every error as a JSON object."""

    base = "/api/v3"

    def __init__(self, endpoints: Iterable[Endpoint], pages: Iterable[tuple[str, StaticPage]] = (), old_ids: OldIds | None = None) -> None:
        self._old_ids = old_ids
        self._router: Router[Target] = Router()
        self._path_cache: LruCache[bytes, RouteMatch] = LruCache(PATH_CACHE_BOUNDS, lambda path, _: 1_000 + 4 * len(path))
        self.endpoints = tuple(endpoints)
        for endpoint in self.endpoints:
            for path in endpoint.route.paths:
                self._router.add(endpoint.route.method, path, endpoint, endpoint.route.spanning_names)
        for path, page in pages:
            self._router.add("GET", path, page)
        self._secret_paths = {
            node: path
            for endpoint in self.endpoints
            if endpoint.route.has_secret_path
            for path in endpoint.route.paths
            if (node := self._router.get(path)) is not None
        }
        """The paths that contain a secret, whatever the method of the request."""

    def find_route(self, method: str, path: str) -> Route | None:
        """The route of a method and a path below /api/v3, which may have a query string."""
        endpoint = self.find_endpoint(method, path)
        return endpoint.route if endpoint is not None else None

    def list_queries(self) -> list[Any]:
        """The prepared operations of the rows that read, except those that answer with a file."""
        endpoints = (each for each in self.endpoints if each.route.method == "GET" and each.route.file_key is None)
        return [each.operation.prepared for each in endpoints]

    def find_endpoint(self, method: str, path: str) -> Endpoint | None:
        """The endpoint of a method and a path."""
        method = "GET" if method == "HEAD" else method
        found = self._router.find(split_path(path.partition("?")[0].encode()), method)
        target = found[0].methods.get(method) if found else None
        return target if isinstance(target, Endpoint) else None

    def has_secret_path(self, scope: Scope) -> bool:
        """Whether the path of the request contains a secret, so that it must not be logged."""
        match = self._match(scope)
        return match is not None and match[1] in self._secret_paths

    def split_path(self, scope: Scope) -> list[str]:
        """The segments of a request's path below `base`."""
        return path_segments(scope, self.base)

    def _match(self, scope: Scope) -> RouteMatch | None:
        """Matches the request's path. Results are cached, since most paths repeat."""
        raw: bytes = scope.get("raw_path") or b""
        mounted = scope.get("root_path") == self.base
        cached = self._path_cache.get(raw) if mounted else None
        if cached is not None:
            return cached
        segments = self.split_path(scope)
        node = self._router.find(segments)
        if node is None:
            return None
        match = segments, *node
        if mounted and 0 < len(raw) <= MAX_CACHED_PATH_BYTES:
            self._path_cache.put(raw, match)
        return match

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
            return
        # Of headers with the same name, the first counts.
        headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        request_id = (scope.get("state") or {}).get("request_id")
        try:
            response = await self._respond(scope, receive, headers, request_id or uuid.uuid4().hex)
        except Exception:
            logger.exception("a request failed", extra={"request_id": request_id})
            response = _error_response(500)
        if response is None:
            return
        if request_id is not None:
            response.headers.append((b"x-request-id", str(request_id).encode("latin-1", "replace")))
        bodiless = scope["method"] == "HEAD"
        if isinstance(response, FileResponse):
            try:
                if await send_file(receive, send, response, NOSNIFF, is_head=bodiless):
                    return
                response = _error_response(404, "404 Not Found")
            except Unavailable as error:
                response = _error_response(503)
                response.headers.append((b"retry-after", b"%d" % error.retry_after))
        await _send_response(send, response, bodiless=bodiless)

    async def _respond(self, scope: Scope, receive: Receive, headers: dict[bytes, bytes], request_id: str) -> RestResponse | None:
        match = self._match(scope)
        if match is None:
            return _error_response(404, "404 Not Found")
        segments, node, values = match
        state = scope.setdefault("state", {})
        if (secret_path := self._secret_paths.get(node)) is not None:
            # The access log has the route instead, also of methods that the path does not have.
            state["secret_path"] = True
            state["route"] = self.base + secret_path
        method = scope["method"]
        served_method = "GET" if method == "HEAD" else method
        handler = node.methods.get(served_method)
        # No path has OPTIONS, so another node does not have it either.
        if handler is None and method != "OPTIONS" and (found := self._router.find(segments, served_method)) is not None:
            node, values = found
            handler = node.methods.get(served_method)
        if handler is None:
            return _add_allow_header(RestResponse(204, b"", []) if method == "OPTIONS" else _error_response(405), node)
        if isinstance(handler, StaticPage):
            return await handler.respond(headers)
        # For metrics: the route, since the number of paths is unbounded.
        state["route"] = self.base + handler.path
        if self._old_ids is not None:
            values = self._old_ids.translate(handler.path, values)
        query = scope.get("query_string", b"")
        response = await handler.handle(RestRequest(method, values, segments, query, headers, receive, request_id, state))
        if response is not None and not isinstance(response, FileResponse):
            response.headers.append((b"content-type", response.content_type))
            if response.status == 405:
                return _add_allow_header(response, node)
        return response


def _error_response(status: int, message: str | None = None) -> RestResponse:
    return RestResponse(status, orjson.dumps(error_response(status, message).body), [JSON_CONTENT_TYPE])


def _add_allow_header(response: RestResponse, node: RouteNode[Target]) -> RestResponse:
    response.headers.append((b"allow", node.allow_header.encode()))
    return response


async def _send_response(send: Send, response: RestResponse, *, bodiless: bool) -> None:
    headers = [*response.headers, NOSNIFF]
    if response.status != 204:
        headers.append((b"content-length", b"%d" % len(response.body)))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if bodiless else response.body})
