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

from rest_v3.bodies import LARGEST_BODY, Known, MalformedError, MultipartForm, Receive, read_sent
from rest_v3.errors import refusal
from rest_v3.receiving import Gone

TRACE = "trace"
MAX_BODY_BYTES = 2**31
PIECE_BYTES = 2**16
"""What is parsed before other requests have their turn."""
MEMORY_BYTES = 2**19
"""The length from which on a trace is written to a file."""
REPLACEMENT = "\ufffd"
"""What stands for a byte that is no UTF-8, and for NUL, which no database stores."""
MAX_NAME_BYTES = 100


class TraceSpool:
    """A trace in UTF-8, of which no more is stored than `limit` bytes and one character; `size` is in bytes."""

    def __init__(self, limit: int) -> None:
        self.size = 0
        self._limit = limit
        self._unreadable_end = 0
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._file = tempfile.SpooledTemporaryFile(MEMORY_BYTES)  # noqa: SIM115 - `close` closes it

    @property
    def is_full(self) -> bool:
        return self.size > self._limit

    def write(self, text: str) -> None:
        if self.is_full or not text:
            return
        readable = len(text.rstrip(REPLACEMENT))
        self._unreadable_end = len(text) - readable + (self._unreadable_end if not readable else 0)
        data = text.replace("\0", REPLACEMENT).encode()
        room = self._limit - self.size
        if len(data) > room:
            data = data[: _character_at(data, room + 1)]
        self.size += len(data)
        self._pending.append(data)
        self._pending_size += len(data)

    async def flush(self, *, at_least: int = MEMORY_BYTES) -> None:
        """Writes what is pending, if that is so many bytes. Raises OSError."""
        if self._pending_size >= at_least:
            data = b"".join(self._pending)
            self._pending, self._pending_size = [], 0
            await asyncio.to_thread(self._file.write, data)

    def clear(self) -> None:
        """Forgets the trace, for one that replaces it."""
        self.size = self._unreadable_end = self._pending_size = 0
        self._pending = []
        self._file.seek(0)
        self._file.truncate()

    async def pieces(self, start: int, *, final: bool, size: int) -> AsyncIterator[bytes]:
        """The trace from the first character at or behind the byte `start`, in pieces of whole characters of about `size` bytes.

        Unless the trace is final, unreadable bytes at its end are left out: they may be the beginning of a character.
        """
        await self.flush(at_least=0)
        end = self.size if final or self.is_full else self.size - self._unreadable_end * len(REPLACEMENT.encode())
        await asyncio.to_thread(self._file.seek, start)
        rest, first = b"", True
        while start < end:
            data = await asyncio.to_thread(self._file.read, min(size, end - start))
            if not data:
                return
            start += len(data)
            data = rest + data
            if first:
                data = data[_character_at(data, 0) :]
                first = False
            cut = len(data) if start >= end else _last_character(data)
            rest = data[cut:]
            if cut:
                yield data[:cut]

    def close(self) -> None:
        self._file.close()


def _character_at(data: bytes, place: int) -> int:
    """Where the first character begins at this place or behind it."""
    while place < len(data) and data[place] & 0xC0 == 0x80:
        place += 1
    return min(place, len(data))


def _last_character(data: bytes) -> int:
    """Where the last character begins, of which more bytes may come."""
    place = len(data) - 1
    while place > 0 and data[place] & 0xC0 == 0x80:
        place -= 1
    return max(place, 0)


class TraceBody(Protocol):
    """A body that is read in pieces. Both raise MalformedError."""

    def feed(self, data: bytes) -> None: ...

    def sent(self) -> dict[str, Any]:
        """What the whole body sends beside the trace."""
        ...


async def read_trace_body(receive: Receive, declared: bytes | None, content_type: bytes, known: Known, spool: TraceSpool) -> dict[str, Any]:
    """What a body sends beside the trace, which is in the spool afterwards. Raises MalformedError, Gone, OSError."""
    if declared is not None and declared.isdigit() and int(declared[:12]) > MAX_BODY_BYTES:
        raise MalformedError(refusal(413))
    body = _body_of(content_type, known, spool)
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise MalformedError(refusal(413))
        for start in range(0, len(chunk), PIECE_BYTES):
            body.feed(chunk[start : start + PIECE_BYTES])
            await spool.flush()
            await asyncio.sleep(0)
    return body.sent()


def _body_of(content_type: bytes, known: Known, spool: TraceSpool) -> TraceBody:
    kind = content_type.partition(b";")[0].strip().lower()
    if kind == b"application/json":
        return JsonTraceBody(content_type, known, spool)
    if kind in (b"", b"application/x-www-form-urlencoded"):
        return FormTraceBody(content_type, known, spool)
    if kind == b"multipart/form-data":
        return MultipartTraceBody(content_type, known, spool)
    return _SmallBody(content_type, known)


class _SmallBody:
    """A body without its trace, at most 1 MiB."""

    def __init__(self, content_type: bytes, known: Known) -> None:
        self._content_type = content_type
        self._known = known
        self._small = bytearray()

    def feed(self, data: bytes) -> None:
        self._add(data)

    def sent(self) -> dict[str, Any]:
        return read_sent(bytes(self._small), self._content_type, self._known)

    def _add(self, data: bytes) -> None:
        self._small += data
        if len(self._small) > LARGEST_BODY:
            raise MalformedError(refusal(413))


