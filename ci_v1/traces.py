"""PUT /builds/:id: a runner sends the whole trace repeatedly, and the service appends what is new."""

from collections.abc import Mapping
from typing import Any

from ci_v1.artifacts import ArtifactStoreProtocol
from ci_v1.endpoint import RunnerEndpoint
from ci_v1.trace_body import TRACE_FIELD, TraceSpool, read_trace_body
from graph.operations.results import is_disk_full
from graph.rules.runners.runner_tokens import is_runner_token
from rest_v3.endpoints.endpoint import GraphExecutor
from rest_v3.endpoints.file_uploads import ClientDisconnected
from rest_v3.endpoints.messages import RestRequest, RestResponse
from rest_v3.errors import ErrorResponse, error_response, response_from_error, response_from_user_errors
from rest_v3.operations import OperationRegistry, RouteOperation
from rest_v3.requests.bodies import AcceptedNames, MalformedRequestError, parse_pairs
from rest_v3.requests.values import InvalidValueError
from rest_v3.route import Route

MAX_APPEND_BYTES = 2**19
"""About the maximum size of the part of a trace that one operation appends."""


class TraceEndpoint(RunnerEndpoint):
    """Appends the trace, then sets the state, since a build that has ended accepts no more trace.

    The credential is the token of a runner. The token of a build is not accepted, because scripts of the build know it.
    """

    def __init__(
        self, route: Route, operations: OperationRegistry, graph: GraphExecutor, base_url: str, artifacts: ArtifactStoreProtocol
    ) -> None:
        super().__init__(route, operations, graph, base_url)
        self._accepted_names = AcceptedNames(self._accepted_names.single | {TRACE_FIELD}, self._accepted_names.multiple)
        self._artifacts = artifacts
        self._size_operation = self._get_operation(operations, "BuildTrace")
        self._append_operation = self._get_operation(operations, "AppendTrace")

    def credential_of(self, request: RestRequest, sent: dict[str, Any]) -> str | None:
        token = super().credential_of(request, sent)
        return token if is_runner_token(token) else None

    async def handle(self, request: RestRequest) -> RestResponse | None:
        spool = TraceSpool(self._artifacts.max_trace_bytes)
        try:
            return await self._receive(request, spool)
        except ClientDisconnected:
            return None
        except MalformedRequestError as error:
            return self._respond_error(error.response)
        except OSError as error:
            if not is_disk_full(error):
                raise
            return self._respond_error(error_response(507))
        finally:
            spool.close()

    async def _receive(self, request: RestRequest, spool: TraceSpool) -> RestResponse:
        headers = request.headers
        sent = self._accepted_names.collect(parse_pairs(request.query))
        spool.write(str(sent.pop(TRACE_FIELD, "")))
        declared, content_type = headers.get(b"content-length"), headers.get(b"content-type", b"")
        sent.update(await read_trace_body(request.receive, declared, content_type, self._accepted_names, spool))
        credential = self.credential_of(request, sent)
        variables, invalid = self._read_variables(request, sent)
        if invalid is not None:
            return self._respond_error(invalid)
        if spool.size:
            is_final = "state" in variables
            rejection = await self._append_new(request, variables["id"], spool, credential, final=is_final)
            # The build may have ended with this report already, whose answer the runner did not get: then its state is the same.
            if rejection is not None and not (is_final and rejection.status == 404):
                return self._respond_error(rejection)
        return await self._respond_single(request, variables, credential)

    def _read_variables(self, request: RestRequest, sent: Mapping[str, Any]) -> tuple[dict[str, Any], ErrorResponse | None]:
        variables, invalid = super()._read_variables(request, sent)
        # The string is already spooled.
        if invalid is None and not isinstance(sent.get(TRACE_FIELD) or "", str):
            invalid = ErrorResponse(400, {"message": {TRACE_FIELD: [str(InvalidValueError("is invalid"))]}})
        return variables, invalid

    async def _append_new(
        self, request: RestRequest, build_id: int, spool: TraceSpool, credential: str | None, *, final: bool
    ) -> ErrorResponse | None:
        result = await self._run(request, self._size_operation, {"id": build_id}, credential)
        rejection = self._error_of(self._size_operation, result)
        if rejection is not None:
            return rejection
        trace = result.data["updateBuild"]["build"]["trace"]
        start, size = int(trace["start"]), int(trace["size"])
        # The runner does not send the service's message about an earlier run. A shorter trace takes the place of the stored one. So does
        # the last one after an earlier run: if that was by a process of the same runner that is not lost, it sends its trace too, and the
        # protocol does not distinguish them. What is stored may then be parts of both.
        is_shorter = start + spool.size < size and not spool.is_full
        replace = is_shorter or (final and 0 < start < size)
        offset = start if replace else size
        async for piece in spool.read_pieces(offset - start, final=final, size=MAX_APPEND_BYTES):
            variables = {"id": build_id, "text": piece.decode(errors="ignore"), "offset": offset, "replace": replace}
            replace = False
            rejection = self._error_of(self._append_operation, await self._run(request, self._append_operation, variables, credential))
            if rejection is not None:
                return rejection
            offset += len(piece)
        return None

    def _error_of(self, operation: RouteOperation, result: Any) -> ErrorResponse | None:
        if result.errors:
            return response_from_error(self.route, result.errors[0])
        (payload,) = result.data.values()
        return (
            response_from_user_errors(self.route, payload["userErrors"], operation.variables_by_input_field)
            if payload["userErrors"]
            else None
        )
