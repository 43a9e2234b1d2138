"""The GraphQL door over HTTP: reads a request, has the graph run it, answers JSON.

Follows the GraphQL over HTTP specification (https://graphql.github.io/graphql-over-http/draft/), with POST of
application/json and GET of queries. Who accepts text/event-stream gets Server-Sent Events (`graph/streaming.py`): a subscription's
events, or the one answer of a query or mutation. It decides nothing but what HTTP asks of it:

    405  other methods, and GET of anything but a query          413  a body over 1 MiB, counted as it comes
    415  other content types, encodings and character sets       406  nothing in `Accept` that can be sent, as a subscription as JSON
    400  broken JSON, JSON deeper than 64, wrong shapes, batches

and for what the graph answers:

    401  an operation without a viewer: `data` is null           429  a rate is exceeded: with Retry-After
    503  unavailable: with Retry-After                           500  a fault of the service
    400  the operation itself is wrong, so that there is no `data`; 200 for those who accept application/json only,
         as the specification wants it for old clients
    200  everything else, also with errors beside the data

An operation is text, or the id of a trusted document (`graph/trusted.py`). Automatic persisted queries are not registered: a hash that
no trusted document has is answered with PersistedQueryNotSupported at status 200, after which clients send texts. Answers to a viewer say
how their rate stands, in headers `X-RateLimit-…` (`graph/rates.py`).

The credential is read from the headers PRIVATE-TOKEN and `Authorization: Bearer`, and from nowhere else (DECISIONS 3), so
that no other site can act for a browser's user. Every answer is JSON, is never stored by caches and carries the request's
id in each error.
"""

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from graph import sockets, streaming
from graph.answers import entry_of, never_ran, rate_headers, rate_pairs, result_of
from graph.caller import RECEIVE
from graph.errors import Code
from graph.execute import Graph
from graph.outcomes import Outcome
from graph.requests import Refused, Request, body_of, credential_of, from_url, headers_of, json_of, request_of, resolved
from graph.streaming import EVENT_STREAM
from graph.subscribing import Stream, subscribe

RESPONSE_JSON = "application/graphql-response+json"
PLAIN_JSON = "application/json"
METHODS = "GET, POST, OPTIONS"
RETRY_SECONDS = 2
LONGEST_KEPT = 200
"""Characters of an Accept header whose meaning is remembered."""
HEADERS = {
    media: [
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        (b"content-type", f"{media}; charset=utf-8".encode("ascii")),
    ]
    for media in (RESPONSE_JSON, PLAIN_JSON)
}
"""Of an answer with data."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: dict[str, Any]
    headers: Mapping[str, str]


def door(graph: Graph) -> ASGIApp:
    """The endpoint as an ASGI app, whatever path it is mounted at."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await sockets.serve(graph, scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["route"] = "/graphql"
        request_id: str = state.get("request_id") or state.setdefault("request_id", uuid.uuid4().hex)
        if scope["method"] == "OPTIONS":
            await _send(send, 204, b"", {"allow": METHODS})
            return
        headers = headers_of(scope)
        media = _negotiated(headers.get("accept"))
        try:
            request = resolved(graph, await _read(scope, receive, headers))
            if media is None:
                raise Refused(406, f"The answer can be {RESPONSE_JSON}, {PLAIN_JSON} or {EVENT_STREAM}; `Accept` allows none.")
            streams = media == EVENT_STREAM
            kind = None
            if streams or scope["method"] == "GET":
                kind = await graph.kind_of(request.query, request.operation_name, credential_of(headers), request_id=request_id)
            if scope["method"] == "GET" and kind not in (None, "query", *(["subscription"] if streams else ())):
                raise Refused(405, "GET serves queries alone; send this operation with POST.", allow="POST")
            RECEIVE.set(receive)
            outcome = await _run(graph, request, headers, request_id, follow=streams and kind == "subscription")
            if isinstance(outcome, Stream):
                await streaming.send_events(outcome, request_id, receive, send)
                return
            if outcome.is_stream:
                raise Refused(406, outcome.errors[0].message)
            if outcome.viewer_id is not None:
                state["user_id"] = outcome.viewer_id
            if not outcome.errors and not streams:
                await _send_data(send, outcome, media)
                return
            answer = answer_of(outcome, request_id, media)
            if streams and answer.status == 200:
                await streaming.send_once(answer.body, answer.headers, send)
                return
            body = orjson.dumps(answer.body)
        except Refused as refused:
            answer = _refusal(refused, request_id)
            if media == EVENT_STREAM and refused.status == 200:
                await streaming.send_once(answer.body, answer.headers, send)
                return
            body = orjson.dumps(answer.body)
        except ClientDisconnect:
            raise
        except Exception:
            # The graph masks what goes wrong inside it; this is for the rest, so that the shape holds even then.
            log.exception("the GraphQL door failed, request %s", request_id)
            message = "Something went wrong on our side; the log has it under this request id."
            answer = _refusal(Refused(500, message, Code.INTERNAL), request_id)
            body = orjson.dumps(answer.body)
        # What goes wrong before a stream begins is said as JSON.
        content_type = f"{PLAIN_JSON if media in (None, EVENT_STREAM) else media}; charset=utf-8"
        await _send(send, answer.status, body, {"content-type": content_type, **answer.headers})

    return app


