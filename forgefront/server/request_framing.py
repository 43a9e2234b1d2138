"""What the parser of requests leaves to its server: UTF-8 in addresses, invalid headers, absolute targets, upgrades not accepted.

The parser treats all bytes after a header that asks for an upgrade as another protocol, although a server may ignore the request for it
(RFC 9110, section 7.8). Java's HTTP client asks for h2c with each first request, also with one that has a body.
"""

import re
from collections.abc import Sequence

Headers = Sequence[tuple[bytes, bytes]]
"""Fields of a header; their names are lowercase."""

NON_ASCII = re.compile(rb"[\x80-\xff]")
HOST_PATTERN = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]*")
ABSOLUTE_TARGET = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


def encode_request_line(data: bytes) -> bytes:
    """The beginning of a request, with the non-ASCII characters of its first line percent-encoded.

    curl sends an address as it was typed, in UTF-8, and the parser rejects bytes that RFC 3986 does not allow. Other encodings stay as
    they are, and are rejected.
    """
    length = data.find(b"\n")
    line = data if length < 0 else data[:length]
    try:
        if line.isascii():
            return data
        line.decode()
    except UnicodeDecodeError:
        return data
    return NON_ASCII.sub(lambda found: b"%%%02X" % ord(found[0]), line) + data[len(line) :]


def find_header_error(version: str, headers: Headers) -> int | None:
    """The status that rejects a request with this HTTP version and this header; None for a valid one.

    505: versions other than 1.0 and 1.1. 501: transfer codings before chunked (RFC 9112, section 6.1). 400: others without chunked, which
    do not say where the body ends (section 6.3); more than one Host, an invalid one, and none in HTTP/1.1 (section 3.2).

    >>> find_header_error("1.1", [(b"host", b"a:80")]), find_header_error("1.1", []), find_header_error("1.0", [])
    (None, 400, None)
    """
    if version not in ("1.1", "1.0"):
        return 505
    hosts = 0
    for name, value in headers:
        if name == b"host":
            hosts += 1
            if not HOST_PATTERN.fullmatch(value):
                return 400
        elif name == b"transfer-encoding" and (coding := value.lower()) != b"chunked":
            return 501 if coding.endswith(b"chunked") else 400
    return None if hosts == 1 or (hosts == 0 and version == "1.0") else 400


def to_origin_form(target: bytes) -> bytes:
    """The request target without scheme and authority, which say nothing that the service needs (RFC 9112, section 3.2.2).

    >>> to_origin_form(b"/a?b"), to_origin_form(b"http://host/a?b"), to_origin_form(b"http://host?b"), to_origin_form(b"*")
    (b'/a?b', b'/a?b', b'/?b', b'*')
    """
    if target.startswith(b"/") or (absolute := ABSOLUTE_TARGET.match(target)) is None:
        return target
    rest = target[absolute.end() :]
    return rest if rest.startswith(b"/") else b"/" + rest


def make_body_header(headers: Headers) -> bytes:
    """A header that says only how the body of a request with `headers` is framed, for a parser that continues with that body.

    >>> make_body_header([(b"host", b"x"), (b"upgrade", b"h2c"), (b"content-length", b"3")])
    b'POST / HTTP/1.1\\r\\ncontent-length: 3\\r\\n\\r\\n'
    """
    framing = [b"%s: %s\r\n" % pair for pair in headers if pair[0] in (b"content-length", b"transfer-encoding")]
    return b"POST / HTTP/1.1\r\n" + b"".join(framing) + b"\r\n"
