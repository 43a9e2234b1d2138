"""What the v3 layer would ask the graph for a request: the operation, its variables, and what else the door does.

The request goes through the door itself, before a graph that runs nothing and keeps what it is asked, so a translation cannot differ
from what is served.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any
from urllib.parse import urlsplit

import orjson
from graphql import parse, print_ast

import rest_v3
from rest_v3.bodies import MalformedError, pairs_of
from rest_v3.door import Door
from rest_v3.endpoint import Incoming
from rest_v3.operations import Operations, Selected, describe, guard_of
from rest_v3.profiles import DOCUMENT, under
from rest_v3.route import Route
from rest_v3.router import split

NEAREST = 3
"""So many rows are named where there is none for a call."""
TICKET = "TICKET"
BOUNDARY = "a-boundary-that-no-value-holds"


@dataclass(frozen=True, slots=True)
class Translation:
    """`query` has only the fragments that it uses; `notes` are sentences on what the door does besides running it."""

    call: str
    operation: str
    query: str
    variables: Mapping[str, Any]
    notes: tuple[str, ...]
    by_hand: bool
    """Whether /graphql can run it with these variables: not where one of them stands for a file."""


class UnknownCallError(Exception):
    """No row answers; `nearest` are the calls of those that are most like it, and `allow` the methods of the path, if it is known."""

    def __init__(self, text: str, nearest: tuple[str, ...]) -> None:
        super().__init__(text)
        self.nearest = nearest


class RefusedError(Exception):
    """The door answers before it asks for the operation: a parameter is missing or cannot be read."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"{status}: {orjson.dumps(body).decode()}")
        self.status = status
        self.body = body


@dataclass(frozen=True, slots=True)
class Said:
    """An outcome, as the door reads it."""

    data: Any
    errors: tuple[Any, ...] = ()
    viewer_id: int | None = None


@dataclass(frozen=True, slots=True)
class NotRun:
    """The one error of what is not run."""

    code: str = "UNAVAILABLE"
    message: str = ""
    path: None = None
    subject: None = None
    reason: None = None
    retry_after: None = None


class Nowhere:
    """A file that nobody keeps."""

    ticket = TICKET

    async def write(self, data: bytes) -> None: ...
    async def finish(self) -> None: ...
    async def discard(self) -> None: ...


class Recorder:
    """Stands where the graph stands: keeps what it is asked, lets every guard pass, and runs nothing."""

    def __init__(self) -> None:
        self.operation = ""
        """The row's own; others are guards."""
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def run(self, prepared: Any, variables: dict[str, Any], credential: str | None, *, request_id: str) -> Any:
        self.asked.append((prepared.name, dict(variables)))
        if prepared.name == self.operation:
            return Said(None, (NotRun(),))
        return Said(_yes(describe(prepared).selected))

    def receive(self) -> Incoming:
        return Nowhere()


def _yes(selected: Mapping[str, Selected]) -> dict[str, Any]:
    return {key: _yes(each.below) if each.below else True for key, each in selected.items()}


class Translator:
    """The rows under a profile. Raises UnknownProfileError."""

    def __init__(self, profile: str = DOCUMENT) -> None:
        from graph.execute import prepare
        from rest_v3.routes import EXTRA, ROUTES

        self._recorder = Recorder()
        self._operations = Operations.read(rest_v3.ROUTES_FOLDER, prepare)
        self._rows = under(profile, (*ROUTES, *EXTRA))
        self._door: Door = rest_v3.application(
            self._recorder, external_url="", profile=profile, routes=(*ROUTES, *EXTRA), operations=self._operations
        )

    async def translate(self, method: str, path: str, body: str = "") -> Translation:
        """What the row of `GET`, `/projects/3/builds?scope=failed` runs.

        The path may begin with /api/v3, also as a whole URL. The body is a form as curl's `-d` sends it, or a JSON object.
        Raises UnknownCallError, RefusedError.
        """
        method, (path, query) = method.upper(), _below_base(path)
        route = self._door.route_of(method, path)
        if route is None:
            raise self._unknown(method, path)
        self._recorder.operation = route.operation
        self._recorder.asked.clear()
        status, answer = await self._answered(method, path, query, *_sent(route, body))
        name, variables = self._recorder.asked[-1] if self._recorder.asked else ("", {})
        if name != route.operation:
            raise RefusedError(status, orjson.loads(answer or b"null"))
        source = "\n\n".join(print_ast(each) for each in parse(self._operations.source(name)).definitions)
        return Translation(route.call, name, source, variables, notes_on(route), not _files(route))

    async def _answered(self, method: str, path: str, query: str, body: bytes, kind: str) -> tuple[int, bytes]:
        said: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            said.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(b"content-type", kind.encode())] if kind else [],
        }
        await self._door(scope, receive, send)
        return said[0]["status"], b"".join(message.get("body", b"") for message in said[1:])

    def _unknown(self, method: str, path: str) -> UnknownCallError:
        wanted = split(path.encode())
        calls = sorted(self._rows, key=lambda row: -_likeness(row, method, wanted))
        nearest = tuple(dict.fromkeys(row.call for row in calls))[:NEAREST]
        others = [each for each in ("GET", "POST", "PUT", "DELETE") if self._door.route_of(each, path)]
        if others:
            return UnknownCallError(f"no row answers {method} {path}; this path answers {', '.join(others)}", nearest)
        return UnknownCallError(f"no row answers {method} {path}", nearest)


