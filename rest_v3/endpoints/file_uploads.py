"""Endpoints that take a file: the file is streamed to the graph's store, and the operation receives its ticket.

Fields before the file are read first, since the credential may be among them; then the guard runs and returns the maximum size. So nothing
is stored for an unauthorized caller, and memory use does not grow with the file.
"""

from collections.abc import AsyncIterator
from typing import Any

from graph.operations.results import is_disk_full
from rest_v3.endpoints.endpoint import Endpoint, GraphExecutor, IncomingFile
from rest_v3.endpoints.messages import RestRequest, RestResponse
from rest_v3.errors import ErrorResponse, error_response
from rest_v3.operations import OperationRegistry
from rest_v3.requests.bodies import MAX_FORM_BODY_BYTES, MalformedRequestError, MultipartForm, Receive, parse_body, parse_pairs, read_body
from rest_v3.results import read_value
from rest_v3.route import InvalidRouteError, Route


class ClientDisconnected(Exception):
    """The client disconnected before the whole body was read."""


class FileUploadEndpoint(Endpoint):
    """An endpoint that takes a file."""

    def __init__(self, route: Route, operations: OperationRegistry, graph: GraphExecutor, base_url: str) -> None:
        super().__init__(route, operations, graph, base_url)
        (self._file_parameter,) = (parameter.name for parameter in route.params if parameter.kind == "file")
        if self._guard is None or route.upload_limit_path is None:
            raise InvalidRouteError(f"{route.call}: a guard has to select the maximum file size")

    async def handle(self, request: RestRequest) -> RestResponse | None:
        """The response; None when the client disconnected before the request was read."""
        try:
            return await self._receive(request)
        except ClientDisconnected:
            return None
        except OSError as error:
            if not is_disk_full(error):
                raise
            return self._respond_error(error_response(507))

    async def _receive(self, request: RestRequest) -> RestResponse:
        form, sent, malformed = await self._read_until_file(request)
        if malformed is not None and malformed.status == 413:
            return self._respond_error(malformed)
        credential = self.credential_of(request, sent)
        variables, invalid = self._read_variables(request, sent)
        assert self._guard is not None, "the guard's data has no upload limit"  # noqa: S101
        result = await self._run_guard(request, self._guard, variables, credential)
        error = self._guard.evaluate(self.route, result) or malformed or invalid
        if error is not None or form is None:
            return self._respond_error(error or error_response(400))
        limit = read_value(result.data, self.route.upload_limit_path or "")
        if request.declared_length > limit + MAX_FORM_BODY_BYTES:
            return self._respond_error(_too_large_response(limit))
        incoming = self._graph.receive_upload()
        try:
            too_large = await _store_file(form, incoming, limit)
            if too_large is not None:
                return self._respond_error(too_large)
            variables[self._file_parameter] = {"ticket": incoming.ticket, "name": form.file_name}
            return await self._respond_single(request, variables, credential)
        finally:
            await incoming.discard()

    async def _read_until_file(self, request: RestRequest) -> tuple["FileUploadForm | None", dict[str, Any], ErrorResponse | None]:
        """Returns the fields before the file, the form positioned at its file, and the 400 or 413 for what cannot be read."""
        sent: dict[str, Any] = {}
        form: FileUploadForm | None = None
        try:
            sent = self._accepted_names.collect(parse_pairs(request.query))
            content_type = request.headers.get(b"content-type", b"")
            if content_type.partition(b";")[0].strip().lower() == b"multipart/form-data":
                form = FileUploadForm(content_type, self._file_parameter, request.receive)
                await form.read_to_file()
                sent.update(self._accepted_names.collect(form.pairs))
            else:
                body = await read_body(request.receive, request.headers.get(b"content-length"))
                if body is None:
                    raise ClientDisconnected
                sent.update(parse_body(body, content_type, self._accepted_names))
                sent.pop(self._file_parameter, None)
        except MalformedRequestError as error:
            return None, sent, error.response
        if form is not None and form.file_name is not None:
            sent[self._file_parameter] = {"ticket": "", "name": form.file_name}
        return form, sent, None


class FileUploadForm(MultipartForm):
    """A multipart form, parsed as it arrives. Everything but the file may have 1 MiB in total; only parts before the file become fields."""

    def __init__(self, content_type: bytes, field: str, receive: Receive) -> None:
        super().__init__(content_type)
        self.file_name: str | None = None
        self._field = field.encode()
        self._receive = receive
        self._is_inside_file = False
        self._file_pieces: list[bytes] = []
        self._file_size = self._received = 0
        self._is_ended = False

    async def read_to_file(self) -> None:
        """Reads until the file begins, or to the end if there is none. Raises MalformedRequestError, ClientDisconnected."""
        while self.file_name is None and not self._is_ended:
            await self._read_chunk()

    async def read_file(self) -> AsyncIterator[bytes]:
        """The bytes of the file. Afterwards the whole form has been read. Raises MalformedRequestError, ClientDisconnected."""
        while True:
            pieces, self._file_pieces = self._file_pieces, []
            for piece in pieces:
                yield piece
            if self._is_ended:
                return
            await self._read_chunk()

    async def _read_chunk(self) -> None:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        chunk = message.get("body", b"")
        self._received += len(chunk)
        self.feed(chunk)
        if self._received - self._file_size > MAX_FORM_BODY_BYTES:
            raise MalformedRequestError(error_response(413))
        if not message.get("more_body", False):
            self._is_ended = True
            self.close()

    def headers_finished(self) -> None:
        super().headers_finished()
        if self.file_name is None and self.options.get(b"name") == self._field and self.options.get(b"filename"):
            self.file_name = self.options[b"filename"].decode("utf-8", "replace").replace("\0", "")
            self._is_inside_file = True

    def data(self, data: bytes, start: int, end: int) -> None:
        if self._is_inside_file:
            self._file_pieces.append(data[start:end])
            self._file_size += end - start
        else:
            super().data(data, start, end)

    def end(self) -> None:
        if not self._is_inside_file:
            super().end()
        self._is_inside_file = False


async def _store_file(form: FileUploadForm, incoming: IncomingFile, limit: int) -> ErrorResponse | None:
    """Writes the file. Returns the error response for a file that is too large or malformed.

    Raises ClientDisconnected, and OSError for a full disk.
    """
    size = 0
    try:
        async for piece in form.read_file():
            size += len(piece)
            if size > limit:
                return _too_large_response(limit)
            await incoming.write(piece)
    except MalformedRequestError as error:
        return error.response
    await incoming.finish()
    return None


def _too_large_response(limit: int) -> ErrorResponse:
    return error_response(413, f"413 Request Entity Too Large: a file may have at most {limit} bytes")
