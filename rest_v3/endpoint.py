"""A row becomes an endpoint: read the request, run one operation, answer.

The order of checks is DECISIONS 5: who is asking, the project or group, the right, the thing, and only then whether the parameters
can be read. The operation itself keeps that order; where a parameter is wrong the operation cannot run, so the row's guard is asked
before the 400 is given away.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol
from urllib.parse import quote

import orjson

from rest_v3 import paging, reshape
from rest_v3.bodies import LARGEST_BODY, Known, MalformedError, Receive, pairs_of, read_body, read_sent
from rest_v3.credentials import credential_of
from rest_v3.errors import Refusal, not_found, not_found_text, not_given, refusal, unreadable
from rest_v3.guard import Guard
from rest_v3.operations import BadOperationError, Operation, Operations, Selected, Variable, guard_of
from rest_v3.outcomes import Outcomes
from rest_v3.params import NOT_SENT, Parameter
from rest_v3.route import BadRowError, Route
from rest_v3.values import LARGEST, UNFINDABLE, WrongValueError, is_id, read_id

WHOLE_PAGE = 100


class Incoming(Protocol):
    """A file that is being received: written, brought to the disk, given to an operation by its ticket, and discarded if none kept it."""

    ticket: str

    async def write(self, data: bytes) -> None: ...
    async def finish(self) -> None: ...
    async def discard(self) -> None: ...


class Graph(Protocol):
    """What the endpoints ask of graph.execute.Graph."""

    def run(self, prepared: Any, variables: dict[str, Any], credential: str | None, *, request_id: str) -> Awaitable[Any]: ...
    def receive(self) -> Incoming: ...


@dataclass(slots=True)
class Request:
    """What an endpoint needs of a request. `path_values` stand in the order of the row's path parameters."""

    method: str
    path_values: Sequence[str]
    segments: Sequence[str]
    """The whole path below /api/v3, decoded."""
    query: bytes
    headers: Mapping[bytes, bytes]
    receive: Receive
    request_id: str
    state: MutableMapping[str, Any]
    """What the server is told of the request, for its access line: `user_id`."""


@dataclass(slots=True)
class Response:
    status: int
    body: bytes
    headers: list[tuple[bytes, bytes]]


