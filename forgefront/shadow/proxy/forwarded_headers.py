"""Headers that a proxy changes: those of one connection are removed (RFC 9110, section 7.6.1), X-Forwarded-* are added.

There is no Via: servers such as nginx do not compress answers for a request that has it, so a client would see a difference.
"""

from collections.abc import Iterable, Iterator

from forgefront.shadow.http_heads import Header, RequestHead, ResponseHead, connection_options, values_of, write_head

HOP_BY_HOP = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"te", b"upgrade"))
"""Transfer-Encoding is missing: bodies are passed on in the chunks in which they came."""
NEVER_REMOVED = frozenset(
    (b"host", b"content-length", b"transfer-encoding", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"authorization")
)
"""Headers that the header Connection must not name (RFC 9110, section 7.6.1): without them, the request would be another one."""


def forwarded_headers(head: RequestHead, client: bytes, host: bytes | None) -> list[Header]:
    """The headers for the next server, without those of the connection. `client` is an address; `host` replaces the header Host."""
    headers = list(_end_to_end(head.headers))
    names = {name.lower() for name, _ in headers}
    requested_host = next(values_of(headers, b"host"), None)
    if host is not None:
        headers = [(b"Host", host), *(header for header in headers if header[0].lower() != b"host")]
    before = [value for value in values_of(headers, b"x-forwarded-for") if value]
    headers = [header for header in headers if header[0].lower() != b"x-forwarded-for"]
    headers.append((b"X-Forwarded-For", b", ".join([*before, client])))
    if b"x-forwarded-proto" not in names:
        headers.append((b"X-Forwarded-Proto", b"http"))
    if b"x-forwarded-host" not in names and requested_host is not None:
        headers.append((b"X-Forwarded-Host", requested_host))
    return headers


def write_request_head(head: RequestHead, headers: Iterable[Header]) -> bytes:
    """The head for the next server, with these headers and those of the connection."""
    connection: tuple[Header, ...] = ()
    if forwarded_upgrade(head):
        connection = ((b"Connection", b"Upgrade"), (b"Upgrade", next(values_of(head.headers, b"upgrade"))))
    elif not head.keeps_alive:
        connection = ((b"Connection", b"close"),)
    elif head.minor_version == 0:
        connection = ((b"Connection", b"keep-alive"),)
    return write_head(b"%b %b HTTP/1.%d" % (head.method, head.target, head.minor_version), (*headers, *connection))


def write_response_head(head: ResponseHead, *, keeps_alive: bool, is_http_1_0: bool) -> bytes:
    """The head for the client."""
    headers = list(_end_to_end(head.headers))
    if head.is_chunked:
        # A length beside the coding is wrong, and must not be passed on (RFC 9112, section 6.3).
        headers = [header for header in headers if header[0].lower() != b"content-length"]
    if head.status == 101:
        headers += [(b"Connection", b"Upgrade"), *((b"Upgrade", value) for value in values_of(head.headers, b"upgrade"))]
    elif head.status >= 200 and not keeps_alive:
        headers.append((b"Connection", b"close"))
    elif head.status >= 200 and (is_http_1_0 or head.minor_version == 0):
        headers.append((b"Connection", b"keep-alive"))
    return write_head(head.status_line, headers)


def forwarded_upgrade(head: RequestHead) -> bytes:
    """The protocol of an upgrade that is passed on. HTTP/2 is not: a client goes on with HTTP/1 if the server does not answer 101."""
    return b"" if head.upgrade == b"h2c" else head.upgrade


def _end_to_end(headers: Iterable[Header]) -> Iterator[Header]:
    headers = tuple(headers)
    dropped = HOP_BY_HOP | (connection_options(headers) - NEVER_REMOVED)
    return (header for header in headers if header[0].lower() not in dropped)
