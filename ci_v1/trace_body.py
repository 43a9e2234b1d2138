"""Bodies of PUT /builds/:id, which hold a whole trace: read in pieces, with the trace set aside in a file while the rest is a small body.

A trace may have any length and any bytes: what is no UTF-8 is replaced, and what is beyond the instance's limit is read and discarded.
Memory use does not depend on the length, and no piece keeps the event loop for more than some milliseconds.
"""

import asyncio
import codecs
import json
import re
import tempfile
from collections.abc import AsyncIterator
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

from rest_v3.endpoints.file_uploads import ClientDisconnected
from rest_v3.errors import error_response
from rest_v3.requests.bodies import MAX_FORM_BODY_BYTES, AcceptedNames, MalformedRequestError, MultipartForm, Receive, parse_body

TRACE_FIELD = "trace"
MAX_BODY_BYTES = 2**31
PIECE_BYTES = 2**16
"""What is parsed before other requests have their turn."""
MAX_MEMORY_BYTES = 2**19
"""The length from which on a trace is written to a file."""
REPLACEMENT = "\ufffd"
"""What stands for a byte that is no UTF-8, and for NUL, which no database stores."""
MAX_NAME_BYTES = 100


class TraceSpool:
    """A trace in UTF-8, of which no more is stored than `limit` bytes and one character; `size` is in bytes."""

    def __init__(self, limit: int) -> None:
        self.size = 0
        self._limit = limit
        self._trailing_replacements = 0
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._file = tempfile.SpooledTemporaryFile(MAX_MEMORY_BYTES)  # noqa: SIM115 - `close` closes it

    @property
    def is_full(self) -> bool:
        return self.size > self._limit

    def write(self, text: str) -> None:
        if self.is_full or not text:
            return
        readable = len(text.rstrip(REPLACEMENT))
        self._trailing_replacements = len(text) - readable + (self._trailing_replacements if not readable else 0)
        data = text.replace("\0", REPLACEMENT).encode()
        remaining = self._limit - self.size
        if len(data) > remaining:
            data = data[: _next_character_start(data, remaining + 1)]
        self.size += len(data)
        self._pending.append(data)
        self._pending_size += len(data)

    async def flush(self, *, min_bytes: int = MAX_MEMORY_BYTES) -> None:
        """Writes what is pending, if that is so many bytes. Raises OSError."""
        if self._pending_size >= min_bytes:
            data = b"".join(self._pending)
            self._pending, self._pending_size = [], 0
            await asyncio.to_thread(self._file.write, data)

    def clear(self) -> None:
        """Forgets the trace, for one that replaces it."""
        self.size = self._trailing_replacements = self._pending_size = 0
        self._pending = []
        self._file.seek(0)
        self._file.truncate()

    async def read_pieces(self, start: int, *, final: bool, size: int) -> AsyncIterator[bytes]:
        """The trace from the first character at or behind the byte `start`, in pieces of whole characters of about `size` bytes.

        Unless the trace is final, unreadable bytes at its end are left out: they may be the beginning of a character.
        """
        await self.flush(min_bytes=0)
        end = self.size if final or self.is_full else self.size - self._trailing_replacements * len(REPLACEMENT.encode())
        await asyncio.to_thread(self._file.seek, start)
        remainder, first = b"", True
        while start < end:
            data = await asyncio.to_thread(self._file.read, min(size, end - start))
            if not data:
                return
            start += len(data)
            data = remainder + data
            if first:
                data = data[_next_character_start(data, 0) :]
                first = False
            cut = len(data) if start >= end else _last_character_start(data)
            remainder = data[cut:]
            if cut:
                yield data[:cut]

    def close(self) -> None:
        self._file.close()


def _next_character_start(data: bytes, position: int) -> int:
    """Where the first character begins at this place or behind it."""
    while position < len(data) and data[position] & 0xC0 == 0x80:
        position += 1
    return min(position, len(data))


def _last_character_start(data: bytes) -> int:
    """Where the last character begins, of which more bytes may come."""
    position = len(data) - 1
    while position > 0 and data[position] & 0xC0 == 0x80:
        position -= 1
    return max(position, 0)


class TraceBodyParser(Protocol):
    """A body that is read in pieces. Both raise MalformedRequestError."""

    def feed(self, data: bytes) -> None: ...

    def parameters(self) -> dict[str, Any]:
        """What the whole body sends beside the trace."""
        ...


