"""Heads of HTTP/1 messages (RFC 9112): parsed once, written again with the header lines as they were received.

Requests are parsed strictly, because two servers that read one request differently can be made to mix up the requests of two clients
(RFC 9112, section 11.2). Answers are parsed leniently: the server that answers is trusted, and a client may accept what a parser rejects.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAX_HEAD_BYTES = 64 * 1024
HEAD_END = b"\r\n\r\n"

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([^\x00-\x20\x7f]+) HTTP/1\.([01])")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9]\d\d)(?: .*)?", re.DOTALL)
_HEADER_LINE = re.compile(rb"(" + _TOKEN + rb"):([^\x00\r\n]*)")
_LENGTH = re.compile(rb"\d{1,18}")

Header = tuple[bytes, bytes]


class MalformedHeadError(ValueError):
    """A head that is not HTTP/1, or whose body has no definite length."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    method: bytes
    target: bytes
    minor_version: int
    headers: tuple[Header, ...]
    length: int | None
    """Content-Length; 0 if there is no body, None if it is chunked."""

    @property
    def keeps_alive(self) -> bool:
        return _keeps_alive(self.minor_version, self.headers)

    @property
    def upgrade(self) -> bytes:
        """The protocol that the client wants to switch to, in lower case; empty if none."""
        if b"upgrade" not in connection_options(self.headers):
            return b""
        return next(values_of(self.headers, b"upgrade"), b"").lower()


@dataclass(frozen=True, slots=True)
class ResponseHead:
    status_line: bytes
    status: int
    minor_version: int
    headers: tuple[Header, ...]
    length: int | None
    """Content-Length; None if there is none."""
    is_chunked: bool

    @property
    def keeps_alive(self) -> bool:
        return _keeps_alive(self.minor_version, self.headers)


def parse_request_head(raw: bytes) -> RequestHead:
    """Parses a head without its last empty line. Raises MalformedHeadError."""
    first, *lines = raw.split(b"\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise MalformedHeadError("the request line is malformed")
    headers = []
    for each in lines:
        match = _HEADER_LINE.fullmatch(each)
        if match is None:
            raise MalformedHeadError("a header line is malformed")
        headers.append((match[1], match[2].strip(b" \t")))
    minor_version = int(line[3])
    lengths = set(values_of(headers, b"content-length"))
    codings = list(values_of(headers, b"transfer-encoding"))
    length: int | None = 0
    if codings:
        # Only one coding is defined for requests that a server must understand, and a length beside it is an attack.
        if lengths or minor_version == 0 or len(codings) > 1 or codings[0].lower() != b"chunked":
            raise MalformedHeadError("the length of the body is ambiguous")
        length = None
    elif lengths:
        (value, *others) = lengths
        if others or _LENGTH.fullmatch(value) is None:
            raise MalformedHeadError("Content-Length is malformed")
        length = int(value)
    return RequestHead(line[1], line[2], minor_version, tuple(headers), length)


def parse_response_head(raw: bytes) -> ResponseHead:
    """Parses a head without its last empty line. Raises MalformedHeadError."""
    first, *lines = raw.split(b"\r\n")
    line = _STATUS_LINE.fullmatch(first)
    if line is None:
        raise MalformedHeadError("the status line is malformed")
    headers = []
    for each in lines:
        name, colon, value = each.partition(b":")
        if not colon or not name or name[:1] in b" \t":
            raise MalformedHeadError("a header line is malformed")
        headers.append((name.strip(), value.strip(b" \t")))
    codings = b",".join(values_of(headers, b"transfer-encoding")).lower()
    lengths = set(values_of(headers, b"content-length"))
    is_chunked = codings.rpartition(b",")[2].strip() == b"chunked"
    length = None
    if lengths and not codings:
        (value, *others) = lengths
        if others or _LENGTH.fullmatch(value) is None:
            raise MalformedHeadError("Content-Length is malformed")
        length = int(value)
    return ResponseHead(first, int(line[2]), int(line[1]), tuple(headers), length, is_chunked)


def write_head(first_line: bytes, headers: Iterable[Header]) -> bytes:
    return b"\r\n".join([first_line, *(name + b": " + value for name, value in headers), b"", b""])


def values_of(headers: Iterable[Header], name: bytes) -> Iterator[bytes]:
    """The values of the headers of a name in lower case."""
    return (value for each, value in headers if len(each) == len(name) and each.lower() == name)


def connection_options(headers: Iterable[Header]) -> set[bytes]:
    """The options of the header Connection, in lower case."""
    return {option.strip().lower() for value in values_of(headers, b"connection") for option in value.split(b",")}


def _keeps_alive(minor_version: int, headers: Iterable[Header]) -> bool:
    options = connection_options(headers)
    return b"close" not in options if minor_version else b"keep-alive" in options
