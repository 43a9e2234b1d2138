"""POST /builds/:id/artifacts: streams the file of a form to the object store; it becomes visible when it is complete."""

from collections.abc import AsyncIterable
from typing import Any, Protocol

from ci_v1.endpoint import RunnerEndpoint
from ci_v1.routes import BUILD_DETAILS
from graph.errors import ForgeError
from graph.operations.results import is_disk_full
from rest_v3.endpoints.endpoint import GraphExecutor
from rest_v3.endpoints.file_uploads import ClientDisconnected, FileUploadForm
from rest_v3.endpoints.messages import RestRequest, RestResponse
from rest_v3.errors import ErrorResponse, error_response, missing_parameter_message, response_from_user_errors
from rest_v3.operations import OperationRegistry
from rest_v3.requests.bodies import MalformedRequestError, parse_pairs
from rest_v3.route import Route

FILE_PARAMETER = "file"
PROXY_HEADER = b"gitlab-workhorse"
NO_FILE_RESPONSE = error_response(400, missing_parameter_message("Missing artifacts file!"))


class ArtifactStoreProtocol(Protocol):
    """The interface of graph.artifact_access.ArtifactAccess. Both methods raise the errors of graph.errors."""

    @property
    def max_trace_bytes(self) -> int: ...

    async def authorize_upload(self, token: str, request_id: str) -> Any: ...
    async def store(self, grant: Any, chunks: AsyncIterable[bytes], request_id: str) -> Any: ...


class ArtifactProxyEndpoint(RunnerEndpoint):
    """An endpoint that requires the header of the proxy that GitLab put before its servers."""

    async def handle(self, request: RestRequest) -> RestResponse | None:
        if PROXY_HEADER not in request.headers:
            return self._respond_error(error_response(403, "403 Forbidden - Request should be executed via GitLab Workhorse"))
        return await super().handle(request)


class RunnerArtifactUploadEndpoint(RunnerEndpoint):
    """The row's operation authorizes the upload before any of the file is read; a second operation selects the response."""

    def __init__(
        self, route: Route, operations: OperationRegistry, graph: GraphExecutor, base_url: str, artifacts: ArtifactStoreProtocol
    ) -> None:
        super().__init__(route, operations, graph, base_url)
        self._artifacts = artifacts
        self._details = RunnerEndpoint(BUILD_DETAILS, operations, graph, base_url)

    async def handle(self, request: RestRequest) -> RestResponse | None:
        try:
            return await self._receive(request)
        except ClientDisconnected:
            return None
        except MalformedRequestError as error:
            return self._respond_error(error.response)
        except ForgeError as error:
            return self._respond_error(self._response_from_error(error))
        except OSError as error:
            if not is_disk_full(error):
                raise
            return self._respond_error(error_response(507))

    async def _receive(self, request: RestRequest) -> RestResponse:
        content_type = request.headers.get(b"content-type", b"")
        form: FileUploadForm | None = None
        pairs = parse_pairs(request.query)
        if content_type.partition(b";")[0].strip().lower() == b"multipart/form-data":
            form = FileUploadForm(content_type, FILE_PARAMETER, request.receive)
            await form.read_to_file()
            pairs += form.pairs
        sent = self._accepted_names.collect(pairs)
        credential = self.credential_of(request, sent)
        variables, invalid = self._read_variables(request, {**sent, "filename": form.file_name if form is not None else None})
        if invalid is not None:
            return self._respond_error(invalid)
        result = await self._run(request, self.operation, variables, credential)
        rejection = self._result_reader.error_of(result)
        if rejection is not None or form is None or form.file_name is None:
            return self._respond_error(rejection or NO_FILE_RESPONSE)
        ticket = result.data["createArtifactUpload"]["upload"]["url"].rpartition("/")[2]
        grant = await self._artifacts.authorize_upload(ticket, request.request_id)
        await self._artifacts.store(grant, form.read_file(), request.request_id)
        return await self._details._respond_single(request, {"token": credential}, credential)

    def _response_from_error(self, error: ForgeError) -> ErrorResponse:
        user_errors = [{"field": None, "message": error.message, "code": str(error.code)}]
        return response_from_user_errors(self.route, user_errors, {})
