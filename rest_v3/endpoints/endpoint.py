"""Turns a route into an endpoint: reads the request, runs one operation, responds.

Checks run in the order of docs/decisions.md 5: caller, project or group, permission, resource, and only then parameters. The operation
keeps that order. When a parameter is invalid the operation cannot run, so the route's guard runs before the 400 is returned.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import orjson

from graph.http.json_pieces import dump_json
from graph.operations.query_checks import QueryChecks
from rest_v3 import pagination, reshape
from rest_v3.endpoints.messages import RestRequest, RestResponse
from rest_v3.errors import (
    ErrorResponse,
    error_response,
    invalid_parameters_response,
    missing_parameter_message,
    not_found_message,
    not_found_response,
)
from rest_v3.guard import RouteGuard
from rest_v3.operations import BadOperationError, OperationRegistry, RouteOperation, RouteOperationVariable, SelectedField, default_guard
from rest_v3.requests.bodies import MAX_FORM_BODY_BYTES, AcceptedNames, MalformedRequestError, parse_body, parse_pairs, read_body
from rest_v3.requests.credentials import read_credential
from rest_v3.requests.parameter_cache import ParameterCache, RequestParameters
from rest_v3.requests.params import NOT_SENT, RouteParameter
from rest_v3.requests.path_segments import UNMATCHABLE, is_id, quote_segment, read_id, read_path_string, read_project_or_group
from rest_v3.requests.values import MAX_INT, InvalidValueError
from rest_v3.results import RouteResultReader, read_value
from rest_v3.route import InvalidRouteError, PathNumber, Route

TEXT_CSP = b"default-src 'none'; sandbox"
BODY_BYTES_PER_FILE_BYTE = 2
"""How much larger than a file a body with its contents may be: base64 takes 1.4 times the size, with line breaks."""

UNPAGED_BATCH_ROWS = pagination.MAX_PAGE_SIZE
"""Rows of a list without pages that one run of the operation reads, where the schema allows no larger page."""


class IncomingFile(Protocol):
    """A file that is being received: written, flushed to disk, passed to an operation as a ticket, and discarded unless one stored it."""

    ticket: str

    async def write(self, data: bytes) -> None: ...
    async def finish(self) -> None: ...
    async def discard(self) -> None: ...


class GraphExecutor(Protocol):
    """The interface of graph.operations.execution.Graph that endpoints use."""

    def run(
        self, prepared: Any, variables: dict[str, Any], credential: str | None, *, request_id: str, checks: QueryChecks | None = None
    ) -> Awaitable[Any]: ...
    def receive_upload(self) -> IncomingFile: ...


class Endpoint:
    """A route with its operation. Raises InvalidRouteError when the two do not match."""

    token_name = "private_token"  # noqa: S105 - what the parameter is called
    """The parameter that may hold the caller's credential."""
    max_body_bytes = MAX_FORM_BODY_BYTES

    def __init__(self, route: Route, operations: OperationRegistry, graph: GraphExecutor, base_url: str) -> None:
        self.route = route
        self.path = route.path
        self.operation = self._get_operation(operations, route.operation)
        self._graph = graph
        self._base_url = base_url
        self._parameters = {parameter.name: parameter for parameter in route.params}
        in_path = route.path_names
        # A route that always refuses reads no parameters, so none can be invalid.
        self._body_params = tuple(
            parameter for parameter in route.params if parameter.name not in in_path and route.rejection_status is None
        )
        self._validate_parameters()
        self._path_readers = tuple((name, self._choose_path_reader(name)) for name in in_path)
        self._serializers = {name: create_serializer(variable) for name, variable in self.operation.variables.items()}
        single = {key for parameter in self._body_params if not parameter.is_multiple for key in parameter.accepted_names}
        multiple = {key for parameter in self._body_params if parameter.is_multiple for key in parameter.accepted_names}
        self._accepted_keys = single | multiple
        self._filter_keys = self._accepted_keys - set(in_path)
        self._default_variables = self._build_variables({})
        self._parameter_cache = ParameterCache()
        self._success_status = route.success_status
        self._cache_control = (b"cache-control", b"no-store" if route.no_store else b"max-age=0, private, must-revalidate")
        self._accepted_names = AcceptedNames((single - set(in_path)) | {"page", "per_page", self.token_name}, multiple)
        self._result_reader = RouteResultReader(route, self.operation)
        self.target = self._result_reader.target
        self.is_paginated = self.target is not None and self.target.is_connection and self.operation.is_paginated
        self._batch_rows = (self.target.max_page_size if self.target is not None else None) or UNPAGED_BATCH_ROWS
        self._reshape_value = self._plan_reshape(self.target)
        if self._reshape_value is not None:
            result_path = (*self._result_reader.path, "nodes") if self.is_paginated else self._result_reader.path
            self.operation = replace(self.operation, prepared=self.operation.prepared.formatted(reshape.output_format(result_path)))
        guard = route.guard or (None if route.allows_anonymous else default_guard(route.path))
        self._guard = RouteGuard(self._get_operation(operations, guard)) if guard else None
        if self._guard is not None:
            self._validate_guard(self._guard)

    async def handle(self, request: RestRequest) -> RestResponse | None:
        """The response; None when the client disconnected before the request was read."""
        if request.method in ("GET", "HEAD") and (known := self._parameter_cache.get(request.path_values, request.query)) is not None:
            return await self._respond_value(request, known, self.credential_of(request, {}))
        malformed: ErrorResponse | None = None
        sent: dict[str, Any] = {}
        if request.query:
            try:
                sent = self._accepted_names.collect(parse_pairs(request.query))
            except MalformedRequestError as error:
                malformed = error.response
        if request.method not in ("GET", "HEAD"):
            limit = await self._find_body_limit(request, sent)
            if isinstance(limit, ErrorResponse):
                return self._respond_error(limit)
            try:
                body = await read_body(request.receive, request.headers.get(b"content-length"), limit)
                if body is None:
                    return None
                arguments = body, request.headers.get(b"content-type", b""), self._accepted_names
                is_large = len(body) > MAX_FORM_BODY_BYTES
                sent.update(await asyncio.to_thread(parse_body, *arguments) if is_large else parse_body(*arguments))
            except MalformedRequestError as error:
                if error.response.status == 413:
                    return self._respond_error(error.response)
                malformed = malformed or error.response
        has_credential = self.token_name in sent
        credential = self.credential_of(request, sent)
        variables, invalid = self._read_variables(request, sent)
        malformed = malformed or invalid
        # A route that always refuses has nothing to say about what it was sent.
        if malformed is not None and self.route.rejection_status is None:
            return self._respond_error(await self._check_guard(request, variables, credential) or malformed)
        parameters = RequestParameters(sent, variables, QueryChecks())
        if request.method in ("GET", "HEAD") and not has_credential:
            self._parameter_cache.put(request.path_values, request.query, parameters)
        return await self._respond_value(request, parameters, credential)

    async def _respond_value(self, request: RestRequest, parameters: RequestParameters, credential: str | None) -> RestResponse:
        if self.is_paginated:
            return await self._respond_list(request, parameters, credential)
        variables = parameters.variables
        if self.route.rejection_status is not None:
            variables = {name: variables[name] for name in self.operation.variables}
        return await self._respond_single(request, variables, credential, parameters.checks)

    async def _find_body_limit(self, request: RestRequest, sent: Mapping[str, Any]) -> int | ErrorResponse:
        """The maximum size of the body, or the error for a caller who may not send one of this size."""
        if self.route.body_limit_path is None or self._guard is None or request.declared_length <= self.max_body_bytes:
            return self.max_body_bytes
        variables, _ = self._read_variables(request, {})
        credential = read_credential(request.headers, sent.get(self.token_name))
        result = await self._run_guard(request, self._guard, variables, credential)
        denial = self._guard.evaluate(self.route, result)
        if denial is not None:
            return denial
        return self.max_body_bytes + BODY_BYTES_PER_FILE_BYTE * int(read_value(result.data, self.route.body_limit_path))

    def credential_of(self, request: RestRequest, sent: dict[str, Any]) -> str | None:
        """The caller's credential, or None. Removes its parameter from the sent values."""
        return read_credential(request.headers, sent.pop(self.token_name, None))

    async def _respond_single(
        self, request: RestRequest, variables: dict[str, Any], credential: str | None, checks: QueryChecks | None = None
    ) -> RestResponse:
        result = await self._run(request, self.operation, variables, credential, checks)
        error = self._result_reader.error_of(result)
        if error is not None:
            # A route may return 200 for an unknown number, but a malformed id is always not found.
            if error.status < 400 and self._has_no_id(request):
                error = error_response(404, not_found_message(self.route, None))
            elif isinstance(error.body, dict):
                body = {key: variables[value] if isinstance(value, PathNumber) else value for key, value in error.body.items()}
                error = replace(error, body=body)
            return self._respond_error(error)
        if self.route.rejection_status is not None:
            return self._respond_error(error_response(self.route.rejection_status))
        value, missing = self._result_reader.locate(result.data)
        if missing is not None:
            return self._respond_error(not_found_response(self.route, missing))
        if value is not None and self._reshape_value is not None and not result.is_formatted:
            value = self._reshape_value(value)
        return await self._respond(value, result, [])

    def _has_no_id(self, request: RestRequest) -> bool:
        """Whether a path segment that must be an id is malformed."""
        return any(read is read_id and not is_id(raw) for (_, read), raw in zip(self._path_readers, request.path_values, strict=True))

    def _read_variables(self, request: RestRequest, sent: Mapping[str, Any]) -> tuple[dict[str, Any], ErrorResponse | None]:
        """The variables, and the 400 for missing or invalid parameters."""
        variables: dict[str, Any] = {}
        errors: dict[str, list[str]] = {}
        for (name, read), raw in zip(self._path_readers, request.path_values, strict=True):
            variables[name] = read(raw)
            # A malformed id is not found, whether or not other parameters are invalid.
            if UNMATCHABLE in raw and read is not read_id:
                errors[name] = ["is invalid"]
        body, value_errors, missing, message = (
            self._default_variables if self._accepted_keys.isdisjoint(sent) else self._build_variables(sent)
        )
        variables |= body
        errors |= value_errors
        if missing is not None:
            return variables, invalid_parameters_response(self.route, "REQUIRED", missing_parameter_message(missing))
        if errors:
            return variables, invalid_parameters_response(self.route, "INVALID", message or errors)
        one_of = self.route.needs_one_of
        if one_of and not any(name in variables for name in one_of):
            listed = " or ".join(f'"{name}"' for name in one_of)
            return variables, error_response(400, f"Required parameters {listed} missing")
        return variables, None

    def _build_variables(
        self, sent: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, list[str]], str | None, str | Mapping[str, list[str]] | None]:
        """Returns the variables, the errors by parameter, the first missing parameter, and v3's own message for an invalid value."""
        variables: dict[str, Any] = {}
        errors: dict[str, list[str]] = {}
        missing: str | None = None
        message: str | Mapping[str, list[str]] | None = None
        for parameter in self._body_params:
            try:
                value = parameter.variable_value(sent)
            except InvalidValueError as error:
                errors[parameter.name] = [str(error)]
                message = message or error.whole_message or parameter.invalid_message
                continue
            if value is not NOT_SENT:
                variables[parameter.name] = self._serializers[parameter.name](value)
            elif parameter.is_required and missing is None:
                missing = parameter.name
        return variables, errors, missing, message

    async def _check_guard(self, request: RestRequest, variables: dict[str, Any], credential: str | None) -> ErrorResponse | None:
        """The error that hides a parameter error from the caller, if the guard returns one."""
        if self._guard is None:
            return None
        return self._guard.evaluate(self.route, await self._run_guard(request, self._guard, variables, credential))

    async def _run_guard(self, request: RestRequest, guard: RouteGuard, variables: dict[str, Any], credential: str | None) -> Any:
        guard_variables = {name: variables[name] for name in guard.operation.variables if name in variables}
        return await self._run(request, guard.operation, guard_variables, credential)

    async def _run(
        self,
        request: RestRequest,
        operation: RouteOperation,
        variables: dict[str, Any],
        credential: str | None,
        checks: QueryChecks | None = None,
    ) -> Any:
        result = await self._graph.run(operation.prepared, variables, credential, request_id=request.request_id, checks=checks)
        if result.viewer_id is not None:
            request.state["user_id"] = result.viewer_id
        return result

    async def _respond_list(self, request: RestRequest, parameters: RequestParameters, credential: str | None) -> RestResponse:
        sent = parameters.sent
        is_unpaged = self.route.is_unpaged
        page = pagination.PageRequest(1, MAX_INT) if is_unpaged else pagination.read_page_request(sent, self.route.page_rules)
        nodes: list[Any] = []
        while True:
            size = min(page.size - len(nodes), self._batch_rows)
            variables = {**parameters.variables, "first": size, "offset": min(page.offset + len(nodes), MAX_INT)}
            # The checks are those of the first batch.
            result = await self._run(request, self.operation, variables, credential, None if nodes else parameters.checks)
            error = self._result_reader.error_of(result)
            if error is not None:
                return self._respond_error(error)
            connection, missing = self._result_reader.locate(result.data)
            if missing is not None:
                return self._respond_error(not_found_response(self.route, missing))
            rows = connection["nodes"]
            nodes += rows if self._reshape_value is None or result.is_formatted else map(self._reshape_value, rows)
            if len(rows) < size or len(nodes) >= page.size:
                break
        if is_unpaged or not self.route.page_rules.has_headers:
            return await self._respond(nodes, result, [])
        headers = pagination.build_headers(
            page,
            total=connection["totalCount"] if self.route.has_total else None,
            has_more=not self.route.has_total and connection["pageInfo"]["hasNextPage"],
            url="/".join([self._base_url, *map(quote_segment, request.segments)]),
            filters=self._page_filters(sent) if sent else (),
        )
        return await self._respond(nodes, result, headers)

    def _page_filters(self, sent: Mapping[str, Any]) -> list[tuple[str, str]]:
        """The filters as they were sent, for links to other pages."""
        filters = []
        for name, value in sent.items():
            if name not in self._filter_keys:
                continue
            if isinstance(value, list):
                if name in self._accepted_names.multiple and all(isinstance(part, str) for part in value):
                    key = name if len(value) == 1 else f"{name}[]"
                    filters += [(key, part) for part in value]
            elif isinstance(value, str):
                filters.append((name, value))
        return filters

    async def _respond(self, value: Any, result: Any, headers: list[tuple[bytes, bytes]]) -> RestResponse:
        if self.route.reshape is not None:
            value = self.route.reshape(value, result.data)
        if self.route.is_text:
            # A browser must not render it as a page of this site.
            headers = [*headers, (b"content-security-policy", TEXT_CSP), self._cache_control]
            return RestResponse(self._success_status, value.encode(), headers, content_type=b"text/plain; charset=utf-8")
        content = await dump_json(value, is_large=True) if result.is_large else orjson.dumps(value)
        return RestResponse(self._success_status, content, [*headers, self._cache_control])

    def _respond_error(self, error: ErrorResponse) -> RestResponse:
        headers = [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
        return RestResponse(error.status, orjson.dumps(error.body), [*headers, self._cache_control])

    def _choose_path_reader(self, name: str) -> Callable[[str], Any]:
        if self._parameters[name].kind == "integer":
            return read_id
        segments = self.route.path.split("/")
        if segments[segments.index(f":{name}") - 1] in ("projects", "groups"):
            return read_project_or_group
        return read_path_string

    def _get_operation(self, operations: OperationRegistry, name: str) -> RouteOperation:
        try:
            return operations.get(name)
        except BadOperationError as error:
            raise InvalidRouteError(f"{self.route.call}: {error}") from error

    def _validate_parameters(self) -> None:
        """Checks that parameters and variables are the same, required ones too, and that path parameters are declared."""
        variables = dict(self.operation.variables)
        if self.operation.is_paginated:
            del variables["first"], variables["offset"]
        for name in self.route.path_names:
            if name not in self._parameters:
                raise InvalidRouteError(f"{self.route.call}: the path parameter {name} is not declared")
        if self.route.rejection_status is not None:
            return
        for name in variables.keys() ^ self._parameters.keys():
            raise InvalidRouteError(f"{self.route.call}: {name} must be both a parameter and a variable of {self.operation.name}")
        for name, parameter in self._parameters.items():
            is_always_set = parameter.is_required or name in self.route.path_names or parameter.default is not NOT_SENT
            if variables[name].is_required and not is_always_set:
                raise InvalidRouteError(f"{self.route.call}: {self.operation.name} requires {name}, which is an optional parameter")
            self._validate_choices(parameter, variables[name])
        for name in self.route.needs_one_of:
            if name not in self._parameters:
                raise InvalidRouteError(f"{self.route.call}: {name} is not a parameter")

    def _validate_choices(self, parameter: RouteParameter, variable: RouteOperationVariable) -> None:
        if variable.enum is None or parameter.kind not in ("choice", "choices"):
            return
        serialize = create_serializer(variable)
        for word in parameter.allowed_words:
            serialized = serialize(parameter.read(word))
            for name in serialized if isinstance(serialized, list) else [serialized]:
                if name is not None and name not in variable.enum.values:
                    raise InvalidRouteError(f"{self.route.call}: {variable.enum.name} has no value {name}")

    def _validate_guard(self, guard: RouteGuard) -> None:
        selected: Mapping[str, SelectedField] = guard.operation.root_fields
        for key in filter(None, (self.route.upload_limit_path or self.route.body_limit_path or "").split(".")):
            if key not in selected:
                raise InvalidRouteError(f"{self.route.call}: the guard does not select the maximum file size")
            selected = selected[key].subfields
        for variable in guard.operation.variables.values():
            if variable.name not in self._parameters or (variable.is_required and variable.name not in self.route.path_names):
                raise InvalidRouteError(f"{self.route.call}: the guard {guard.operation.name} requires {variable.name}")
        if guard.operation.is_mutation:
            raise InvalidRouteError(f"{self.route.call}: the guard {guard.operation.name} must not be a mutation")

    def _plan_reshape(self, target: SelectedField | None) -> Callable[[Any], Any] | None:
        if target is None:
            return None
        if not self.is_paginated:
            return reshape.plan_transform(target)
        needed = {"nodes"} if self.route.is_unpaged else {"nodes", "totalCount" if self.route.has_total else "pageInfo"}
        if not needed <= target.subfields.keys():
            raise InvalidRouteError(f"{self.route.call}: {self.operation.name} does not select {' and '.join(sorted(needed))}")
        return reshape.plan_entry_transform(target)


def create_serializer(variable: RouteOperationVariable) -> Callable[[Any], Any]:
    """Returns the function that turns a parameter's value into the variable: words to enum names, one value to a list."""
    enum = variable.enum is not None
    wrap = variable.is_list

    def serialize(value: Any) -> Any:
        if enum and isinstance(value, str):
            value = value.upper()
        elif enum and isinstance(value, list | tuple):
            value = [word.upper() for word in value]
        return [value] if wrap and value is not None and not isinstance(value, list) else value

    return serialize
