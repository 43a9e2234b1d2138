"""What a request from outside says: its headers, its JSON, the operation in it. For both the HTTP door and the WebSocket door."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from graph import limits
from graph.errors import Code
from graph.execute import Graph
from graph.trusted import ID, PREFIX

PARAMETERS = 1_000


class Refused(Exception):
    """A request that is answered without asking the graph."""

    def __init__(self, status: int, message: str, code: Code = Code.BAD_REQUEST, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass(slots=True)
class Request:
    """`query` is empty where the operation is asked for by `document_id`, until `resolved` has found its text.

    `is_persisted_query`: the id is the hash that a client of automatic persisted queries sent in place of the text.
    """

    query: str
    variables: dict[str, Any]
    operation_name: str | None
    document_id: str | None = None
    is_persisted_query: bool = False


def headers_of(scope: Scope) -> dict[str, str]:
    """By their names, which servers give in lower case; of one sent several times, the values joined by commas as RFC 9110 section 5.3
    reads them."""
    given = scope["headers"]
    found = {name.decode("latin-1"): value.decode("latin-1").strip() for name, value in given}
    if len(found) == len(given):
        return found
    found.clear()
    for name, value in given:
        key, text = name.decode("latin-1"), value.decode("latin-1").strip()
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def credential_of(headers: Mapping[str, str]) -> str | None:
    """The token of PRIVATE-TOKEN, else of `Authorization: Bearer`."""
    if token := headers.get("private-token"):
        return token
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


async def body_of(receive: Receive, headers: Mapping[str, str]) -> bytes:
    """The whole body; refused as soon as it is announced or found to be over the limit."""
    announced = headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and (len(announced) > 12 or int(announced) > limits.BODY_BYTES):
        raise _too_long()
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limits.BODY_BYTES:
            raise _too_long()
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_long() -> Refused:
    message = f"The body is over {limits.BODY_BYTES:,} bytes. Send less at once; files have doors of their own."
    return Refused(413, message, Code.LIMIT_EXCEEDED, connection="close")


def pairs_of(query_string: bytes) -> list[tuple[str, str]]:
    """The parameters of a URL, in their order."""
    if len(query_string) > limits.BODY_BYTES:
        raise Refused(414, f"The URL is over {limits.BODY_BYTES:,} bytes; use POST.", Code.LIMIT_EXCEEDED)
    try:
        text = query_string.decode("ascii")
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=PARAMETERS)
    except ValueError:
        raise Refused(400, f"The URL's parameters are not UTF-8, or more than {PARAMETERS:,}.") from None


def from_url(query_string: bytes) -> Request:
    given: dict[str, Any] = {}
    for name, value in pairs_of(query_string):
        if name in ("query", "documentId", "operationName", "variables", "extensions"):
            if name in given:
                raise Refused(400, f"`{name}` is given twice.")
            given[name] = value
    for name in ("variables", "extensions"):
        if name in given:
            given[name] = json_of(given[name].encode(), f"`{name}`")
    return request_of(given)


def json_of(text: bytes, what: str) -> object:
    # Neither is there more than the commas and brackets that it has, and most bodies have few.
    opened = text.count(b"{") + text.count(b"[")
    if opened > limits.JSON_DEPTH or opened + text.count(b",") > limits.JSON_VALUES:
        _check_size(text, what)
    try:
        value: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise Refused(400, f"{what} is not JSON in UTF-8.") from None
    return value


_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""A string of JSON, or the rest of a text that ends in one: no character is looked at twice."""
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NOT_STRUCTURE = bytes(set(range(256)) - set(b"[]{},"))


def _check_size(text: bytes, what: str) -> None:
    """Raises Refused for too many values and too deep a nesting, before anything is made of them. The time is linear in the length."""
    structure = _STRING.sub(b"", text).translate(_SQUARE, _NOT_STRUCTURE)
    commas = structure.count(b",")
    if commas + structure.count(b"[") > limits.JSON_VALUES:
        raise Refused(400, f"{what} has more than {limits.JSON_VALUES:,} values. Send less at once.", Code.LIMIT_EXCEEDED)
    brackets = structure.replace(b",", b"")
    for _ in range(limits.JSON_DEPTH):
        if b"[" not in brackets:
            return
        # What holds nothing goes, level by level from within.
        brackets = brackets.replace(b"[]", b"")
    if brackets.count(b"[") == brackets.count(b"]") > 0:
        raise Refused(400, f"{what} is nested deeper than {limits.JSON_DEPTH} levels. Send it flatter.", Code.LIMIT_EXCEEDED)


def request_of(given: object) -> Request:
    """The parameters of the specification's section 5.1, and of its appendix on persisted documents; others are ignored, as it asks."""
    if isinstance(given, list):
        raise Refused(400, "Batches are not served: send one operation in a request.")
    if not isinstance(given, dict):
        raise Refused(400, "The body is not a JSON object.")
    query, name, document_id = given.get("query"), given.get("operationName"), given.get("documentId")
    variables, extensions = given.get("variables"), given.get("extensions")
    if document_id is not None:
        if not isinstance(document_id, str) or not document_id:
            raise Refused(400, "`documentId` is not a text.")
        if query is not None:
            raise Refused(400, "Send `query` or `documentId`, not both.")
    if name is not None and not isinstance(name, str):
        raise Refused(400, "`operationName` is not a text.")
    if variables is not None and not isinstance(variables, dict):
        raise Refused(400, "`variables` is not an object.")
    if extensions is not None and not isinstance(extensions, dict):
        raise Refused(400, "`extensions` is not an object.")
    persisted = extensions.get("persistedQuery") if extensions and document_id is None and query in (None, "") else None
    if persisted is not None:
        document_id = _id_of_persisted_query(persisted)
    elif document_id is None and (not isinstance(query, str) or not query):
        raise Refused(400, "`query` is missing, or is not a text.")
    return Request(query or "", variables or {}, name or None, document_id, persisted is not None)


def _id_of_persisted_query(persisted: object) -> str:
    """The document id for the `persistedQuery` extension of automatic persisted queries."""
    if not isinstance(persisted, dict):
        raise Refused(400, "`extensions.persistedQuery` is not an object.")
    return f"{PREFIX}{persisted.get('sha256Hash')}"


def resolved(graph: Graph, request: Request) -> Request:
    """The request with the text of the trusted document that it names.

    The hash of an automatic persisted query is that of the text, as the id of a trusted document is. Other hashes get the error with
    which Apollo's clients send texts from then on, at status 200 as their servers answer; texts are never registered.
    """
    if request.document_id is None:
        return request
    text = graph.trusted.text_of(request.document_id)
    if text is not None:
        return replace(request, query=text)
    if request.is_persisted_query:
        raise Refused(200, "PersistedQueryNotSupported", Code.PERSISTED_QUERY_NOT_SUPPORTED)
    if not graph.trusted:
        raise Refused(400, "No documents are served here by their ids: send `query`.")
    if not ID.fullmatch(request.document_id):
        raise Refused(400, f"A `documentId` is `{PREFIX}` and 64 digits of lower-case hex.")
    raise Refused(400, f"There is no document {request.document_id} here. Is the text the very one that was registered?")
