"""The door to questions with names: `GET /q/NAME.json` and `GET /q/NAME.csv`, for spreadsheets, scripts and panels that fetch an address.

NAME is that of the query of a trusted document. Its variables are the parameters of the address (`forgefront/url_variables.py`), and the
credential stands in a header, as at /graphql, or is the password of Basic credentials (RFC 7617), with any user name: spreadsheets can send
nothing else. As JSON it answers `{"data": …}`; as CSV (RFC 4180) the rows of one list (`forgefront/flat_rows.py`), which `?list=PATH`
chooses. It runs through the same door to the graph as text does: the same rights, limits and rate.

    400  parameters that are unknown, missing or cannot be read: all of them are named       401  no credential, or one that is not good
    404  no such question; a mutation or a subscription is none                              405  other methods than GET and HEAD

What the graph says is answered with the statuses of the GraphQL door. CSV has no place for errors beside data: there the first error is
the answer, with the status that v3 would give it.

`GET /q` lists the questions, for who has a good credential: JSON, or a page for who asks for HTML (`forgefront/question_list.py`).

Browsers keep Basic credentials and send them of their own accord, also for other sites. Nothing comes of it: these paths change nothing,
other origins are never shown an answer to such a request (`forgefront/cors.py`) nor may embed one, and the realm is not that of git.

Answers have an ETag over their bytes, and `If-None-Match` is answered with 304 where nothing has changed.
"""

import base64
import re
from collections.abc import Mapping
from hashlib import sha256

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forgefront.flat_rows import Tables
from forgefront.pages import prefers_html
from forgefront.question_list import PAGE_POLICY, described, page_of
from forgefront.url_variables import variables_of
from graph.answers import rate_headers, result_of
from graph.errors import Code
from graph.execute import Graph, prepare
from graph.http import RESPONSE_JSON, answer_of
from graph.outcomes import Outcome
from graph.requests import Refused, credential_of, headers_of, pairs_of
from graph.trusted import Document
from rest_v3.errors import STATUSES
from rest_v3.operations import describe

PATH = re.compile(r"/q/([A-Za-z_][A-Za-z0-9_]*)\.(json|csv)")
LIST_PATHS = ("/q", "/q/")
LIST_ROUTE = "/q"
CHALLENGE = 'Basic realm="Forgefront questions", charset="UTF-8"'
ROUTES = {"json": "/q/:name.json", "csv": "/q/:name.csv"}
KINDS = {"json": "application/json", "csv": "text/csv; charset=utf-8; header=present"}
ALLOWED = "GET, HEAD"
LIST = "list"
"""The parameter that chooses the list of a CSV answer, unless the operation has a variable of this name."""
OURS = {
    "cache-control": "private, no-cache",
    "vary": "PRIVATE-TOKEN, Authorization",
    "cross-origin-resource-policy": "same-origin",
}
VIEWER = prepare("query Viewer { viewer { databaseId } }", "Viewer")


class _Question:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.text = document.text
        described = describe(document.read.prepared)
        self.variables = described.variables
        self.tables = Tables(described.selected)


class Questions:
    """Answers the paths that `matches` knows. Which questions there are is settled when it is made."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._questions = {str(document.name): _Question(document) for document in graph.trusted.queries()}
        self._listed: tuple[bytes, bytes] | None = None

    @staticmethod
    def matches(path: str) -> bool:
        return PATH.fullmatch(path) is not None or path in LIST_PATHS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = PATH.fullmatch(scope["path"])
        state = scope.setdefault("state", {})
        headers = headers_of(scope)
        credential = credential_of(headers) or _password_of(headers)
        try:
            if found is None:
                state["route"] = LIST_ROUTE
                response = await self._list(scope, headers, credential)
            else:
                name, form = found.groups()
                state["route"] = ROUTES[form]
                response = await self._answer(scope, headers, credential, name, form)
        except Refused as refused:
            response = await self._refusal(scope, refused, credential)
        if response.status_code == 401:
            response.headers["www-authenticate"] = CHALLENGE if _may_ask_for_password(headers) else "Bearer"
        if scope["method"] == "HEAD":
            # Its headers, with the length, are made already.
            response.body = b""
        await response(scope, receive, send)

    async def _list(self, scope: Scope, headers: Mapping[str, str], credential: str | None) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            raise Refused(405, "405 Method Not Allowed", allow=ALLOWED)
        if not await self._is_known(scope, credential):
            raise Refused(401, "401 Unauthorized")
        if self._listed is None:
            # Made once, when it is first wanted: it does not change.
            base = f"{self._graph.services.external_url}/q/"
            entries = [described(each.document, each.variables, each.tables.names, base + name) for name, each in self._questions.items()]
            self._listed = orjson.dumps({"questions": entries}), page_of(entries).encode()
        as_json, as_page = self._listed
        more = {**OURS, "vary": f"{OURS['vary']}, Accept"}
        if prefers_html(headers.get("accept", "")):
            return Response(as_page, 200, {**more, "content-security-policy": PAGE_POLICY, "content-type": "text/html; charset=utf-8"})
        return Response(as_json, 200, {**more, "content-type": KINDS["json"]})

    async def _refusal(self, scope: Scope, refused: Refused, credential: str | None) -> Response:
        if refused.status in (400, 404):
            # Which questions there are, and what they take, is not for everybody.
            try:
                if not await self._is_known(scope, credential):
                    refused = Refused(401, "401 Unauthorized")
            except Refused as unavailable:
                refused = unavailable
        content = orjson.dumps({"message": refused.message})
        return Response(content, refused.status, {"cache-control": "no-store", **refused.headers}, "application/json")

    async def _is_known(self, scope: Scope, credential: str | None) -> bool:
        """Whether somebody calls by a good credential. Raises Refused, 503, where that cannot be told now."""
        if credential is None:
            return False
        state = scope["state"]
        outcome = await self._graph.run(VIEWER, {}, credential, request_id=str(state.get("request_id", "")))
        if any(problem.code is Code.UNAVAILABLE for problem in outcome.errors):
            raise Refused(503, "503 Service Unavailable", Code.UNAVAILABLE, retry_after="2")
        if outcome.viewer_id is not None:
            state["user_id"] = outcome.viewer_id
        return outcome.viewer_id is not None and not outcome.errors

    async def _answer(self, scope: Scope, headers: Mapping[str, str], credential: str | None, name: str, form: str) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            raise Refused(405, "405 Method Not Allowed", allow=ALLOWED)
        if credential is None:
            raise Refused(401, "401 Unauthorized")
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


def _password_of(headers: Mapping[str, str]) -> str | None:
    """The password of Basic credentials."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(value.strip(), validate=True).decode().partition(":")[2] or None
    except ValueError:
        return None


def _may_ask_for_password(headers: Mapping[str, str]) -> bool:
    """Whether a browser, if this is one, may open its dialog: where somebody went to the address, but not for the script of a page, which
    waits until the dialog is closed, nor for who has sent a token."""
    by_script = "origin" in headers or headers.get("sec-fetch-mode", "navigate") != "navigate"
    return not by_script and credential_of(headers) is None


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
