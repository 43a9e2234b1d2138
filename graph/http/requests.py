"""Parses GraphQL requests of the HTTP and WebSocket endpoints: headers, JSON, and the operation."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl

import orjson
from starlette.types import Scope

from graph.documents.trusted_documents import ID_PATTERN, ID_PREFIX
from graph.errors import Code
from graph.operations import limits
from graph.operations.execution import Graph
from graph.operations.query_checks import QueryChecks

MAX_PARAMETERS = 1_000


class GraphqlRequestError(Exception):
    """An invalid request, for which no operation is run."""

    def __init__(self, status: int, message: str, code: Code = Code.BAD_REQUEST, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass(slots=True)
class GraphqlRequest:
    """A parsed request. `query` is empty if the request has a `document_id`, until `resolve_document` has found the document.

    `is_persisted_query`: the id is the hash that a client of automatic persisted queries sent. A request that is kept
    (`graph/http/known_requests.py`) is shared, and must not be changed except its `checks`.
    """

    query: str
    variables: dict[str, Any]
    operation_name: str | None
    document_id: str | None = None
    is_persisted_query: bool = False
    checks: QueryChecks = field(default_factory=QueryChecks)


def headers_of(scope: Scope) -> dict[str, str]:
    """Returns the headers by name, which servers pass in lower case; repeated headers are joined by commas (RFC 9110 section 5.3)."""
    raw_headers = scope["headers"]
    found = {name.decode("latin-1"): value.decode("latin-1").strip() for name, value in raw_headers}
    if len(found) == len(raw_headers):
        return found
    found.clear()
    for name, value in raw_headers:
        key, header_value = name.decode("latin-1"), value.decode("latin-1").strip()
        found[key] = f"{found[key]}, {header_value}" if key in found else header_value
    return found


def credential_of(headers: Mapping[str, str]) -> str | None:
    """Returns the token of PRIVATE-TOKEN, or else of `Authorization: Bearer`; None without either."""
    if token := headers.get("private-token"):
        return token
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def body_too_large_error() -> GraphqlRequestError:
    message = f"The body exceeds the limit of {limits.MAX_BODY_BYTES:,} bytes. Send less at once; files have separate endpoints."
    return GraphqlRequestError(413, message, Code.LIMIT_EXCEEDED, connection="close")


def parse_pairs(query_string: bytes) -> list[tuple[str, str]]:
    """Parses the parameters of a URL, in their order."""
    if len(query_string) > limits.MAX_BODY_BYTES:
        raise GraphqlRequestError(414, f"The URL exceeds the limit of {limits.MAX_BODY_BYTES:,} bytes; use POST.", Code.LIMIT_EXCEEDED)
    try:
        query = query_string.decode("ascii")
        return parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise GraphqlRequestError(400, f"The URL's parameters are not UTF-8, or there are more than {MAX_PARAMETERS:,}.") from None


def parse_url_request(query_string: bytes) -> GraphqlRequest:
    parameters: dict[str, Any] = {}
    for name, value in parse_pairs(query_string):
        if name in ("query", "documentId", "operationName", "variables", "extensions"):
            if name in parameters:
                raise GraphqlRequestError(400, f"`{name}` occurs more than once.")
            parameters[name] = value
    for name in ("variables", "extensions"):
        if name in parameters:
            parameters[name] = parse_json(parameters[name].encode(), f"`{name}`")
    return parse_request(parameters)


def parse_json(data: bytes, subject: str) -> object:
    # The numbers of commas and brackets are upper bounds of depth and values, and most bodies have few.
    open_brackets = data.count(b"{") + data.count(b"[")
    if open_brackets > limits.MAX_JSON_DEPTH or open_brackets + data.count(b",") > limits.MAX_JSON_VALUES:
        _check_json_size(data, subject)
    try:
        value: object = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise GraphqlRequestError(400, f"{subject} is not JSON in UTF-8.") from None
    return value


_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""A JSON string, or an unterminated one at the end; the pattern does not backtrack."""
_BRACES_TO_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NOT_STRUCTURE = bytes(set(range(256)) - set(b"[]{},"))


