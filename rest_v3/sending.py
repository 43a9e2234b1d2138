"""A row whose answer is a file: the operation authorises and names it, and its bytes are streamed (DECISIONS 26).

A browser never shows such a file as a page of this site: it is sent as an attachment, of a kind that holds no script, to be sniffed by
nobody, and with a policy under which nothing in it could load or run. One range of it may be asked for (RFC 9110, section 14); who asks
for several gets the whole, so that no request costs more than the file once.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from graph.caller import gone
from rest_v3.bodies import MalformedError, Receive, pairs_of
from rest_v3.endpoint import Endpoint, Graph, Request, Response
from rest_v3.errors import Refusal, refusal
from rest_v3.operations import Operations
from rest_v3.route import BadRowError, Route

POLICY = b"default-src 'none'; sandbox"
RANGE = re.compile(rb"bytes[ \t]*=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*")

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Open = Callable[[], AbstractAsyncContextManager[AsyncIterator[bytes]]]


@dataclass(slots=True)
class FileResponse(Response):
    """An answer of `size` bytes that are read while they are sent. `open` raises FileNotFoundError when it is entered too late."""

    size: int
    open: Open


class Sender(Endpoint):
    """An endpoint whose row is a file."""

    def __init__(self, route: Route, operations: Operations, graph: Graph, base_url: str) -> None:
        super().__init__(route, operations, graph, base_url)
        if self.target is None or route.stream not in self.target.below:
            raise BadRowError(f"{route.call}: {self.operation.name} does not ask for {route.stream} in {route.gives}")

    async def answer(self, request: Request) -> Response | None:
        sent: dict[str, Any] = {}
        malformed: Refusal | None = None
        try:
            sent = self._known.gather(pairs_of(request.query))
        except MalformedError as error:
            malformed = error.answer
        credential = self.credential_of(request, sent)
        variables, unread = self._read(request, sent)
        wrong = malformed or unread
        if wrong is not None:
            return self._refuse(await self._guarded(request, variables, credential) or wrong)
        outcome = await self._run(request, self.operation, variables, credential)
        refused = self._outcomes.refusal(outcome)
        if refused is not None:
            return self._refuse(refused)
        value, _ = self._outcomes.locate(outcome.data)
        if value is None:
            return self._refuse(refusal(404, "404 Not Found"))
        return self._whole_or_part(request, outcome.files[value[self.route.stream]])

    def _whole_or_part(self, request: Request, file: Any) -> Response:
        asked = request.headers.get(b"range") if request.method == "GET" and b"if-range" not in request.headers else None
        part = range_of(asked, file.size)
        if part is not None and part[1] == 0:
            refused = refusal(416, headers={"Content-Range": f"bytes */{file.size}"})
            return self._refuse(refused)
        start, size = part or (0, file.size)
        headers = [
            (b"content-type", b"application/octet-stream"),
            (b"content-disposition", disposition(file.name)),
            (b"content-transfer-encoding", b"binary"),
            (b"content-security-policy", POLICY),
            (b"accept-ranges", b"bytes"),
            self._caching,
        ]
        if part is not None:
            headers.append((b"content-range", f"bytes {start}-{start + size - 1}/{file.size}".encode()))
        return FileResponse(206 if part else 200, b"", headers, size, lambda: file.open(start, size))


def range_of(asked: bytes | None, size: int) -> tuple[int, int] | None:
    """Where the one range begins that a Range header asks for, and its length; a length of 0 is beyond the end (416).

    None stands for the whole: without a header, for one that cannot be read, and for several ranges.

    >>> range_of(b"bytes=2-5", 10), range_of(b"bytes=-3", 10), range_of(b"bytes=8-", 10), range_of(b"bytes=10-", 10)
    ((2, 4), (7, 3), (8, 2), (10, 0))
    """
    found = RANGE.fullmatch(asked or b"")
    if found is None or found[1] == found[2] == b"":
        return None
    if not found[1]:
        last = min(int(found[2]), size)
        return size - last, last
    start, end = int(found[1]), int(found[2] or size - 1) if size or found[2] else 0
    if found[2] and end < start:
        return None
    return (start, min(end, size - 1) - start + 1) if start < size else (size, 0)


def disposition(name: str) -> bytes:
    """The Content-Disposition of a file to be kept (RFC 6266).

    `filename` comes last, since clients of the time take whatever follows its `=`.

    >>> disposition("a.zip"), disposition('naïve "1".zip')
    (b'attachment; filename="a.zip"', b"attachment; filename*=UTF-8''na%C3%AFve%20%221%22.zip; filename=\\"na_ve _1_.zip\\"")
    """
    plain = re.sub(r"[^A-Za-z0-9 !#$&'()+,.=@^_`{}~\[\]-]", "_", name)
    extended = "" if plain == name else f"filename*=UTF-8''{quote(name, safe='')}; "
    return f'attachment; {extended}filename="{plain}"'.encode("ascii")


async def send_file(receive: Receive, send: Send, response: FileResponse, *headers: tuple[bytes, bytes], bodiless: bool) -> bool:
    """Sends the bytes as fast as they are taken; False, and nothing was sent, where the file is gone meanwhile.

    Raises OSError for a file that turns out shorter: the connection is closed then, so that nobody takes the part for the whole.
    """
    start = {
        "type": "http.response.start",
        "status": response.status,
        "headers": [*response.headers, *headers, (b"content-length", str(response.size).encode())],
    }
    try:
        async with response.open() as pieces:
            await send(start)
            if not bodiless:
                await _send_pieces(receive, send, pieces, response.size)
    except FileNotFoundError:
        return False
    if bodiless:
        await send({"type": "http.response.body", "body": b""})
    return True


async def _send_pieces(receive: Receive, send: Send, pieces: AsyncIterator[bytes], left: int) -> None:
    # The server takes what is sent to a caller who has gone, and throws it away.
    leaving = asyncio.ensure_future(gone(receive))
    try:
        async for piece in pieces:
            left -= len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            if leaving.done():
                return
        if left:
            raise OSError(f"a file is shorter than it was: {left} bytes are missing")
        await send({"type": "http.response.body", "body": b""})
    finally:
        leaving.cancel()
