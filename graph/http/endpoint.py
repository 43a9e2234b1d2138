"""The GraphQL endpoint over HTTP: reads a request, runs the operation, sends the response as JSON.

It follows the GraphQL over HTTP specification (https://graphql.github.io/graphql-over-http/draft/), with POST of
application/json and GET of queries. Clients that accept text/event-stream receive Server-Sent Events (`graph/http/sse.py`): a
subscription's events, or the single result of a query or mutation. Status codes of invalid requests:

    405  other methods, and GET of anything but a query          413  a body over 1 MiB, counted while it is received
    415  other content types, encodings and character sets       406  no acceptable media type, or a subscription as JSON
    400  invalid JSON, nesting over 64 levels, invalid parameters, batches

Status codes of results:

    401  the operation needs a viewer: `data` is null            429  rate limit exceeded: with Retry-After
    403  the access token lacks a scope: `data` is null
    503  unavailable: with Retry-After                           500  internal error
    400  the operation is invalid, so there is no `data`; 200 for clients that accept only application/json,
         as the specification requires for legacy clients
    200  everything else, including errors beside the data

An operation is a document, or the id of a trusted document (`graph/documents/trusted_documents.py`). Automatic persisted queries are not
registered: for an unknown hash the response is PersistedQueryNotSupported with status 200, after which clients send documents. Responses
to a viewer have the headers `X-RateLimit-…` (`graph/operations/rate_limits.py`).

The credential is read only from the headers PRIVATE-TOKEN and `Authorization: Bearer` (docs/decisions.md 3), so that no other site
can act for a browser's user. Responses are JSON with `Cache-Control: no-store`, and each error contains the request id.
"""

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from graph.errors import Code
from graph.http import sse, websocket
from graph.http.bodies import read_body
from graph.http.content_negotiation import PLAIN_JSON, RESPONSE_JSON, is_json, negotiate
from graph.http.json_pieces import dump_json
from graph.http.known_requests import KnownRequests
from graph.http.requests import (
    GraphqlRequest,
    GraphqlRequestError,
    body_too_large_error,
    credential_of,
    headers_of,
    parse_json,
    parse_request,
    parse_url_request,
    resolve_document,
)
from graph.http.responses import is_request_error, rate_headers, raw_rate_headers, serialize_error, serialize_result
from graph.http.sse import EVENT_STREAM
from graph.live.subscription_streams import SubscriptionStream
from graph.live.subscriptions import subscribe
from graph.operations import limits
from graph.operations.disconnects import RECEIVE
from graph.operations.execution import Graph
from graph.operations.results import OperationResult