def _check_json_size(data: bytes, subject: str) -> None:
    """Raises GraphqlRequestError for too many values or too deep nesting, before the JSON is parsed. Takes linear time."""
    structure = _STRING.sub(b"", data).translate(_BRACES_TO_BRACKETS, _NOT_STRUCTURE)
    commas = structure.count(b",")
    if commas + structure.count(b"[") > limits.MAX_JSON_VALUES:
        raise GraphqlRequestError(
            400, f"{subject} has more than {limits.MAX_JSON_VALUES:,} values. Send fewer values.", Code.LIMIT_EXCEEDED
        )
    brackets = structure.replace(b",", b"")
    for _ in range(limits.MAX_JSON_DEPTH):
        if b"[" not in brackets:
            return
        # Removes the innermost level.
        brackets = brackets.replace(b"[]", b"")
    if brackets.count(b"[") == brackets.count(b"]") > 0:
        raise GraphqlRequestError(
            400, f"{subject} is nested deeper than {limits.MAX_JSON_DEPTH} levels. Reduce the nesting.", Code.LIMIT_EXCEEDED
        )


def parse_request(parameters: object) -> GraphqlRequest:
    """Parses the parameters of the specification's section 5.1 and of its appendix on persisted documents; others are ignored."""
    if isinstance(parameters, list):
        raise GraphqlRequestError(400, "Batches are not supported: send one operation per request.")
    if not isinstance(parameters, dict):
        raise GraphqlRequestError(400, "The body must be a JSON object.")
    query, name, document_id = parameters.get("query"), parameters.get("operationName"), parameters.get("documentId")
    variables, extensions = parameters.get("variables"), parameters.get("extensions")
    if document_id is not None:
        if not isinstance(document_id, str) or not document_id:
            raise GraphqlRequestError(400, "`documentId` must be a string.")
        if query is not None:
            raise GraphqlRequestError(400, "Send `query` or `documentId`, not both.")
    if name is not None and not isinstance(name, str):
        raise GraphqlRequestError(400, "`operationName` must be a string.")
    if variables is not None and not isinstance(variables, dict):
        raise GraphqlRequestError(400, "`variables` must be an object.")
    if extensions is not None and not isinstance(extensions, dict):
        raise GraphqlRequestError(400, "`extensions` must be an object.")
    persisted = extensions.get("persistedQuery") if extensions and document_id is None and query in (None, "") else None
    if persisted is not None:
        document_id = _id_of_persisted_query(persisted)
    elif document_id is None and (not isinstance(query, str) or not query):
        raise GraphqlRequestError(400, "`query` is missing or not a string.")
    return GraphqlRequest(query or "", variables or {}, name or None, document_id, persisted is not None)


def _id_of_persisted_query(extension: object) -> str:
    """Returns the document id of the `persistedQuery` extension of automatic persisted queries."""
    if not isinstance(extension, dict):
        raise GraphqlRequestError(400, "`extensions.persistedQuery` must be an object.")
    return f"{ID_PREFIX}{extension.get('sha256Hash')}"


def resolve_document(graph: Graph, request: GraphqlRequest) -> GraphqlRequest:
    """Returns the request with the text of the trusted document that it refers to.

    The hash of an automatic persisted query is the SHA-256 of the text, like the id of a trusted document. For other hashes the error is
    the one after which Apollo's clients send documents, with status 200 as from Apollo's servers; documents are never registered.
    """
    if request.document_id is None:
        return request
    source = graph.trusted_documents.text_of(request.document_id)
    if source is not None:
        return replace(request, query=source, document_id=None)
    if request.is_persisted_query:
        raise GraphqlRequestError(200, "PersistedQueryNotSupported", Code.PERSISTED_QUERY_NOT_SUPPORTED)
    if not graph.trusted_documents:
        raise GraphqlRequestError(400, "This server has no trusted documents: send `query`.")
    if not ID_PATTERN.fullmatch(request.document_id):
        raise GraphqlRequestError(400, f"A `documentId` must be `{ID_PREFIX}` followed by 64 lower-case hex digits.")
    raise GraphqlRequestError(400, f"Unknown document {request.document_id}. Check that the registered text is exactly the same.")
