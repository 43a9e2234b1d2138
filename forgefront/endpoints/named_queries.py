"""The endpoint of named queries: `GET /q/NAME.json` and `GET /q/NAME.csv`, for spreadsheets, scripts and dashboards.

NAME is that of the query of a trusted document. Its variables are the parameters of the URL (`forgefront/endpoints/query_variables.py`).
The credential is in a header, as at /graphql, or is the password of Basic credentials (RFC 7617) with any user name, since spreadsheets can
send nothing else. The JSON response is `{"data": …}`; the CSV response (RFC 4180) has the rows of one list
(`forgefront/endpoints/csv_tables.py`), which `?list=PATH` selects. Queries run as at /graphql, with the same permissions, limits and rate.

 400  parameters that are unknown, missing or invalid; all of them are named       401  the credential is missing or invalid
 403  the access token lacks the scope to read                                     405  other methods than GET and HEAD
 404  there is no such query, or it is a mutation or a subscription

GraphQL errors have the statuses of /graphql. CSV cannot contain errors beside data: there the first error is the response, with its status
in v3.

`GET /q` lists the queries for callers with a valid credential, as JSON or, where HTML is accepted, as a page
(`forgefront/endpoints/named_query_index.py`).

Browsers store Basic credentials and send them automatically, also in requests from other sites. This is safe: these paths change nothing,
other origins can neither read a response to such a request (`forgefront/server/cors.py`) nor embed one, and the realm is not that of git.

Responses have an ETag of their bytes, and `If-None-Match` returns 304 when nothing has changed. If `rateLimit` is selected beside other
fields, the tag is a weak one without it: the request itself changes its value, which a 304 has in its headers.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forgefront.endpoints.csv_tables import CsvTable, CsvTables
from forgefront.endpoints.named_query_index import PAGE_CSP, describe_query, render_index
from forgefront.endpoints.query_variables import parse_variables
from forgefront.pages import prefers_html
from forgefront.server.basic_credentials import read_basic_password
from forgefront.server.etags import make_etag, make_weak_etag, matches_etag
from graph.documents.trusted_documents import TrustedDocument
from graph.errors import Code
from graph.http.content_negotiation import RESPONSE_JSON
from graph.http.endpoint import make_response
from graph.http.json_pieces import dump_json
from graph.http.requests import GraphqlRequestError, credential_of, headers_of, parse_pairs
from graph.http.responses import rate_headers, serialize_result
from graph.operations.execution import Graph, prepare
from graph.operations.results import OperationResult
from graph.types.server import RateLimit
from rest_v3.errors import STATUS_BY_CODE
from rest_v3.operations import describe_operation

PATH_PATTERN = re.compile(r"/q/([A-Za-z_][A-Za-z0-9_]*)\.(json|csv)")
INDEX_ROUTE = "/q"
CHALLENGE = 'Basic realm="Forgefront queries", charset="UTF-8"'
ROUTES = {"json": "/q/:name.json", "csv": "/q/:name.csv"}
CONTENT_TYPES = {"json": "application/json", "csv": "text/csv; charset=utf-8; header=present"}
ALLOWED_METHODS = "GET, HEAD"
LIST_PARAMETER = "list"
"""The parameter that selects the list of a CSV response, unless the operation has a variable of this name."""
RESPONSE_HEADERS = {
    "cache-control": "private, no-cache",
    "vary": "PRIVATE-TOKEN, Authorization",
    "cross-origin-resource-policy": "same-origin",
}
VIEWER_OPERATION = prepare("query Viewer { viewer { databaseId } }", "Viewer")


class _NamedQuery:
    def __init__(self, document: TrustedDocument) -> None:
        self.document = document
        self.source = document.text
        described = describe_operation(document.operation.prepared)
        self.variables = described.variables
        self.tables = CsvTables(described.root_fields)
        rates = {key for key, each in described.root_fields.items() if each.type_name == RateLimit.__name__}
        self._untagged = frozenset(rates if len(rates) < len(described.root_fields) else ())

    async def serialize(self, result: OperationResult, format_name: str, table: CsvTable) -> tuple[bytes, str]:
        """The body of a response, and its ETag."""
        body = await _serialize(result, result.data, format_name, table)
        if not self._untagged:
            return body, make_etag(body)
        tagged = {**(result.data or {}), **dict.fromkeys(self._untagged)}
        return body, make_weak_etag(await _serialize(result, tagged, format_name, table))


class NamedQueriesEndpoint:
    """Serves the paths of PATH_PATTERN; any other is the index. The set of queries is fixed at construction."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._queries = {str(document.name): _NamedQuery(document) for document in graph.trusted_documents.queries()}
        self._index: tuple[bytes, bytes] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = PATH_PATTERN.fullmatch(scope["path"])
        state = scope.setdefault("state", {})
        headers = headers_of(scope)
        credential = credential_of(headers) or read_basic_password(headers.get("authorization", ""))
        try:
            if found is None:
                state["route"] = INDEX_ROUTE
                response = await self._respond_index(scope, headers, credential)
            else:
                name, format_name = found.groups()
                state["route"] = ROUTES[format_name]
                response = await self._respond_query(scope, headers, credential, name, format_name)
        except GraphqlRequestError as refused:
            response = await self._respond_rejection(scope, refused, credential)
        if response.status_code == 401:
            response.headers["www-authenticate"] = CHALLENGE if _may_challenge_for_password(headers) else "Bearer"
        if scope["method"] == "HEAD":
            # Its headers, with the length, are complete.
            response.body = b""
        await response(scope, receive, send)

    async def _respond_index(self, scope: Scope, headers: Mapping[str, str], credential: str | None) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            raise GraphqlRequestError(405, "405 Method Not Allowed", allow=ALLOWED_METHODS)
        if not await self._is_authenticated(scope, credential):
            raise GraphqlRequestError(401, "401 Unauthorized")
        if self._index is None:
            # Built at the first request, since it does not change.
            base = f"{self._graph.services.external_url}/q/"
            entries = [
                describe_query(each.document, each.variables, each.tables.names, base + name) for name, each in self._queries.items()
            ]
            self._index = orjson.dumps({"queries": entries}), render_index(entries).encode()
        as_json, as_page = self._index
        more = {**RESPONSE_HEADERS, "vary": f"{RESPONSE_HEADERS['vary']}, Accept"}
        if prefers_html(headers.get("accept", "")):
            return Response(as_page, 200, {**more, "content-security-policy": PAGE_CSP, "content-type": "text/html; charset=utf-8"})
        return Response(as_json, 200, {**more, "content-type": CONTENT_TYPES["json"]})

    async def _respond_rejection(self, scope: Scope, rejection: GraphqlRequestError, credential: str | None) -> Response:
        if rejection.status in (400, 404):
            # The queries and their parameters are not public.
            try:
                if not await self._is_authenticated(scope, credential):
                    rejection = GraphqlRequestError(401, "401 Unauthorized")
            except GraphqlRequestError as unavailable:
                rejection = unavailable
        content = orjson.dumps({"message": rejection.message})
        return Response(content, rejection.status, {"cache-control": "no-store", **rejection.headers}, "application/json")

    async def _is_authenticated(self, scope: Scope, credential: str | None) -> bool:
        """Whether the caller's credential is valid.

        Raises GraphqlRequestError: 403 for a token that may not read, 503 if that cannot be determined now.
        """
        if credential is None:
            return False
        state = scope["state"]
        result = await self._graph.run(VIEWER_OPERATION, {}, credential, request_id=str(state.get("request_id", "")))
        if any(error.code is Code.UNAVAILABLE for error in result.errors):
            raise GraphqlRequestError(503, "503 Service Unavailable", Code.UNAVAILABLE, retry_after="2")
        if (scope_error := next((error for error in result.errors if error.code is Code.INSUFFICIENT_SCOPE), None)) is not None:
            raise GraphqlRequestError(403, f"403 Forbidden - {scope_error.message}", scope_error.code)
        if result.viewer_id is not None:
            state["user_id"] = result.viewer_id
        return result.viewer_id is not None and not result.errors

    async def _respond_query(
        self, scope: Scope, headers: Mapping[str, str], credential: str | None, name: str, format_name: str
    ) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            raise GraphqlRequestError(405, "405 Method Not Allowed", allow=ALLOWED_METHODS)
        if credential is None:
            raise GraphqlRequestError(401, "401 Unauthorized")
        query = self._find_query(name)
        pairs = parse_pairs(scope["query_string"])
        list_name: str | None = None
        if format_name == "csv" and LIST_PARAMETER not in query.variables:
            list_name = next((value for key, value in pairs if key == LIST_PARAMETER), None)
            pairs = [pair for pair in pairs if pair[0] != LIST_PARAMETER]
        table = query.tables.get(list_name)
        if table is None:
            raise GraphqlRequestError(400, f"list: must be one of {', '.join(query.tables.names) or 'none'}.")
        variables = parse_variables(query.variables, pairs)
        state = scope["state"]
        request_id = str(state.get("request_id", ""))
        result = await self._graph.run_document(query.source, variables, None, credential, request_id=request_id)
        if result.viewer_id is not None:
            state["user_id"] = result.viewer_id
        if result.errors or result.data is None:
            return _error_response(result, request_id, format_name)
        body, etag = await query.serialize(result, format_name, table)
        more = {**RESPONSE_HEADERS, **rate_headers(result.rate_usage), "etag": etag}
        if matches_etag(headers.get("if-none-match"), etag):
            return Response(None, 304, more)
        return Response(body, 200, {**more, "content-type": CONTENT_TYPES[format_name]})

    def _find_query(self, name: str) -> _NamedQuery:
        query = self._queries.get(name)
        if query is not None:
            return query
        document = self._graph.trusted_documents.named(name)
        if document is None:
            raise GraphqlRequestError(404, "404 Not Found")
        raise GraphqlRequestError(404, f"404 Not Found - {name} is a {document.kind}: send it to /graphql")


async def _serialize(result: OperationResult, data: Any, format_name: str, table: CsvTable) -> bytes:
    if format_name == "json":
        return await dump_json({"data": data}, is_large=result.is_large)
    if result.is_large:
        return await asyncio.to_thread(lambda: table.to_csv(data).encode())
    return table.to_csv(data).encode()


def _may_challenge_for_password(headers: Mapping[str, str]) -> bool:
    """Whether a browser may show its sign-in dialog: for a navigation, but not for the script of a page, which would wait until the dialog
    is closed, and not for a caller who sent a token."""
    by_script = "origin" in headers or headers.get("sec-fetch-mode", "navigate") != "navigate"
    return not by_script and credential_of(headers) is None


def _error_response(result: OperationResult, request_id: str, form: str) -> Response:
    response = make_response(result, request_id, RESPONSE_JSON)
    status, body = response.status, response.body
    if status == 200 and form == "csv":
        status, body = STATUS_BY_CODE[str(result.errors[0].code)], serialize_result(result, request_id)
    return Response(orjson.dumps(body), status, {**RESPONSE_HEADERS, **response.headers, "cache-control": "no-store"}, "application/json")