async def _run(graph: Graph, request: Request, headers: Mapping[str, str], request_id: str, *, follow: bool) -> Outcome | Stream:
    query, variables, name, credential = request.query, request.variables, request.operation_name, credential_of(headers)
    if not follow:
        return await graph.run_text(query, variables, name, credential, request_id=request_id)
    return await subscribe(
        graph, query, variables, name, credential, request_id=request_id, after=streaming.last_event(headers.get("last-event-id"))
    )


async def _send_data(send: Send, outcome: Outcome, media: str) -> None:
    """The answer of an operation in which nothing went wrong: what `answer_of` and `_send` would make of it."""
    body = orjson.dumps({"data": outcome.data})
    headers = [*HEADERS[media], *rate_pairs(outcome.charge), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send(send: Send, status: int, body: bytes, headers: Mapping[str, str]) -> None:
    sent = {"cache-control": "no-store", "x-content-type-options": "nosniff", **headers}
    if status != 204:
        sent["content-length"] = str(len(body))
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in sent.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


# What the request says


def _negotiated(accept: str | None) -> str | None:
    """The media type of the answer, by RFC 9110 section 12.5.1; None when neither is wanted.

    Between equals, application/json unless the other is named: old clients accept anything, and know only that.
    """
    if not accept or accept == "*/*":
        return PLAIN_JSON
    return _chosen(accept) if len(accept) <= LONGEST_KEPT else _chosen.__wrapped__(accept)


@lru_cache(maxsize=256)
def _chosen(accept: str) -> str | None:
    quality: dict[str, float] = {}
    for item in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in item.split(";"))
        value = next((text[2:].strip() for text in parameters if text.startswith("q=")), "1")
        try:
            quality[kind] = float(value)
        except ValueError:
            quality[kind] = 0.0

    def wanted(kind: str) -> float:
        return next((quality[name] for name in (kind, "application/*", "*/*") if name in quality), 0.0)

    response, plain = wanted(RESPONSE_JSON), wanted(PLAIN_JSON)
    if quality.get(EVENT_STREAM, 0.0) > max(response, plain):
        return EVENT_STREAM
    if quality.get(EVENT_STREAM, 0.0) > 0 and not {RESPONSE_JSON, PLAIN_JSON, "application/*"} & quality.keys():
        # Between it and anything at all, it is what was named.
        return EVENT_STREAM
    if response > 0 and (response > plain or (response == plain and RESPONSE_JSON in quality)):
        return RESPONSE_JSON
    return PLAIN_JSON if plain > 0 else None


async def _read(scope: Scope, receive: Receive, headers: Mapping[str, str]) -> Request:
    if scope["method"] == "GET":
        return from_url(scope["query_string"])
    if scope["method"] != "POST":
        raise Refused(405, "Send operations with POST, or queries with GET.", allow=METHODS)
    body = await body_of(receive, headers)
    content_type = headers.get("content-type", "")
    if content_type != PLAIN_JSON and not _is_json(content_type):
        raise Refused(415, f"Send the operation as {PLAIN_JSON} in UTF-8.", accept_post=PLAIN_JSON)
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused(415, "Send the body without a content encoding.", accept_encoding="identity")
    return request_of(json_of(body, "The body"))


def _is_json(content_type: str) -> bool:
    """Whether it is JSON in UTF-8."""
    kind, *parameters = (part.strip().lower() for part in content_type.split(";"))
    charsets = [text[8:].strip('"') for text in parameters if text.startswith("charset=")]
    return kind == PLAIN_JSON and all(charset in ("utf-8", "utf8") for charset in charsets)


# What the answer says


def answer_of(outcome: Outcome, request_id: str, media: str) -> Answer:
    """What the door answers for an outcome, for whoever else asks the graph for whole answers. `media` is the wanted media type."""
    answer = _answer(outcome, request_id, media)
    return replace(answer, headers={**answer.headers, **headers}) if (headers := rate_headers(outcome.charge)) else answer


def _answer(outcome: Outcome, request_id: str, media: str) -> Answer:
    errors = [entry_of(problem, request_id) for problem in outcome.errors]
    codes = {problem.code for problem in outcome.errors}
    data = outcome.data
    if Code.UNAUTHENTICATED in codes:
        # RFC 9110 section 15.5.2 wants a challenge; Bearer opens no dialogue in browsers.
        return Answer(401, {"errors": errors, "data": None}, {"www-authenticate": "Bearer"})
    if not errors:
        return Answer(200, {"data": data}, {})
    body = result_of(outcome, request_id)
    if data is None or all(value is None for value in data.values()):
        wait = max(problem.retry_after or 0 for problem in outcome.errors)
        if Code.UNAVAILABLE in codes:
            return Answer(503, body, {"retry-after": str(wait or RETRY_SECONDS)})
        if Code.LIMIT_EXCEEDED in codes and wait:
            return Answer(429, body, {"retry-after": str(wait)})
    if not never_ran(outcome):
        return Answer(200, body, {})
    if Code.INTERNAL in codes:
        return Answer(500, body, {})
    return Answer(200 if media == PLAIN_JSON else 400, body, {})


def _refusal(refused: Refused, request_id: str) -> Answer:
    extensions = {"code": refused.code.value, "requestId": request_id}
    return Answer(refused.status, {"errors": [{"message": refused.message, "extensions": extensions}]}, refused.headers)
