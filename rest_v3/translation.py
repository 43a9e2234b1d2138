"""Translates a v3 request to the GraphQL operation, its variables, and notes on what else the endpoint does.

The request runs through the v3 application itself, over a graph that only records operations, so a translation cannot differ from what is
served.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any
from urllib.parse import urlsplit

import orjson
from graphql import print_ast

import rest_v3
from rest_v3.app import RestApp
from rest_v3.endpoints.endpoint import IncomingFile
from rest_v3.operations import OperationRegistry, SelectedField, default_guard, describe_operation
from rest_v3.profiles import DOCUMENT, apply_profile, replace_operations
from rest_v3.requests.bodies import MalformedRequestError, parse_pairs
from rest_v3.route import Route
from rest_v3.router import split_path

MAX_SUGGESTIONS = 3
"""Maximum number of similar calls that are suggested for an unknown call."""
PLACEHOLDER_TICKET = "TICKET"
MULTIPART_BOUNDARY = "a-boundary-that-no-value-holds"


@dataclass(frozen=True, slots=True)
class Translation:
    """`query` has only the fragments that it uses; `notes` are sentences about what the endpoint does besides running it."""

    call: str
    operation: str
    query: str
    variables: Mapping[str, Any]
    notes: tuple[str, ...]
    can_run_as_graphql: bool
    """Whether /graphql can run it with these variables: not where one of them stands for a file."""
    prepared: Any = None
    """The operation as the graph is given it, with the output format of v3."""


class UnknownCallError(Exception):
    """No route matches. `suggestions` are the calls of the most similar routes."""

    def __init__(self, message: str, suggestions: tuple[str, ...]) -> None:
        super().__init__(message)
        self.suggestions = suggestions


class RejectedCallError(Exception):
    """The endpoint responds without running the operation: a parameter is missing or invalid."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"{status}: {orjson.dumps(body).decode()}")
        self.status = status
        self.body = body


@dataclass(frozen=True, slots=True)
class RecordedResult:
    """An operation result, as endpoints read it."""

    data: Any
    errors: tuple[Any, ...] = ()
    viewer_id: int | None = None


@dataclass(frozen=True, slots=True)
class NotRunError:
    """The error of an operation that is not run."""

    code: str = "UNAVAILABLE"
    message: str = ""
    path: None = None
    subject: None = None
    reason: None = None
    retry_after: None = None


class DiscardedFile:
    """A received file that is discarded."""

    ticket = PLACEHOLDER_TICKET

    async def write(self, data: bytes) -> None: ...
    async def finish(self) -> None: ...
    async def discard(self) -> None: ...


class RecordingGraph:
    """Replaces the graph: records operations, lets every guard pass, and runs nothing."""

    def __init__(self) -> None:
        self.operation = ""
        """The row's own; others are guards."""
        self.prepared: Any = None
        self.calls: list[tuple[str, dict[str, Any]]] = []

    async def run(self, prepared: Any, variables: dict[str, Any], credential: str | None, *, request_id: str, checks: Any = None) -> Any:
        self.calls.append((prepared.name, dict(variables)))
        if prepared.name == self.operation:
            self.prepared = prepared
            return RecordedResult(None, (NotRunError(),))
        return RecordedResult(_accept_everything(describe_operation(prepared).root_fields))

    def receive_upload(self) -> IncomingFile:
        return DiscardedFile()


def _accept_everything(selected: Mapping[str, SelectedField]) -> dict[str, Any]:
    return {key: _accept_everything(each.subfields) if each.subfields else True for key, each in selected.items()}


class Translator:
    """The routes of a profile. Raises UnknownProfileError."""

    def __init__(self, profile: str = DOCUMENT) -> None:
        from graph.operations.execution import prepare_document
        from rest_v3.routes import EXTRA_ROUTES, ROUTES

        self._recorder = RecordingGraph()
        operations = OperationRegistry.read(rest_v3.OPERATIONS_FOLDER, prepare_document)
        self._operations = replace_operations(profile, operations)
        self._routes = apply_profile(profile, (*ROUTES, *EXTRA_ROUTES))
        self._app: RestApp = rest_v3.create_app(
            self._recorder, external_url="", profile=profile, routes=(*ROUTES, *EXTRA_ROUTES), operations=operations
        )

    async def translate(self, method: str, path: str, body: str = "") -> Translation:
        """The operation that `GET`, `/projects/3/builds?scope=failed` runs.

        The path may begin with /api/v3, or be a whole URL. The body is a form as sent by curl's `-d`, or a JSON object. Raises
        UnknownCallError, RejectedCallError.
        """
        method, (path, query) = method.upper(), _strip_base(path)
        route = self._app.find_route(method, path)
        if route is None:
            raise self._unknown_call(method, path)
        self._recorder.operation = route.operation
        self._recorder.calls.clear()
        status, answer = await self._call(method, path, query, *_encode_body(route, body))
        name, variables = self._recorder.calls[-1] if self._recorder.calls else ("", {})
        if name != route.operation:
            raise RejectedCallError(status, orjson.loads(answer or b"null"))
        source = print_ast(self._operations.document(name))
        return Translation(route.call, name, source, variables, describe_route(route), not _has_file(route), self._recorder.prepared)

    async def _call(self, method: str, path: str, query: str, body: bytes, content_type: str) -> tuple[int, bytes]:
        messages: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            messages.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(b"content-type", content_type.encode())] if content_type else [],
        }
        await self._app(scope, receive, send)
        return messages[0]["status"], b"".join(message.get("body", b"") for message in messages[1:])

    def _unknown_call(self, method: str, path: str) -> UnknownCallError:
        requested_segments = split_path(path.encode())
        calls = sorted(self._routes, key=lambda row: -_similarity(row, method, requested_segments))
        suggestions = tuple(dict.fromkeys(row.call for row in calls))[:MAX_SUGGESTIONS]
        allowed_methods = [each for each in ("GET", "POST", "PUT", "DELETE") if self._app.find_route(each, path)]
        if allowed_methods:
            return UnknownCallError(f"no route matches {method} {path}; this path allows {', '.join(allowed_methods)}", suggestions)
        return UnknownCallError(f"no route matches {method} {path}", suggestions)


