"""Bodies of HTTP/1 messages: where one ends in the bytes that follow a head (RFC 9112, section 6.3).

A reader is fed with bytes in pieces of any size. It changes none: chunk sizes, extensions and trailers are passed on as they came.
"""

import re

MAX_CHUNK_LINE = 16 * 1024
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")


class MalformedBodyError(ValueError):
    """A chunked body whose chunks cannot be delimited."""


class BodyReader:
    """A body of a known length, or (None) one that ends with the connection."""

    def __init__(self, length: int | None) -> None:
        self._remaining = length

    @property
    def is_complete(self) -> bool:
        return self._remaining == 0

    @property
    def ends_with_connection(self) -> bool:
        return self._remaining is None

    def feed(self, data: bytes, content: bytearray | None = None) -> int:
        """Returns how many of the bytes belong to the body; adds the content among them to `content`."""
        taken = len(data)
        if self._remaining is not None:
            taken = min(taken, self._remaining)
            self._remaining -= taken
        if content is not None:
            content += data if taken == len(data) else data[:taken]
        return taken


class ChunkedBodyReader(BodyReader):
    """A body in chunks. Raises MalformedBodyError from `feed`."""

    def __init__(self) -> None:
        super().__init__(None)
        self._chunk = 0
        """Bytes of the chunk that are still to come, with the line end behind it."""
        self._line = bytearray()
        self._is_in_trailers = False
        self._is_complete = False

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    @property
    def ends_with_connection(self) -> bool:
        return False

    def feed(self, data: bytes, content: bytearray | None = None) -> int:
        position = 0
        while position < len(data) and not self._is_complete:
            if self._chunk:
                position = self._skip_chunk(data, position, content)
            else:
                position = self._read_line(data, position)
        return position

    def _skip_chunk(self, data: bytes, position: int, content: bytearray | None) -> int:
        taken = min(self._chunk, len(data) - position)
        if content is not None:
            content += data[position : position + min(taken, max(self._chunk - 2, 0))]
        # The last two bytes are the line end: anything else would be read as content by one server, and as a size by another.
        for offset in range(max(self._chunk - 2, 0), taken):
            if data[position + offset] != b"\r\n"[2 - self._chunk + offset]:
                raise MalformedBodyError("a chunk is longer than its size")
        self._chunk -= taken
        return position + taken

    def _read_line(self, data: bytes, position: int) -> int:
        end = data.find(b"\n", position)
        stop = len(data) if end < 0 else end + 1
        self._line += data[position:stop]
        if len(self._line) > MAX_CHUNK_LINE:
            raise MalformedBodyError("a chunk size or a trailer is too long")
        if end >= 0:
            if not self._line.endswith(b"\r\n"):
                raise MalformedBodyError("a line of a chunked body does not end with CR LF")
            line = bytes(self._line[:-2])
            self._line.clear()
            self._take_line(line)
        return stop

    def _take_line(self, line: bytes) -> None:
        if self._is_in_trailers:
            self._is_complete = not line
            return
        size = _CHUNK_SIZE.fullmatch(line)
        if size is None:
            raise MalformedBodyError("the size of a chunk is malformed")
        length = int(size[1], 16)
        self._is_in_trailers = length == 0
        self._chunk = length + 2 if length else 0


def request_body_reader(length: int | None) -> BodyReader:
    """The reader of a request's body, by the length of its head."""
    return ChunkedBodyReader() if length is None else BodyReader(length)


def response_body_reader(method: bytes, status: int, length: int | None, *, is_chunked: bool) -> BodyReader:
    """The reader of an answer's body: some answers have none, whatever their head says."""
    if method == b"HEAD" or status < 200 or status in (204, 304):
        return BodyReader(0)
    return ChunkedBodyReader() if is_chunked else BodyReader(length)
