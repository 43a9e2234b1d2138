"""The GraphQL door over HTTP: reads a request, has the graph run it, answers JSON.

Follows the GraphQL over HTTP specification (https://graphql.github.io/graphql-over-http/draft/), with POST of
application/json and GET of queries. It decides nothing but what HTTP asks of it:

    405  other methods, and GET of anything but a query          413  a body over 1 MiB, counted as it comes
    415  other content types, encodings and character sets       406  nothing in `Accept` that can be sent
    400  broken JSON, JSON deeper than 64, wrong shapes, batches

and for what the graph answers:

    401  an operation without a viewer: `data` is null           429  a rate is exceeded: with Retry-After
    503  unavailable: with Retry-After                           500  a fault of the service
    400  the operation itself is wrong, so that there is no `data`; 200 for those who accept application/json only,
         as the specification wants it for old clients
    200  everything else, also with errors beside the data

The credential is read from the headers PRIVATE-TOKEN and `Authorization: Bearer`, and from nowhere else (DECISIONS 3), so
that no other site can act for a browser's user. Every answer is JSON, is never stored by caches and carries the request's
id in each error.
"""

import logging
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from graph import limits
from graph.errors import Code
from graph.execute import Graph, Outcome, Problem

RESPONSE_JSON = "application/graphql-response+json"
PLAIN_JSON = "application/json"
METHODS = "GET, POST, OPTIONS"
PARAMETERS = 1_000
RETRY_SECONDS = 2
SUGGESTION = re.compile(r"\s*Did you mean .*\Z", re.DOTALL)

log = logging.getLogger(__name__)


class Refused(Exception):
    """A request that is answered without asking the graph."""

    def __init__(self, status: int, message: str, code: Code = Code.BAD_REQUEST, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass(frozen=True, slots=True)
class Request:
    query: str
    variables: dict[str, Any]
    operation_name: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: dict[str, Any]
    headers: Mapping[str, str]


def door(graph: Graph) -> ASGIApp:
    """The endpoint as an ASGI app, whatever path it is mounted at."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            # Before it is accepted, so the server answers the handshake with 403.
            await send({"type": "websocket.close", "code": 1008})
            return
        state = scope.setdefault("state", {})
        state["route"] = "/graphql"
        request_id: str = state.setdefault("request_id", uuid.uuid4().hex)
        if scope["method"] == "OPTIONS":
            await _send(send, 204, b"", {"allow": METHODS})
            return
        headers = _headers(scope)
        media = _negotiated(headers.get("accept"))
        try:
            request = await _read(scope, receive, headers)
            if media is None:
                raise Refused(406, f"The answer can be {RESPONSE_JSON} or {PLAIN_JSON}; `Accept` allows neither.")
            kind = graph.kind_of(request.query, request.operation_name) if scope["method"] == "GET" else None
            if kind not in (None, "query"):
                raise Refused(405, "GET serves queries alone; send this operation with POST.", allow="POST")
            outcome = await graph.run_text(
                request.query, request.variables, request.operation_name, _credential(headers), request_id=request_id
            )
            if outcome.viewer_id is not None:
                state["user_id"] = outcome.viewer_id
            answer = _answer(outcome, request_id, media)
            body = orjson.dumps(answer.body)
        except Refused as refused:
            answer = _refusal(refused, request_id)
            body = orjson.dumps(answer.body)
        except ClientDisconnect:
            raise
        except Exception:
            # The graph masks what goes wrong inside it; this is for the rest, so that the shape holds even then.
            log.exception("the GraphQL door failed, request %s", request_id)
            message = "Something went wrong on our side; the log has it under this request id."
            answer = _refusal(Refused(500, message, Code.INTERNAL), request_id)
            body = orjson.dumps(answer.body)
        content_type = f"{media or PLAIN_JSON}; charset=utf-8"
        await _send(send, answer.status, body, {"content-type": content_type, **answer.headers})

    return app


async def _send(send: Send, status: int, body: bytes, headers: Mapping[str, str]) -> None:
    sent = {"cache-control": "no-store", "x-content-type-options": "nosniff", **headers}
    if status != 204:
        sent["content-length"] = str(len(body))
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in sent.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


# What the request says


def _headers(scope: Scope) -> dict[str, str]:
    """Lower-case names; of a name sent several times, the values joined by commas as RFC 9110 section 5.3 reads them."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def _credential(headers: Mapping[str, str]) -> str | None:
    """The token of PRIVATE-TOKEN, else of `Authorization: Bearer`."""
    if token := headers.get("private-token"):
        return token
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _negotiated(accept: str | None) -> str | None:
    """The media type of the answer, by RFC 9110 section 12.5.1; None when neither is wanted.

    Between equals, application/json unless the other is named: old clients accept anything, and know only that.
    """
    if not accept:
        return PLAIN_JSON
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
    if response > 0 and (response > plain or (response == plain and RESPONSE_JSON in quality)):
        return RESPONSE_JSON
    return PLAIN_JSON if plain > 0 else None


async def _read(scope: Scope, receive: Receive, headers: Mapping[str, str]) -> Request:
    if scope["method"] == "GET":
        return _from_url(scope["query_string"])
    if scope["method"] != "POST":
        raise Refused(405, "Send operations with POST, or queries with GET.", allow=METHODS)
    body = await _body(receive, headers)
    kind, *parameters = (part.strip().lower() for part in headers.get("content-type", "").split(";"))
    charsets = [text[8:].strip('"') for text in parameters if text.startswith("charset=")]
    if kind != PLAIN_JSON or any(charset not in ("utf-8", "utf8") for charset in charsets):
        raise Refused(415, f"Send the operation as {PLAIN_JSON} in UTF-8.", accept_post=PLAIN_JSON)
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused(415, "Send the body without a content encoding.", accept_encoding="identity")
    return _request(_json(body, "The body"))


async def _body(receive: Receive, headers: Mapping[str, str]) -> bytes:
    """The whole body; refused as soon as it is announced or found to be over the limit."""
    too_long = Refused(413, f"The body is over {limits.BODY_BYTES:,} bytes.", Code.LIMIT_EXCEEDED, connection="close")
    announced = headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and (len(announced) > 12 or int(announced) > limits.BODY_BYTES):
        raise too_long
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > limits.BODY_BYTES:
            raise too_long
        more = message.get("more_body", False)
    return bytes(body)


def _from_url(query_string: bytes) -> Request:
    if len(query_string) > limits.BODY_BYTES:
        raise Refused(414, f"The URL is over {limits.BODY_BYTES:,} bytes; use POST.", Code.LIMIT_EXCEEDED)
    try:
        text = query_string.decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=PARAMETERS)
    except ValueError:
        raise Refused(400, f"The URL's parameters are not UTF-8, or more than {PARAMETERS:,}.") from None
    given: dict[str, Any] = {}
    for name, value in pairs:
        if name in ("query", "operationName", "variables", "extensions"):
            if name in given:
                raise Refused(400, f"`{name}` is given twice.")
            given[name] = value
    for name in ("variables", "extensions"):
        if name in given:
            given[name] = _json(given[name].encode(), f"`{name}`")
    return _request(given)


