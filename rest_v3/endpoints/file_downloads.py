"""Endpoints that respond with a file: the operation authorizes and names it, and its bytes are streamed (docs/decisions.md 26).

Browsers must not render such a file as a page of this site: it is sent as an attachment, with a content type that runs no script, with
`nosniff`, and with a content security policy that blocks everything. One range may be requested (RFC 9110, section 14). A request for
several ranges receives the whole file, so that no request costs more than reading the file once.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from graph.errors import Unavailable
from graph.operations.disconnects import wait_disconnected
from rest_v3.endpoints.endpoint import Endpoint, GraphExecutor
from rest_v3.endpoints.messages import RestRequest, RestResponse
from rest_v3.errors import ErrorResponse, error_response
from rest_v3.operations import OperationRegistry
from rest_v3.requests.bodies import MalformedRequestError, Receive, parse_pairs
from rest_v3.route import InvalidRouteError, Route

FILE_CSP = b"default-src 'none'; sandbox"
RANGE_PATTERN = re.compile(rb"bytes[ \t]*=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.IGNORECASE)

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
OpenFile = Callable[[], AbstractAsyncContextManager[AsyncIterator[bytes]]]


@dataclass(slots=True)
class FileResponse(RestResponse):
    """A response body of `size` bytes (None: unknown), read while it is sent.

    `open` raises FileNotFoundError when the file was deleted, Unavailable when it cannot be read now.
    """

    size: int | None
    open: OpenFile


class FileDownloadEndpoint(Endpoint):
    """An endpoint that responds with a file."""

    def __init__(self, route: Route, operations: OperationRegistry, graph: GraphExecutor, base_url: str) -> None:
        super().__init__(route, operations, graph, base_url)
        if self.target is None or route.file_key not in self.target.subfields:
            raise InvalidRouteError(f"{route.call}: {self.operation.name} does not select {route.file_key} in {route.result_path}")

    async def handle(self, request: RestRequest) -> RestResponse | None:
        sent: dict[str, Any] = {}
        malformed: ErrorResponse | None = None
        try:
            sent = self._accepted_names.collect(parse_pairs(request.query))
        except MalformedRequestError as error:
            malformed = error.response
        credential = self.credential_of(request, sent)
        if self.route.extension_parameter is not None and "." in request.segments[-1]:
            sent[self.route.extension_parameter] = request.segments[-1].partition(".")[2]
        variables, invalid = self._read_variables(request, sent)
        bad_request = malformed or invalid
        if bad_request is not None:
            return self._respond_error(await self._check_guard(request, variables, credential) or bad_request)
        result = await self._run(request, self.operation, variables, credential)
        rejection = self._result_reader.error_of(result)
        if rejection is not None:
            return self._respond_error(rejection)
        value, _ = self._result_reader.locate(result.data)
        if value is None:
            return self._respond_error(error_response(404, "404 Not Found"))
        return self._respond_file(request, result.files[value[self.route.file_key]])

    def _respond_file(self, request: RestRequest, file: Any) -> RestResponse:
        headers = [
            (b"content-type", self.route.file_type.encode()),
            (b"content-disposition", content_disposition(file.name, self.route.file_disposition)),
            (b"content-transfer-encoding", b"binary"),
            (b"content-security-policy", FILE_CSP),
            self._cache_control,
        ]
        if file.size is None:
            return FileResponse(200, b"", headers, None, lambda: file.open(0, 0))
        range_header = request.headers.get(b"range") if request.method == "GET" and b"if-range" not in request.headers else None
        part = parse_range(range_header, file.size)
        if part is not None and part[1] == 0:
            return self._respond_error(error_response(416, headers={"Content-Range": f"bytes */{file.size}"}))
        start, size = part or (0, file.size)
        headers.append((b"accept-ranges", b"bytes"))
        if part is not None:
            headers.append((b"content-range", f"bytes {start}-{start + size - 1}/{file.size}".encode()))
        return FileResponse(206 if part else 200, b"", headers, size, lambda: file.open(start, size))


def parse_range(range_header: bytes | None, size: int) -> tuple[int, int] | None:
    """The offset and the length of the range that a Range header requests; length 0 means beyond the end (416).

    None stands for the whole file: without a header, with an invalid one, and with several ranges.

    >>> parse_range(b"Bytes=2-5", 10), parse_range(b"bytes=-3", 10), parse_range(b"bytes=8-", 10), parse_range(b"bytes=10-", 10)
    ((2, 4), (7, 3), (8, 2), (10, 0))
    """
    found = RANGE_PATTERN.fullmatch(range_header or b"")
    if found is None or found[1] == found[2] == b"":
        return None
    if not found[1]:
        last = min(int(found[2]), size)
        return size - last, last
    start, end = int(found[1]), int(found[2] or size - 1) if size or found[2] else 0
    if found[2] and end < start:
        return None
    return (start, min(end, size - 1) - start + 1) if start < size else (size, 0)


def content_disposition(name: str, kind: str = "attachment") -> bytes:
    """The Content-Disposition header of a download (RFC 6266).

    `filename` comes last, since legacy clients take everything after its `=`.

    >>> content_disposition("a.zip"), content_disposition('naïve "1".zip')
    (b'attachment; filename="a.zip"', b"attachment; filename*=UTF-8''na%C3%AFve%20%221%22.zip; filename=\\"na_ve _1_.zip\\"")
    """
    plain = re.sub(r"[^A-Za-z0-9 !#$&'()+,.=@^_`{}~\[\]-]", "_", name)
    extended = "" if plain == name else f"filename*=UTF-8''{quote(name, safe='')}; "
    return f'{kind}; {extended}filename="{plain}"'.encode("ascii")


async def send_file(receive: Receive, send: Send, response: FileResponse, *headers: tuple[bytes, bytes], is_head: bool) -> bool:
    """Streams the file at the speed of the client. Returns False, without a response, if the file was deleted meanwhile.

    Raises Unavailable, also without a response. Raises OSError if the file is shorter than expected or cannot be read to its end: the
    connection is closed, so that no client takes the part for the whole.
    """
    length = [] if response.size is None else [(b"content-length", str(response.size).encode())]
    start = {"type": "http.response.start", "status": response.status, "headers": [*response.headers, *headers, *length]}
    async with AsyncExitStack() as stack:
        if not (is_head and response.size is None):
            try:
                pieces = await stack.enter_async_context(response.open())
            except FileNotFoundError:
                return False
        await send(start)
        if is_head:
            await send({"type": "http.response.body", "body": b""})
            return True
        try:
            await _send_pieces(receive, send, pieces, response.size)
        except Unavailable as error:
            raise OSError(error.message) from error
    return True


async def _send_pieces(receive: Receive, send: Send, pieces: AsyncIterator[bytes], size: int | None) -> None:
    # The server discards bytes sent to a disconnected client.
    disconnect = asyncio.ensure_future(wait_disconnected(receive))
    sent = 0
    try:
        async for piece in pieces:
            sent += len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            if disconnect.done():
                return
        if size is not None and sent < size:
            raise OSError(f"the file is {size - sent} bytes shorter than recorded")
        await send({"type": "http.response.body", "body": b""})
    finally:
        disconnect.cancel()