async def read_trace_body(
    receive: Receive, declared: bytes | None, content_type: bytes, accepted: AcceptedNames, spool: TraceSpool
) -> dict[str, Any]:
    """What a body sends beside the trace, which is in the spool afterwards. Raises MalformedRequestError, ClientDisconnected, OSError."""
    if declared is not None and declared.isdigit() and int(declared[:12]) > MAX_BODY_BYTES:
        raise MalformedRequestError(error_response(413))
    body = _create_parser(content_type, accepted, spool)
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise MalformedRequestError(error_response(413))
        for start in range(0, len(chunk), PIECE_BYTES):
            body.feed(chunk[start : start + PIECE_BYTES])
            await spool.flush()
            await asyncio.sleep(0)
    return body.parameters()


def _create_parser(content_type: bytes, accepted: AcceptedNames, spool: TraceSpool) -> TraceBodyParser:
    kind = content_type.partition(b";")[0].strip().lower()
    if kind == b"application/json":
        return JsonTraceParser(content_type, accepted, spool)
    if kind in (b"", b"application/x-www-form-urlencoded"):
        return FormTraceParser(content_type, accepted, spool)
    if kind == b"multipart/form-data":
        return MultipartTraceParser(content_type, accepted, spool)
    return _BodyParser(content_type, accepted)


class _BodyParser:
    """A body without its trace, at most 1 MiB."""

    def __init__(self, content_type: bytes, known: AcceptedNames) -> None:
        self._content_type = content_type
        self._accepted = known
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._add(data)

    def parameters(self) -> dict[str, Any]:
        return parse_body(bytes(self._buffer), self._content_type, self._accepted)

    def _add(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) > MAX_FORM_BODY_BYTES:
            raise MalformedRequestError(error_response(413))


class JsonTraceParser(_BodyParser):
    """A JSON object: the string at its key `trace` goes to the spool, and an empty one stands for it in what is parsed as a whole."""

    _STRUCTURE = re.compile(rb'["{}\[\]:,]')
    _CONTENT = re.compile(rb'(?:[^"\\]++|\\u[0-9a-fA-F]{4}|\\[^u])*+')
    _ESCAPE_BYTES = 6

    def __init__(self, content_type: bytes, known: AcceptedNames, spool: TraceSpool) -> None:
        super().__init__(content_type, known)
        self._spool = spool
        self._unread = b""
        self._depth = 0
        self._key: bytes | None = None
        """The key of the object whose value is next or being read; None where a key is next."""
        self._string: bytearray | None = None
        """The content so far of a string that is being read; what exceeds a name is cut."""
        self._in_trace = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._surrogate = ""

    def feed(self, data: bytes) -> None:
        data = self._unread + data
        position = 0
        while position < len(data):
            if self._string is None:
                position = self._read_structure(data, position)
                continue
            end = self._find_content_end(data, position)
            self._add_content(data[position:end])
            position = end
            if position == len(data) or data[position] != ord('"'):
                # An escape whose rest is still to come.
                if len(data) - position >= self._ESCAPE_BYTES:
                    raise _invalid_json_error()
                break
            self._close_string()
            position += 1
        self._unread = data[position:]

    def parameters(self) -> dict[str, Any]:
        if self._string is not None or self._unread:
            raise _invalid_json_error()
        return super().parameters()

    def _read_structure(self, data: bytes, position: int) -> int:
        found = self._STRUCTURE.search(data, position)
        end = found.end() if found is not None else len(data)
        self._add(data[position:end])
        token = found.group() if found is not None else b""
        if token == b'"':
            self._string = bytearray()
            self._in_trace = self._depth == 1 and self._key == TRACE_FIELD.encode()
            if self._in_trace:
                self._spool.clear()
        elif token in (b"{", b"["):
            self._depth += 1
        elif token in (b"}", b"]"):
            self._depth -= 1
        elif token == b"," and self._depth == 1:
            self._key = None
        return end

    def _find_content_end(self, data: bytes, position: int) -> int:
        found = self._CONTENT.match(data, position)
        return found.end() if found is not None else position

    def _add_content(self, content: bytes) -> None:
        if not self._in_trace:
            self._add(content)
            if self._string is not None and len(self._string) < MAX_NAME_BYTES:
                self._string += content[:MAX_NAME_BYTES]
        elif not self._spool.is_full:
            self._spool.write(self._decode(content))

    def _decode(self, content: bytes, *, final: bool = False) -> str:
        try:
            decoded: str = self._surrogate + json.loads(f'"{self._decoder.decode(content, final)}"', strict=False)
        except ValueError:
            raise _invalid_json_error() from None
        self._surrogate = ""
        if decoded and "\ud800" <= decoded[-1] <= "\udbff" and not final:
            # The other half of the character comes in the next piece.
            decoded, self._surrogate = decoded[:-1], decoded[-1]
        # Halves are joined; without the other half one is no character.
        return decoded if decoded.isascii() else decoded.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def _close_string(self) -> None:
        if self._in_trace and not self._spool.is_full:
            self._spool.write(self._decode(b"", final=True))
        if self._in_trace:
            self._decoder.reset()
            self._surrogate = ""
            self._in_trace = False
        elif self._depth == 1 and self._key is None and self._string is not None:
            self._key = _decode_key(bytes(self._string))
        self._add(b'"')
        self._string = None