class JsonTraceBody(_SmallBody):
    """A JSON object: the string at its key `trace` goes to the spool, and an empty one stands for it in what is parsed as a whole."""

    _STRUCTURE = re.compile(rb'["{}\[\]:,]')
    _CONTENT = re.compile(rb'(?:[^"\\]++|\\u[0-9a-fA-F]{4}|\\[^u])*+')
    _ESCAPE_BYTES = 6

    def __init__(self, content_type: bytes, known: Known, spool: TraceSpool) -> None:
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
        place = 0
        while place < len(data):
            if self._string is None:
                place = self._structure(data, place)
                continue
            end = self._content_end(data, place)
            self._content(data[place:end])
            place = end
            if place == len(data) or data[place] != ord('"'):
                # An escape whose rest is still to come.
                if len(data) - place >= self._ESCAPE_BYTES:
                    raise _not_json()
                break
            self._close_string()
            place += 1
        self._unread = data[place:]

    def sent(self) -> dict[str, Any]:
        if self._string is not None or self._unread:
            raise _not_json()
        return super().sent()

    def _structure(self, data: bytes, place: int) -> int:
        found = self._STRUCTURE.search(data, place)
        end = found.end() if found is not None else len(data)
        self._add(data[place:end])
        sign = found.group() if found is not None else b""
        if sign == b'"':
            self._string = bytearray()
            self._in_trace = self._depth == 1 and self._key == TRACE.encode()
            if self._in_trace:
                self._spool.clear()
        elif sign in (b"{", b"["):
            self._depth += 1
        elif sign in (b"}", b"]"):
            self._depth -= 1
        elif sign == b"," and self._depth == 1:
            self._key = None
        return end

    def _content_end(self, data: bytes, place: int) -> int:
        found = self._CONTENT.match(data, place)
        return found.end() if found is not None else place

    def _content(self, content: bytes) -> None:
        if not self._in_trace:
            self._add(content)
            if self._string is not None and len(self._string) < MAX_NAME_BYTES:
                self._string += content[:MAX_NAME_BYTES]
        elif not self._spool.is_full:
            self._spool.write(self._decoded(content))

    def _decoded(self, content: bytes, *, final: bool = False) -> str:
        try:
            text: str = self._surrogate + json.loads(f'"{self._decoder.decode(content, final)}"', strict=False)
        except ValueError:
            raise _not_json() from None
        self._surrogate = ""
        if text and "\ud800" <= text[-1] <= "\udbff" and not final:
            # The other half of the character comes in the next piece.
            text, self._surrogate = text[:-1], text[-1]
        # Halves are joined; without the other half one is no character.
        return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def _close_string(self) -> None:
        if self._in_trace and not self._spool.is_full:
            self._spool.write(self._decoded(b"", final=True))
        if self._in_trace:
            self._decoder.reset()
            self._surrogate = ""
            self._in_trace = False
        elif self._depth == 1 and self._key is None and self._string is not None:
            self._key = _name(bytes(self._string))
        self._add(b'"')
        self._string = None


def _name(content: bytes) -> bytes:
    """A key, whose characters may be escaped."""
    if b"\\" not in content:
        return content
    try:
        return str(json.loads(b'"' + content + b'"')).encode("utf-8", "replace")
    except ValueError:
        return content


def _not_json() -> MalformedError:
    return MalformedError(refusal(400, "400 Bad Request: the body is not JSON"))


class FormTraceBody(_SmallBody):
    """An urlencoded form, without the field `trace`, whose value goes to the spool."""

    def __init__(self, content_type: bytes, known: Known, spool: TraceSpool) -> None:
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
                    if len(data) > LARGEST_BODY:
                        raise MalformedError(refusal(413))
                    return
                self._in_trace = unquote_to_bytes(name.group()[:-1]) == TRACE.encode() and name.group().endswith(b"=")
                self._at_name = name.group().endswith(b"&")
                if self._in_trace:
                    self._spool.clear()
                else:
                    self._add(name.group())
                data = data[name.end() :]
                continue
            value, end, data = data.partition(b"&")
            if self._in_trace:
                self._unread = self._value(value, final=bool(end))
            else:
                self._add(value + end)
            self._at_name = bool(end)

    def sent(self) -> dict[str, Any]:
        if self._in_trace and not self._at_name:
            self._value(self._unread, final=True)
        else:
            self._add(self._unread)
        return super().sent()

    def _value(self, value: bytes, *, final: bool) -> bytes:
        """Decodes a piece of the trace; returns an escape whose rest is still to come."""
        cut = len(value)
        if not final and b"%" in value[-2:]:
            cut = value.rindex(b"%")
        if not self._spool.is_full:
            self._spool.write(self._decoder.decode(unquote_to_bytes(value[:cut].replace(b"+", b" ")), final))
        return value[cut:]


class MultipartTraceBody(MultipartForm):
    """A multipart form, without the part `trace`, which goes to the spool."""

    def __init__(self, content_type: bytes, known: Known, spool: TraceSpool) -> None:
        super().__init__(content_type)
        self._known_names = known
        self._spool = spool
        self._size = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def _in_trace(self) -> bool:
        return self.options.get(b"name") == TRACE.encode() and b"filename" not in self.options

    def headers_finished(self) -> None:
        super().headers_finished()
        if self._in_trace:
            self._spool.clear()

    def data(self, data: bytes, start: int, end: int) -> None:
        if self._in_trace:
            self._spool.write(self._decoder.decode(data[start:end]))
            return
        self._size += end - start
        if self._size > LARGEST_BODY:
            raise MalformedError(refusal(413))
        super().data(data, start, end)

    def end(self) -> None:
        if self._in_trace:
            self._spool.write(self._decoder.decode(b"", final=True))
            self._decoder.reset()
            self.options = {}
        super().end()

    def sent(self) -> dict[str, Any]:
        self.close()
        return self._known_names.gather(self.pairs)