def _json(text: bytes, what: str) -> object:
    try:
        value: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise Refused(400, f"{what} is not JSON in UTF-8.") from None
    level: Iterable[Any] = [value]
    for _ in range(limits.JSON_DEPTH):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return value
    raise Refused(400, f"{what} is nested deeper than {limits.JSON_DEPTH} levels.", Code.LIMIT_EXCEEDED)


def _request(given: object) -> Request:
    """The parameters of the specification's section 5.1; others are ignored, as it asks."""
    if isinstance(given, list):
        raise Refused(400, "Batches are not served: send one operation in a request.")
    if not isinstance(given, dict):
        raise Refused(400, "The body is not a JSON object.")
    query, name = given.get("query"), given.get("operationName")
    variables, extensions = given.get("variables"), given.get("extensions")
    if not isinstance(query, str) or not query:
        raise Refused(400, "`query` is missing, or is not a text.")
    if not isinstance(name, str | None):
        raise Refused(400, "`operationName` is not a text.")
    if not isinstance(variables, dict | None):
        raise Refused(400, "`variables` is not an object.")
    if not isinstance(extensions, dict | None):
        raise Refused(400, "`extensions` is not an object.")
    return Request(query, variables or {}, name or None)


# What the answer says


def _answer(outcome: Outcome, request_id: str, media: str) -> Answer:
    errors = [_entry(problem, request_id) for problem in outcome.errors]
    codes = {problem.code for problem in outcome.errors}
    data = outcome.data
    if Code.UNAUTHENTICATED in codes:
        # RFC 9110 section 15.5.2 wants a challenge; Bearer opens no dialogue in browsers.
        return Answer(401, {"errors": errors, "data": None}, {"www-authenticate": "Bearer"})
    if not errors:
        return Answer(200, {"data": data}, {})
    # An error of a field has the field's path; one of the request has none, and then nothing was executed.
    never_ran = data is None and any(problem.path is None for problem in outcome.errors)
    body = {"errors": errors} if never_ran else {"errors": errors, "data": data}
    if data is None or all(value is None for value in data.values()):
        wait = max(problem.retry_after or 0 for problem in outcome.errors)
        if Code.UNAVAILABLE in codes:
            return Answer(503, body, {"retry-after": str(wait or RETRY_SECONDS)})
        if Code.LIMIT_EXCEEDED in codes and wait:
            return Answer(429, body, {"retry-after": str(wait)})
    if not never_ran:
        return Answer(200, body, {})
    if Code.INTERNAL in codes:
        return Answer(500, body, {})
    return Answer(400 if media == RESPONSE_JSON else 200, body, {})


def _entry(problem: Problem, request_id: str) -> dict[str, Any]:
    """One of `errors[]`. Names of fields that would fit are never suggested, since not everybody may introspect."""
    entry: dict[str, Any] = {"message": SUGGESTION.sub("", problem.message)}
    if problem.locations:
        entry["locations"] = problem.locations
    if problem.path is not None:
        entry["path"] = problem.path
    entry["extensions"] = {"code": problem.code.value, "requestId": request_id}
    return entry


def _refusal(refused: Refused, request_id: str) -> Answer:
    extensions = {"code": refused.code.value, "requestId": request_id}
    return Answer(refused.status, {"errors": [{"message": refused.message, "extensions": extensions}]}, refused.headers)
