"""The door to questions with names: `GET /q/NAME.json` and `GET /q/NAME.csv`, for spreadsheets, scripts and panels that fetch an address.

NAME is that of the query of a trusted document. Its variables are the parameters of the address (`forgefront/url_variables.py`), and the
credential stands in a header, as at /graphql. As JSON it answers `{"data": …}`; as CSV (RFC 4180) the rows of one list
(`forgefront/flat_rows.py`), which `?list=PATH` chooses. It runs through the same door to the graph as text does: the same rights, limits
and rate.

    400  parameters that are unknown, missing or cannot be read: all of them are named       401  no credential, or one that is not good
    404  no such question; a mutation or a subscription is none                              405  other methods than GET and HEAD

What the graph says is answered with the statuses of the GraphQL door. CSV has no place for errors beside data: there the first error is
the answer, with the status that v3 would give it.

Answers have an ETag over their bytes, and `If-None-Match` is answered with 304 where nothing has changed.
"""

import re
from collections.abc import Mapping
from hashlib import sha256

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forgefront.flat_rows import Tables
from forgefront.url_variables import variables_of
from graph.answers import rate_headers, result_of
from graph.execute import Graph
from graph.http import RESPONSE_JSON, answer_of
from graph.outcomes import Outcome
from graph.requests import Refused, credential_of, headers_of, pairs_of
from graph.trusted import Document
from rest_v3.errors import STATUSES
from rest_v3.operations import describe

PATH = re.compile(r"/q/([A-Za-z_][A-Za-z0-9_]*)\.(json|csv)")
ROUTES = {"json": "/q/:name.json", "csv": "/q/:name.csv"}
KINDS = {"json": "application/json", "csv": "text/csv; charset=utf-8; header=present"}
ALLOWED = "GET, HEAD"
LIST = "list"
"""The parameter that chooses the list of a CSV answer, unless the operation has a variable of this name."""
OURS = {"cache-control": "private, no-cache", "vary": "PRIVATE-TOKEN, Authorization"}


class _Question:
    def __init__(self, document: Document) -> None:
        self.text = document.text
        described = describe(document.read.prepared)
        self.variables = described.variables
        self.tables = Tables(described.selected)


class Questions:
    """Answers the paths that `matches` knows. Which questions there are is settled when it is made."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._questions = {str(document.name): _Question(document) for document in graph.trusted.queries()}

    @staticmethod
    def matches(path: str) -> bool:
        return PATH.fullmatch(path) is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = PATH.fullmatch(scope["path"])
        assert found is not None, "who sends a path here asked `matches`"  # noqa: S101
        name, form = found.groups()
        state = scope.setdefault("state", {})
        state["route"] = ROUTES[form]
        headers = headers_of(scope)
        try:
            response = await self._answer(scope, headers, name, form)
        except Refused as refused:
            content = orjson.dumps({"message": refused.message})
            response = Response(content, refused.status, {"cache-control": "no-store", **refused.headers}, "application/json")
        if scope["method"] == "HEAD":
            # Its headers, with the length, are made already.
            response.body = b""
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, headers: Mapping[str, str], name: str, form: str) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            raise Refused(405, "405 Method Not Allowed", allow=ALLOWED)
        credential = credential_of(headers)
        if credential is None:
            raise Refused(401, "401 Unauthorized", www_authenticate="Bearer")
        question = self._question(name)
        pairs = pairs_of(scope["query_string"])
        wanted: str | None = None
        if form == "csv" and LIST not in question.variables:
            wanted = next((value for key, value in pairs if key == LIST), None)
            pairs = [pair for pair in pairs if pair[0] != LIST]
        table = question.tables.get(wanted)
        if table is None:
            raise Refused(400, f"list: it is one of {', '.join(question.tables.names) or 'none'}.")
        variables = variables_of(question.variables, pairs)
        state = scope["state"]
        request_id = str(state.get("request_id", ""))
        outcome = await self._graph.run_text(question.text, variables, None, credential, request_id=request_id)
        if outcome.viewer_id is not None:
            state["user_id"] = outcome.viewer_id
        if outcome.errors or outcome.data is None:
            return _trouble(outcome, request_id, form)
        body = orjson.dumps({"data": outcome.data}) if form == "json" else table.csv_of(outcome.data).encode()
        tag = f'"{sha256(body).hexdigest()[:32]}"'
        more = {**OURS, **rate_headers(outcome.charge), "etag": tag}
        if _has(headers.get("if-none-match"), tag):
            return Response(None, 304, more)
        return Response(body, 200, {**more, "content-type": KINDS[form]})

    def _question(self, name: str) -> _Question:
        question = self._questions.get(name)
        if question is not None:
            return question
        document = self._graph.trusted.named(name)
        if document is None:
            raise Refused(404, "404 Not Found")
        raise Refused(404, f"404 Not Found - {name} is a {document.kind}: send it to /graphql")


def _trouble(outcome: Outcome, request_id: str, form: str) -> Response:
    answer = answer_of(outcome, request_id, RESPONSE_JSON)
    status, body = answer.status, answer.body
    if status == 200 and form == "csv":
        status, body = STATUSES[str(outcome.errors[0].code)], result_of(outcome, request_id)
    return Response(orjson.dumps(body), status, {**OURS, **answer.headers, "cache-control": "no-store"}, "application/json")


def _has(header: str | None, tag: str) -> bool:
    """Whether If-None-Match names the tag (RFC 9110, section 13.1.2)."""
    if header is None:
        return False
    return header.strip() == "*" or tag in (given.strip().removeprefix("W/") for given in header.split(","))