METHODS = "GET, POST, OPTIONS"
RETRY_AFTER_SECONDS = 2
DATA_HEADERS = {
    media: [
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        (b"content-type", f"{media}; charset=utf-8".encode("ascii")),
    ]
    for media in (RESPONSE_JSON, PLAIN_JSON)
}
"""Headers of a response with data, by media type."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GraphqlResponse:
    status: int
    body: dict[str, Any]
    headers: Mapping[str, str]


def make_graphql_app(graph: Graph) -> ASGIApp:
    """Returns the endpoint as an ASGI app, which can be mounted at any path."""

    known_requests = KnownRequests()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await websocket.serve_websocket(graph, scope, receive, send)
            return
        state = scope.setdefault("state", {})
        request_id: str = state.get("request_id") or state.setdefault("request_id", uuid.uuid4().hex)
        if scope["method"] == "OPTIONS":
            await _send(send, 204, b"", {"allow": METHODS})
            return
        await _answer(graph, known_requests, scope, receive, send, request_id)

    return app


async def _answer(graph: Graph, known_requests: KnownRequests, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
    """Runs the operation of a request, and sends its response, or that of what is wrong with the request. Raises ClientDisconnect."""
    headers = headers_of(scope)
    media_type, accepts_stream = negotiate(headers.get("accept"))
    try:
        body, request = await _read_request(graph, known_requests, scope, receive, headers)
        if media_type is None:
            raise GraphqlRequestError(406, f"`Accept` must allow {RESPONSE_JSON}, {PLAIN_JSON} or {EVENT_STREAM}.")
        media_type, is_subscription = await _choose_representation(
            graph, scope["method"], request, headers, media_type, request_id, accepts_stream=accepts_stream
        )
        wants_stream = media_type == EVENT_STREAM
        RECEIVE.set(receive)
        result = await _run(graph, request, headers, request_id, stream=wants_stream and is_subscription)
        if isinstance(result, SubscriptionStream):
            await sse.send_events(result, request_id, receive, send)
            return
        if result.is_subscription:
            raise GraphqlRequestError(406, result.errors[0].message)
        if result.viewer_id is not None:
            scope["state"]["user_id"] = result.viewer_id
        if body is not None and request.checks.is_complete:
            known_requests.keep(body, request)
        if not result.errors and not wants_stream:
            await _send_data(send, result, media_type)
            return
        response = make_response(result, request_id, media_type)
        if wants_stream and response.status == 200:
            await sse.send_response(await dump_json(response.body, is_large=result.is_large), response.headers, send)
            return
        body = await dump_json(response.body, is_large=result.is_large)
    except GraphqlRequestError as error:
        response = _error_response(error, request_id)
        if media_type == EVENT_STREAM and error.status == 200:
            await sse.send_response(orjson.dumps(response.body), response.headers, send)
            return
        body = orjson.dumps(response.body)
    except ClientDisconnect:
        raise
    except Exception:
        # The graph masks its own errors; this handles all others, so that the response is still a GraphQL response.
        log.exception("GraphQL endpoint failed, request %s", request_id)
        message = "Internal server error; the server log contains the details under this request ID."
        response = _error_response(GraphqlRequestError(500, message, Code.INTERNAL), request_id)
        body = orjson.dumps(response.body)
    # Errors before the start of a stream are sent as JSON.
    content_type = f"{PLAIN_JSON if media_type in (None, EVENT_STREAM) else media_type}; charset=utf-8"
    await _send(send, response.status, body, {"content-type": content_type, **response.headers})


async def _choose_representation(
    graph: Graph,
    method: str,
    request: GraphqlRequest,
    headers: Mapping[str, str],
    media_type: str,
    request_id: str,
    *,
    accepts_stream: bool,
) -> tuple[str, bool]:
    """The media type of the response, and whether the operation is known to be a subscription.

    Raises GraphqlRequestError for GET of an operation that needs POST.
    """
    kind = None
    if accepts_stream or method == "GET":
        kind = await graph.kind_of(request.query, request.operation_name, credential_of(headers), request_id=request_id)
    if accepts_stream and kind == "subscription":
        # Also for clients that prefer JSON, or state no preference: a subscription has no other representation.
        media_type = EVENT_STREAM
    if method == "GET" and kind not in (None, "query", *(["subscription"] if media_type == EVENT_STREAM else ())):
        raise GraphqlRequestError(405, "GET can only run queries; send this operation with POST.", allow="POST")
    return media_type, kind == "subscription"


async def _run(
    graph: Graph, request: GraphqlRequest, headers: Mapping[str, str], request_id: str, *, stream: bool
) -> OperationResult | SubscriptionStream:
    query, variables, name, credential = request.query, request.variables, request.operation_name, credential_of(headers)
    if not stream:
        return await graph.run_document(query, variables, name, credential, request_id=request_id, checks=request.checks)
    return await subscribe(
        graph, query, variables, name, credential, request_id=request_id, after=sse.parse_last_event_id(headers.get("last-event-id"))
    )


async def _send_data(send: Send, result: OperationResult, media_type: str) -> None:
    """Sends the response of an operation without errors; equal to `make_response` and `_send`, but faster."""
    data = {"data": result.data}
    body = await dump_json(data, is_large=True) if result.is_large else orjson.dumps(data)
    headers = [*DATA_HEADERS[media_type], *raw_rate_headers(result.rate_usage), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send(send: Send, status: int, body: bytes, headers: Mapping[str, str]) -> None:
    all_headers = {"cache-control": "no-store", "x-content-type-options": "nosniff", **headers}
    if status != 204:
        all_headers["content-length"] = str(len(body))
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in all_headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


# Requests


async def _read_request(
    graph: Graph, known_requests: KnownRequests, scope: Scope, receive: Receive, headers: Mapping[str, str]
) -> tuple[bytes | None, GraphqlRequest]:
    """The request, and its body if it is not one of the known requests yet."""
    if scope["method"] == "GET":
        return None, resolve_document(graph, parse_url_request(scope["query_string"]))
    if scope["method"] != "POST":
        raise GraphqlRequestError(405, "Send operations with POST; queries can also be sent with GET.", allow=METHODS)
    body = await read_body(receive, headers.get("content-length"), limits.MAX_BODY_BYTES, body_too_large_error)
    if body is None:
        raise ClientDisconnect
    content_type = headers.get("content-type", "")
    if content_type != PLAIN_JSON and not is_json(content_type):
        raise GraphqlRequestError(415, f"Send the operation as {PLAIN_JSON} in UTF-8.", accept_post=PLAIN_JSON)
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise GraphqlRequestError(415, "Send the body without a content encoding.", accept_encoding="identity")
    known = known_requests.find(body)
    if known is not None:
        return None, known
    return body, resolve_document(graph, parse_request(parse_json(body, "The body")))


# Responses


def make_response(result: OperationResult, request_id: str, media_type: str) -> GraphqlResponse:
    """Makes the response for a result, also for other endpoints that run whole operations. `media_type` is the negotiated type."""
    response = _make_response_body(result, request_id, media_type)
    return replace(response, headers={**response.headers, **headers}) if (headers := rate_headers(result.rate_usage)) else response


def _make_response_body(result: OperationResult, request_id: str, media_type: str) -> GraphqlResponse:
    errors = [serialize_error(problem, request_id) for problem in result.errors]
    codes = {problem.code for problem in result.errors}
    data = result.data
    if Code.UNAUTHENTICATED in codes:
        # RFC 9110 section 15.5.2 requires a challenge; browsers show no dialog for Bearer.
        return GraphqlResponse(401, {"errors": errors, "data": None}, {"www-authenticate": "Bearer"})
    if Code.INSUFFICIENT_SCOPE in codes:
        # RFC 6750 section 3.1.
        return GraphqlResponse(403, {"errors": errors, "data": None}, {"www-authenticate": 'Bearer error="insufficient_scope"'})
    if not errors:
        return GraphqlResponse(200, {"data": data}, {})
    body = serialize_result(result, request_id)
    if data is None or all(value is None for value in data.values()):
        retry_after = max(problem.retry_after or 0 for problem in result.errors)
        if Code.UNAVAILABLE in codes:
            return GraphqlResponse(503, body, {"retry-after": str(retry_after or RETRY_AFTER_SECONDS)})
        if Code.LIMIT_EXCEEDED in codes and retry_after:
            return GraphqlResponse(429, body, {"retry-after": str(retry_after)})
    if not is_request_error(result):
        return GraphqlResponse(200, body, {})
    if Code.INTERNAL in codes:
        return GraphqlResponse(500, body, {})
    return GraphqlResponse(200 if media_type == PLAIN_JSON else 400, body, {})


def _error_response(error: GraphqlRequestError, request_id: str) -> GraphqlResponse:
    extensions = {"code": error.code.value, "requestId": request_id}
    return GraphqlResponse(error.status, {"errors": [{"message": error.message, "extensions": extensions}]}, error.headers)
