"""A row with a file: the file is streamed to where the graph receives it, and the operation gets its ticket.

What stands before the file in the form is read first, since the credential may be there; then the guard is asked, which also knows how
many bytes a file may have. So nothing is kept of a caller who may not send it, and the memory does not grow with the file.
"""

import errno
from collections.abc import AsyncIterator
from typing import Any

from rest_v3.bodies import LARGEST_BODY, MalformedError, MultipartForm, Receive, pairs_of, read_body, read_sent
from rest_v3.endpoint import Endpoint, Graph, Incoming, Request, Response
from rest_v3.errors import Refusal, refusal
from rest_v3.operations import Operations
from rest_v3.route import BadRowError, Route

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The disk, the quota or the file may not grow (RELIABILITY R11)."""


class Gone(Exception):
    """The caller went away before all was read."""


class Receiver(Endpoint):
    """An endpoint whose row has a file."""

    def __init__(self, route: Route, operations: Operations, graph: Graph, base_url: str) -> None:
        super().__init__(route, operations, graph, base_url)
        (self._file,) = (parameter.name for parameter in route.params if parameter.kind == "file")
        selected = self._guard.operation.selected if self._guard is not None else {}
        for key in (route.limit or "").split("."):
            if key not in selected:
                raise BadRowError(f"{route.call}: the guard does not ask for the limit of the file")
            selected = selected[key].below

    async def answer(self, request: Request) -> Response | None:
        """The answer; None when the caller went away before the request was read."""
        try:
            return await self._received(request)
        except Gone:
            return None
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            return self._refuse(refusal(507))

    async def _received(self, request: Request) -> Response:
        form, sent, wrong = await self._begin(request)
        if wrong is not None and wrong.status == 413:
            return self._refuse(wrong)
        credential = self.credential_of(request, sent)
        variables, unread = self._read(request, sent)
        assert self._guard is not None, "the limit stands in the guard's data"  # noqa: S101
        outcome = await self._ask_guard(request, self._guard, variables, credential)
        refused = self._guard.judge(self.route, outcome) or wrong or unread
        if refused is not None or form is None:
            return self._refuse(refused or refusal(400))
        limit: Any = outcome.data
        for key in (self.route.limit or "").split("."):
            limit = limit[key]
        if _declared(request) > limit + LARGEST_BODY:
            return self._refuse(_too_large(limit))
        incoming = self._graph.receive()
        try:
            too_large = await _store(form, incoming, limit)
            if too_large is not None:
                return self._refuse(too_large)
            variables[self._file] = {"ticket": incoming.ticket, "name": form.file_name}
            return await self._single(request, variables, credential)
        finally:
            await incoming.discard()

    async def _begin(self, request: Request) -> tuple["FileForm | None", dict[str, Any], Refusal | None]:
        """What was sent before the file, the form at its file, and the 400 or 413 for what cannot be read."""
        sent: dict[str, Any] = {}
        form: FileForm | None = None
        try:
            sent = self._known.gather(pairs_of(request.query))
            content_type = request.headers.get(b"content-type", b"")
            if content_type.partition(b";")[0].strip().lower() == b"multipart/form-data":
                form = FileForm(content_type, self._file, request.receive)
                await form.read_to_file()
                sent.update(self._known.gather(form.pairs))
            else:
                body = await read_body(request.receive, request.headers.get(b"content-length"))
                if body is None:
                    raise Gone
                sent.update(read_sent(body, content_type, self._known))
                sent.pop(self._file, None)
        except MalformedError as error:
            return None, sent, error.answer
        if form is not None and form.file_name is not None:
            sent[self._file] = {"ticket": "", "name": form.file_name}
        return form, sent, None


class FileForm(MultipartForm):
    """A multipart form that is read as it comes. All but the file may have 1 MiB in all, and only what stands before it is a field."""

    def __init__(self, content_type: bytes, field: str, receive: Receive) -> None:
        super().__init__(content_type)
        self.file_name: str | None = None
        self._field = field.encode()
        self._receive = receive
        self._inside = False
        self._file_pieces: list[bytes] = []
        self._file_size = self._received = 0
        self._ended = False

    async def read_to_file(self) -> None:
        """Reads until the file begins, or the end where there is none. Raises MalformedError, Gone."""
        while self.file_name is None and not self._ended:
            await self._more()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The bytes of the file; at the end the whole form is read. Raises MalformedError, Gone."""
        while True:
            pieces, self._file_pieces = self._file_pieces, []
            for piece in pieces:
                yield piece
            if self._ended:
                return
            await self._more()

    async def _more(self) -> None:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Gone
        chunk = message.get("body", b"")
        self._received += len(chunk)
        self.feed(chunk)
        if self._received - self._file_size > LARGEST_BODY:
            raise MalformedError(refusal(413))
        if not message.get("more_body", False):
            self._ended = True
            self.close()

    def headers_finished(self) -> None:
        super().headers_finished()
        if self.file_name is None and self.options.get(b"name") == self._field and self.options.get(b"filename"):
            self.file_name = self.options[b"filename"].decode("utf-8", "replace").replace("\0", "")
            self._inside = True

    def data(self, data: bytes, start: int, end: int) -> None:
        if self._inside:
            self._file_pieces.append(data[start:end])
            self._file_size += end - start
        else:
            super().data(data, start, end)

    def end(self) -> None:
        if not self._inside:
            super().end()
        self._inside = False


async def _store(form: FileForm, incoming: Incoming, limit: int) -> Refusal | None:
    """Writes the file; the refusal of one that is too large or that cannot be read. Raises Gone, and OSError for a full disk."""
    size = 0
    try:
        async for piece in form.pieces():
            size += len(piece)
            if size > limit:
                return _too_large(limit)
            await incoming.write(piece)
    except MalformedError as error:
        return error.answer
    await incoming.finish()
    return None


def _too_large(limit: int) -> Refusal:
    return refusal(413, f"413 Request Entity Too Large: a file may have at most {limit} bytes")


def _declared(request: Request) -> int:
    length = request.headers.get(b"content-length", b"")
    return int(length[:18]) if length.isdigit() else 0
