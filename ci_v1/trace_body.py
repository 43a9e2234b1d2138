"""Parsers for bodies of PUT /builds/:id. They spool the trace to a file and return the remaining fields.

A trace may have any length and contain any bytes: invalid UTF-8 is replaced, and bytes beyond the instance's limit are read and discarded.
Memory use does not depend on the length, and parsing one chunk blocks the event loop for a few milliseconds at most.
"""

import asyncio
import codecs
import json
import re
import tempfile
from collections.abc import AsyncIterator
from typing import Any, Protocol

from graph.http.percent_encoding import decode_percent
from rest_v3.endpoints.file_uploads import ClientDisconnected
from rest_v3.errors import error_response
from rest_v3.requests.bodies import MAX_FORM_BODY_BYTES, AcceptedNames, MalformedRequestError, MultipartForm, Receive, parse_body

TRACE_FIELD = "trace"
MAX_BODY_BYTES = 2**31
PIECE_BYTES = 2**16
"""Bytes that are parsed before other requests run."""
MAX_MEMORY_BYTES = 2**19
"""A longer trace is written to a file."""
REPLACEMENT = "\ufffd"
"""Replaces a byte that is not UTF-8, and NUL, which no database stores."""
MAX_NAME_BYTES = 100


class TraceSpool:
    """A trace in UTF-8. Stores at most `limit` bytes and one character; `size` is in bytes."""

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
        """Writes the pending bytes to the file if there are at least this many. Raises OSError."""
        if self._pending_size >= min_bytes:
            data = b"".join(self._pending)
            self._pending, self._pending_size = [], 0
            await asyncio.to_thread(self._file.write, data)

    def clear(self) -> None:
        """Discards the trace; a second `trace` field replaces the first."""
        self.size = self._trailing_replacements = self._pending_size = 0
        self._pending = []
        self._file.seek(0)
        self._file.truncate()

    async def read_pieces(self, start: int, *, final: bool, size: int) -> AsyncIterator[bytes]:
        """The trace from the first character at or after the byte `start`, in chunks of whole characters of about `size` bytes.

        Unless the trace is final, incomplete bytes at its end are left out: they may be the beginning of a character.
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
    """The index at which the first character at or after `position` begins."""
    while position < len(data) and data[position] & 0xC0 == 0x80:
        position += 1
    return min(position, len(data))


def _last_character_start(data: bytes) -> int:
    """The index at which the last character begins if it may be incomplete."""
    position = len(data) - 1
    while position > 0 and data[position] & 0xC0 == 0x80:
        position -= 1
    return max(position, 0)


class TraceBodyParser(Protocol):
    """An incremental parser of a body. Both methods raise MalformedRequestError."""

    def feed(self, data: bytes) -> None: ...

    def parameters(self) -> dict[str, Any]:
        """The fields of the whole body except the trace."""
        ...


async def read_trace_body(
    receive: Receive, declared: bytes | None, content_type: bytes, accepted: AcceptedNames, spool: TraceSpool
) -> dict[str, Any]:
    """Returns the fields of a body except the trace, and spools the trace. Raises MalformedRequestError, ClientDisconnected, OSError."""
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
    """A JSON object. The string at its key `trace` is spooled, and an empty string replaces it before the object is parsed."""

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
        """The content so far of the string that is being read, truncated to the length of a field name."""
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
                # The rest of the escape is in the next chunk.
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
            # The other surrogate is in the next chunk.
            decoded, self._surrogate = decoded[:-1], decoded[-1]
        # Surrogate pairs are joined; a lone surrogate is not a character.
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
    """An urlencoded form. The value of the field `trace` is spooled."""

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
                    if len(data) > PIECE_BYTES:
                        # It is read again with each chunk.
                        raise MalformedRequestError(error_response(413))
                    return
                self._in_trace = decode_percent(name.group()[:-1]) == TRACE_FIELD.encode() and name.group().endswith(b"=")
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
        """Decodes a chunk of the trace; returns an incomplete escape at its end."""
        cut = len(value)
        if not final and b"%" in value[-2:]:
            cut = value.rindex(b"%")
        if not self._spool.is_full:
            self._spool.write(self._decoder.decode(decode_percent(value[:cut].replace(b"+", b" ")), final))
        return value[cut:]


class MultipartTraceParser(MultipartForm):
    """A multipart form. The part `trace` is spooled."""

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