def notes_on(route: Route) -> tuple[str, ...]:
    """What the door does for a row besides running its operation."""
    notes = []
    guard = route.guard or (None if route.anonymous else guard_of(route.path))
    if _files(route):
        notes.append(
            f"The file is received first: the operation {guard} says who may send one, and how large it may be ({route.limit}). The "
            f"operation is given its ticket, here {TICKET}, so that only the door can run it."
        )
    elif guard is not None and route.refuses is None and len(route.params) > len(route.path_names):
        notes.append(f"Before it says that a parameter is missing or wrong, it asks {guard} whether the caller may hear so.")
    if route.refuses is not None:
        notes.append(f"It answers {route.refuses} to everybody whom this operation lets pass.")
    elif route.stream is not None:
        notes.append(f"The answer is the file that `{route.gives}.{route.stream}` names; the door sends its bytes.")
    elif route.gives is not None:
        notes.append(f"The answer is `{route.gives}`." if not route.whole else f"The answer is the whole of `{route.gives}`, page by page.")
    else:
        notes.append("The answer is `null`.")
    return tuple(notes)


def _files(route: Route) -> bool:
    return any(parameter.kind == "file" for parameter in route.params)


def _below_base(path: str) -> tuple[str, str]:
    """The path below /api/v3 and the query."""
    parts = urlsplit(path) if "://" in path else None
    path, _, query = (f"{parts.path}?{parts.query}" if parts else path).partition("?")
    if path == Door.base or path.startswith(f"{Door.base}/"):
        path = path[len(Door.base) :]
    return "/" + path.lstrip("/"), query


def _sent(route: Route, body: str) -> tuple[bytes, str]:
    """The body as bytes, and its content type; for a row with a file a form that ends with an empty one."""
    if body.lstrip().startswith("{"):
        return _bytes(body), "application/json"
    if not _files(route):
        return _bytes(body), "application/x-www-form-urlencoded" if body else ""
    try:
        fields = pairs_of(_bytes(body))
    except MalformedError as error:
        raise RefusedError(error.answer.status, error.answer.body) from None
    parts = [f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}' for name, value in fields]
    parts += [
        f'Content-Disposition: form-data; name="{each.name}"; filename="{each.name}"\r\n\r\n'
        for each in route.params
        if each.kind == "file"
    ]
    form = "".join(f"--{BOUNDARY}\r\n{part}\r\n" for part in parts) + f"--{BOUNDARY}--\r\n"
    return form.encode(), f"multipart/form-data; boundary={BOUNDARY}"


def _bytes(body: str) -> bytes:
    """As a command line gave them, which need not be UTF-8."""
    return body.encode(errors="surrogateescape")


def _likeness(row: Route, method: str, wanted: list[str]) -> float:
    """How like a row's call is, segment by segment; a parameter is like anything."""
    have = row.path.strip("/").split("/")
    alike = sum(
        0.9 if segment.startswith(":") else SequenceMatcher(None, segment, given).ratio()
        for segment, given in zip(have, wanted, strict=False)
    )
    return alike / max(len(have), len(wanted), 1) + (0.05 if row.method == method else 0.0)