class Endpoint:
    """A row with its operation, ready to answer. Raises BadRowError when the two do not fit."""

    token_name = "private_token"  # noqa: S105 - what the parameter is called
    """The parameter that may hold the caller's credential."""
    largest_body = LARGEST_BODY

    def __init__(self, route: Route, operations: Operations, graph: Graph, base_url: str) -> None:
        self.route = route
        self.path = route.path
        self.operation = self._operation(operations, route.operation)
        self._graph = graph
        self._base_url = base_url
        self._by_name = {parameter.name: parameter for parameter in route.params}
        in_path = route.path_names
        # A row that refuses reads nothing, so nothing that is sent can be wrong.
        self._body_params = tuple(parameter for parameter in route.params if parameter.name not in in_path and route.refuses is None)
        self._check()
        self._path_readers = tuple((name, self._path_reader(name)) for name in in_path)
        self._spellers = {name: speller(variable) for name, variable in self.operation.variables.items()}
        single = {key for parameter in self._body_params if not parameter.many for key in parameter.keys}
        many = {key for parameter in self._body_params if parameter.many for key in parameter.keys}
        self._sendable = single | many
        self._filters = self._sendable - set(in_path)
        self._unsent = self._variables({})
        self._success = route.success
        self._caching = (b"cache-control", b"no-store" if route.no_store else b"max-age=0, private, must-revalidate")
        self._known = Known((single - set(in_path)) | {"page", "per_page", self.token_name}, many)
        self._outcomes = Outcomes(route, self.operation)
        self.target = self._outcomes.target
        self.paginated = self.target is not None and self.target.is_connection and self.operation.pages
        self._change = self._plan(self.target)
        if self._change is not None:
            way = (*self._outcomes.way, "nodes") if self.paginated else self._outcomes.way
            self.operation = replace(self.operation, prepared=self.operation.prepared.formed(reshape.form(way)))
        guard = route.guard or (None if route.anonymous else guard_of(route.path))
        self._guard = Guard(self._operation(operations, guard)) if guard else None
        if self._guard is not None:
            self._check_guard(self._guard)

    async def answer(self, request: Request) -> Response | None:
        """The answer; None when the caller went away before the request was read."""
        wrong: Refusal | None = None
        sent: dict[str, Any] = {}
        if request.query:
            try:
                sent = self._known.gather(pairs_of(request.query))
            except MalformedError as error:
                wrong = error.answer
        if request.method not in ("GET", "HEAD"):
            try:
                body = await read_body(request.receive, request.headers.get(b"content-length"), self.largest_body)
                if body is None:
                    return None
                sent.update(read_sent(body, request.headers.get(b"content-type", b""), self._known))
            except MalformedError as error:
                if error.answer.status == 413:
                    return self._refuse(error.answer)
                wrong = wrong or error.answer
        credential = self.credential_of(request, sent)
        variables, unread = self._read(request, sent)
        wrong = wrong or unread
        if wrong is not None:
            return self._refuse(await self._guarded(request, variables, credential) or wrong)
        if self.route.refuses is not None:
            variables = {name: variables[name] for name in self.operation.variables}
        if self.paginated:
            return await self._list(request, sent, variables, credential)
        return await self._single(request, variables, credential)

    def credential_of(self, request: Request, sent: dict[str, Any]) -> str | None:
        """The caller's credential, or None; its parameter is taken out of what was sent."""
        return credential_of(request.headers, sent.pop(self.token_name, None))

    async def _single(self, request: Request, variables: dict[str, Any], credential: str | None) -> Response:
        outcome = await self._run(request, self.operation, variables, credential)
        refused = self._outcomes.refusal(outcome)
        if refused is not None:
            # A row may answer 200 for a number that nobody has; what is no number is not found all the same.
            if refused.status < 400 and self._has_no_id(request):
                refused = refusal(404, not_found_text(self.route, None))
            return self._refuse(refused)
        if self.route.refuses is not None:
            return self._refuse(refusal(self.route.refuses))
        value, missing = self._outcomes.locate(outcome.data)
        if missing is not None:
            return self._refuse(not_found(self.route, missing))
        if value is not None and self._change is not None and not outcome.formed:
            value = self._change(value)
        return self._respond(value, outcome.data, [])

    def _has_no_id(self, request: Request) -> bool:
        """Whether a segment that should be an id cannot be one."""
        return any(read is read_id and not is_id(raw) for (_, read), raw in zip(self._path_readers, request.path_values, strict=True))

    def _read(self, request: Request, sent: Mapping[str, Any]) -> tuple[dict[str, Any], Refusal | None]:
        """The variables, and the 400 for parameters that are missing or cannot be read."""
        variables: dict[str, Any] = {}
        wrong: dict[str, list[str]] = {}
        for (name, read), raw in zip(self._path_readers, request.path_values, strict=True):
            variables[name] = read(raw)
            # An id that cannot be one is nobody's, whatever else is wrong with it.
            if UNFINDABLE in raw and read is not read_id:
                wrong[name] = ["is invalid"]
        body, unreadables, missing, message = self._unsent if self._sendable.isdisjoint(sent) else self._variables(sent)
        variables |= body
        wrong |= unreadables
        if missing is not None:
            return variables, unreadable(self.route, "REQUIRED", not_given(missing))
        if wrong:
            return variables, unreadable(self.route, "INVALID", message or wrong)
        one_of = self.route.needs_one_of
        if one_of and not any(name in variables for name in one_of):
            listed = " or ".join(f'"{name}"' for name in one_of)
            return variables, refusal(400, f"Required parameters {listed} missing")
        return variables, None

    def _variables(
        self, sent: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, list[str]], str | None, str | Mapping[str, list[str]] | None]:
        """The variables for what was sent, what is wrong with each that cannot be read, the first that is missing, and the whole message
        that v3 had for one of the wrong ones."""
        variables: dict[str, Any] = {}
        wrong: dict[str, list[str]] = {}
        missing: str | None = None
        message: str | Mapping[str, list[str]] | None = None
        for parameter in self._body_params:
            try:
                value = parameter.value(sent)
            except WrongValueError as error:
                wrong[parameter.name] = [str(error)]
                message = message or parameter.wrong
                continue
            if value is not NOT_SENT:
                variables[parameter.name] = self._spellers[parameter.name](value)
            elif parameter.required and missing is None:
                missing = parameter.name
        return variables, wrong, missing, message

    async def _guarded(self, request: Request, variables: dict[str, Any], credential: str | None) -> Refusal | None:
        """Why the caller may not even hear that a parameter is wrong."""
        if self._guard is None:
            return None
        return self._guard.judge(self.route, await self._ask_guard(request, self._guard, variables, credential))

    async def _ask_guard(self, request: Request, guard: Guard, variables: dict[str, Any], credential: str | None) -> Any:
        asked = {name: variables[name] for name in guard.operation.variables if name in variables}
        return await self._run(request, guard.operation, asked, credential)

    async def _run(self, request: Request, operation: Operation, variables: dict[str, Any], credential: str | None) -> Any:
        outcome = await self._graph.run(operation.prepared, variables, credential, request_id=request.request_id)
        if outcome.viewer_id is not None:
            request.state["user_id"] = outcome.viewer_id
        return outcome

    async def _list(self, request: Request, sent: dict[str, Any], variables: dict[str, Any], credential: str | None) -> Response:
        page = paging.Page(1, WHOLE_PAGE) if self.route.whole else paging.read_page(sent)
        nodes: list[Any] = []
        while True:
            variables["first"], variables["offset"] = page.size, page.offset
            outcome = await self._run(request, self.operation, variables, credential)
            refused = self._outcomes.refusal(outcome)
            if refused is not None:
                return self._refuse(refused)
            connection, missing = self._outcomes.locate(outcome.data)
            if missing is not None:
                return self._refuse(not_found(self.route, missing))
            rows = connection["nodes"]
            nodes += rows if self._change is None or outcome.formed else map(self._change, rows)
            if not self.route.whole or len(rows) < page.size:
                break
            page = paging.Page(page.number + 1, page.size)
        if self.route.whole:
            return self._respond(nodes, outcome.data, [])
        headers = paging.headers(
            page,
            total=connection["totalCount"] if self.route.total else None,
            more=not self.route.total and connection["pageInfo"]["hasNextPage"],
            url="/".join([self._base_url, *map(_quoted, request.segments)]),
            filters=self._kept(sent) if sent else (),
        )
        return self._respond(nodes, outcome.data, headers)

    def _kept(self, sent: Mapping[str, Any]) -> list[tuple[str, str]]:
        """The filters as they were sent, for links to other pages."""
        kept = []
        for name, value in sent.items():
            if name not in self._filters:
                continue
            if isinstance(value, list):
                if name in self._known.many and all(isinstance(part, str) for part in value):
                    key = name if len(value) == 1 else f"{name}[]"
                    kept += [(key, part) for part in value]
            elif isinstance(value, str):
                kept.append((name, value))
        return kept

    def _respond(self, value: Any, data: Mapping[str, Any], headers: list[tuple[bytes, bytes]]) -> Response:
        if self.route.reshape is not None:
            value = self.route.reshape(value, data)
        return Response(self._success, orjson.dumps(value), [*headers, self._caching])

    def _refuse(self, refused: Refusal) -> Response:
        headers = [(name.lower().encode(), value.encode()) for name, value in refused.headers.items()]
        return Response(refused.status, orjson.dumps(refused.body), [*headers, self._caching])

    def _path_reader(self, name: str) -> Callable[[str], Any]:
        if self._by_name[name].kind == "integer":
            return read_id
        segments = self.route.path.split("/")
        if segments[segments.index(f":{name}") - 1] in ("projects", "groups"):
            return _project_or_group
        return _path_text

    def _operation(self, operations: Operations, name: str) -> Operation:
        try:
            return operations.get(name)
        except BadOperationError as error:
            raise BadRowError(f"{self.route.call}: {error}") from error

    def _check(self) -> None:
        """Parameters and variables are the same, required ones too; path parameters are declared."""
        variables = dict(self.operation.variables)
        if self.operation.pages:
            del variables["first"], variables["offset"]
        for name in self.route.path_names:
            if name not in self._by_name:
                raise BadRowError(f"{self.route.call}: the path parameter {name} is not declared")
        if self.route.refuses is not None:
            return
        for name in variables.keys() ^ self._by_name.keys():
            raise BadRowError(f"{self.route.call}: {name} is not both a parameter and a variable of {self.operation.name}")
        for name, parameter in self._by_name.items():
            given = parameter.required or name in self.route.path_names or parameter.default is not NOT_SENT
            if variables[name].required and not given:
                raise BadRowError(f"{self.route.call}: {self.operation.name} needs {name}, which is optional")
            self._check_words(parameter, variables[name])
        for name in self.route.needs_one_of:
            if name not in self._by_name:
                raise BadRowError(f"{self.route.call}: {name} is no parameter")

    def _check_words(self, parameter: Parameter, variable: Variable) -> None:
        if variable.enum is None or parameter.kind not in ("choice", "choices"):
            return
        spell = speller(variable)
        for word in parameter.words:
            meant = spell(parameter.read(word))
            for name in meant if isinstance(meant, list) else [meant]:
                if name is not None and name not in variable.enum.values:
                    raise BadRowError(f"{self.route.call}: {variable.enum.name} has no {name}")

    def _check_guard(self, guard: Guard) -> None:
        for variable in guard.operation.variables.values():
            if variable.name not in self._by_name or (variable.required and variable.name not in self.route.path_names):
                raise BadRowError(f"{self.route.call}: the guard {guard.operation.name} needs {variable.name}")
        if guard.operation.is_mutation:
            raise BadRowError(f"{self.route.call}: the guard {guard.operation.name} is a mutation")

    def _plan(self, target: Selected | None) -> Callable[[Any], Any] | None:
        if target is None:
            return None
        if not self.paginated:
            return reshape.plan(target)
        needed = {"nodes"} if self.route.whole else {"nodes", "totalCount" if self.route.total else "pageInfo"}
        if not needed <= target.below.keys():
            raise BadRowError(f"{self.route.call}: {self.operation.name} does not ask for {' and '.join(sorted(needed))}")
        return reshape.plan_of_entry(target)


def speller(variable: Variable) -> Callable[[Any], Any]:
    """How a parameter's value becomes the variable: words as enum names, one value as a list where the variable is one."""
    enum = variable.enum is not None
    wrap = variable.is_list

    def spell(value: Any) -> Any:
        if enum and isinstance(value, str):
            value = value.upper()
        elif enum and isinstance(value, list | tuple):
            value = [word.upper() for word in value]
        return [value] if wrap and value is not None and not isinstance(value, list) else value

    return spell


def _quoted(segment: str) -> str:
    return segment if segment.isascii() and segment.isalnum() else quote(segment, safe="")


def _project_or_group(raw: str) -> str:
    """A v3 id in digits or a full path; digits that no id can have become "0", which is nobody's."""
    if raw.isdigit() and (not raw.isascii() or len(raw) > 10 or int(raw) > LARGEST):
        return "0"
    return _path_text(raw)


def _path_text(raw: str) -> str:
    return UNFINDABLE if "\0" in raw else raw