def describe_route(route: Route) -> tuple[str, ...]:
    """What the endpoint does for a route besides running its operation."""
    notes = []
    guard = route.guard or (None if route.allows_anonymous else default_guard(route.path))
    if _has_file(route):
        notes.append(
            f"The endpoint receives the file first: the operation {guard} authorizes it and returns its maximum size"
            f" ({route.upload_limit_path}). The operation takes the ticket of the file, here {PLACEHOLDER_TICKET}, so only the"
            " endpoint can run it."
        )
    elif guard is not None and route.rejection_status is None and len(route.params) > len(route.path_names):
        notes.append(f"Before it reports a missing or invalid parameter, the endpoint runs {guard} to check whether the caller may know.")
    if route.rejection_status is not None:
        notes.append(f"It responds with {route.rejection_status} to every caller whom this operation authorizes.")
    elif route.file_key is not None:
        notes.append(f"The response is the file that `{route.result_path}.{route.file_key}` names; the endpoint streams it.")
    elif route.is_text:
        notes.append(f"The response is `{route.result_path}` as plain text.")
    elif route.result_path is not None:
        notes.append(
            f"The response is `{route.result_path}`."
            if not route.is_unpaged
            else f"The response is all of `{route.result_path}`, page by page."
        )
    else:
        notes.append("The response is `null`.")
    return tuple(notes)


def _has_file(route: Route) -> bool:
    return any(parameter.kind == "file" for parameter in route.params)


def _strip_base(path: str) -> tuple[str, str]:
    """The path below /api/v3 and the query. A URL that cannot be parsed is taken as a path, which has no route."""
    try:
        parts = urlsplit(path) if "://" in path else None
    except ValueError:
        parts = None
    path, _, query = (f"{parts.path}?{parts.query}" if parts else path).partition("?")
    if path == RestApp.base or path.startswith(f"{RestApp.base}/"):
        path = path[len(RestApp.base) :]
    return "/" + path.lstrip("/"), query


def _encode_body(route: Route, body: str) -> tuple[bytes, str]:
    """The body as bytes, and its content type; for a route with a file, a form that ends with an empty one."""
    if body.lstrip().startswith("{"):
        return _encode(body), "application/json"
    if not _has_file(route):
        return _encode(body), "application/x-www-form-urlencoded" if body else ""
    try:
        fields = parse_pairs(_encode(body))
    except MalformedRequestError as error:
        raise RejectedCallError(error.response.status, error.response.body) from None
    parts = [f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}' for name, value in fields]
    parts += [
        f'Content-Disposition: form-data; name="{each.name}"; filename="{each.name}"\r\n\r\n'
        for each in route.params
        if each.kind == "file"
    ]
    form = "".join(f"--{MULTIPART_BOUNDARY}\r\n{part}\r\n" for part in parts) + f"--{MULTIPART_BOUNDARY}--\r\n"
    return form.encode(), f"multipart/form-data; boundary={MULTIPART_BOUNDARY}"


def _encode(body: str) -> bytes:
    """Encodes an argument of the command line, which need not be UTF-8."""
    return body.encode(errors="surrogateescape")


def _similarity(row: Route, method: str, requested: list[str]) -> float:
    """The similarity of a route's call, segment by segment; a parameter matches any segment."""
    expected = row.path.strip("/").split("/")
    matching = sum(
        0.9 if segment.startswith(":") else SequenceMatcher(None, segment, requested_segment).ratio()
        for segment, requested_segment in zip(expected, requested, strict=False)
    )
    return matching / max(len(expected), len(requested), 1) + (0.05 if row.method == method else 0.0)