def _decode_key(content: bytes) -> bytes:
    """A key, whose characters may be escaped."""
    if b"\\" not in content:
        return content
    try:
        return str(json.loads(b'"' + content + b'"')).encode("utf-8", "replace")
    except ValueError:
        return content


def _invalid_json_error() -> MalformedRequestError:
    return MalformedRequestError(error_response(400, "400 Bad Request: the body is not JSON"))


class FormTraceParser(_BodyParser):
    """An urlencoded form, without the field `trace`, whose value goes to the spool."""

    def __init__(self, content_type: bytes, known: AcceptedNames, spool: TraceSpool) -> None:
        super().__init__(content_type, known)
        self._spool = spool
        self._unread = b""
        self._in_trace = False
        self._at_name = True
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> None:
        data = self._unread + data
        self._unread = b""
        while data:
            if self._at_name:
                name = re.match(rb"[^=&]*+[=&]", data)
                if name is None:
                    self._unread = data
                    if len(data) > MAX_FORM_BODY_BYTES:
                        raise MalformedRequestError(error_response(413))
                    return
                self._in_trace = unquote_to_bytes(name.group()[:-1]) == TRACE_FIELD.encode() and name.group().endswith(b"=")
                self._at_name = name.group().endswith(b"&")
                if self._in_trace:
                    self._spool.clear()
                else:
                    self._add(name.group())
                data = data[name.end() :]
                continue
            value, end, data = data.partition(b"&")
            if self._in_trace:
                self._unread = self._add_value(value, final=bool(end))
            else:
                self._add(value + end)
            self._at_name = bool(end)

    def parameters(self) -> dict[str, Any]:
        if self._in_trace and not self._at_name:
            self._add_value(self._unread, final=True)
        else:
            self._add(self._unread)
        return super().parameters()

    def _add_value(self, value: bytes, *, final: bool) -> bytes:
        """Decodes a piece of the trace; returns an escape whose rest is still to come."""
        cut = len(value)
        if not final and b"%" in value[-2:]:
            cut = value.rindex(b"%")
        if not self._spool.is_full:
            self._spool.write(self._decoder.decode(unquote_to_bytes(value[:cut].replace(b"+", b" ")), final))
        return value[cut:]


class MultipartTraceParser(MultipartForm):
    """A multipart form, without the part `trace`, which goes to the spool."""

    def __init__(self, content_type: bytes, known: AcceptedNames, spool: TraceSpool) -> None:
        super().__init__(content_type)
        self._accepted = known
        self._spool = spool
        self._size = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def _in_trace(self) -> bool:
        return self.options.get(b"name") == TRACE_FIELD.encode() and b"filename" not in self.options

    def headers_finished(self) -> None:
        super().headers_finished()
        if self._in_trace:
            self._spool.clear()

    def data(self, data: bytes, start: int, end: int) -> None:
        if self._in_trace:
            self._spool.write(self._decoder.decode(data[start:end]))
            return
        self._size += end - start
        if self._size > MAX_FORM_BODY_BYTES:
            raise MalformedRequestError(error_response(413))
        super().data(data, start, end)

    def end(self) -> None:
        if self._in_trace:
            self._spool.write(self._decoder.decode(b"", final=True))
            self._decoder.reset()
            self.options = {}
        super().end()

    def parameters(self) -> dict[str, Any]:
        self.close()
        return self._accepted.collect(self.pairs)
