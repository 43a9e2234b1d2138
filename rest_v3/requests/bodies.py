"""Parses query strings, forms and JSON bodies.

Values are not validated here: unknown names are dropped and known ones returned as sent, as strings or JSON. A request is rejected when it
cannot be parsed: more than 1 MiB, more than 1,000 fields, deeper than 64 levels, invalid JSON or UTF-8.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

import orjson
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from graph.http import bodies
from graph.http.percent_encoding import decode_percent
from rest_v3.errors import ErrorResponse, error_response

MAX_FORM_BODY_BYTES = 2**20
"""Maximum size of a form or a JSON body in bytes."""

MAX_FIELDS = 1000
MAX_JSON_DEPTH = 64

EXTENDED_FILE_NAME = re.compile(rb";\s*filename\*\s*=\s*utf-8'[^']*'([^;\s]*)", re.IGNORECASE)
"""A file name as in RFC 5987. RFC 7578 leaves it out of forms, and the parser drops it, but urllib3 before 1.25 sends no other one for
names that are not ASCII."""

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class MalformedRequestError(Exception):
    """The request cannot be parsed; `response` is the error response."""

    def __init__(self, response: ErrorResponse) -> None:
        super().__init__(response.status)
        self.response = response


class AcceptedNames:
    """The names of a route's parameters, and which of them collect several values."""

    def __init__(self, single: Iterable[str], multiple: Iterable[str]) -> None:
        self.single = frozenset(single)
        self.multiple = frozenset(multiple)

    def collect(self, pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
        """The sent values by name. The last of equal names wins; lists collect `iid=1&iid=2`, `iid[]=1` and `iid[0]=1`.

        Brackets after a known name produce their JSON equivalent, which scalar parameters reject: `title[]=a` is `["a"]`, and `scope[a]=b`
        is `{"a": "b"}`. When a name has both forms, the object wins.
        """
        sent: dict[str, Any] = {}
        for name, value in pairs:
            if name in self.single:
                sent[name] = value
            elif name in self.multiple:
                _append(sent, name, value)
            else:
                base, bracket, suffix = name.partition("[")
                if not bracket or (base not in self.single and base not in self.multiple):
                    continue
                index, closed, deeper = suffix.partition("]")
                inner = {deeper: value} if deeper else value
                if closed and (not index or index.isdecimal()):
                    _append(sent, base, inner)
                else:
                    known = sent.get(base)
                    sent[base] = {**(known if isinstance(known, dict) else {}), index: inner}
        return sent

    def select(self, members: Mapping[str, Any]) -> dict[str, Any]:
        """The sent values of a JSON object."""
        return {name: members[name] for name in members if name in self.single or name in self.multiple}


def _append(sent: dict[str, Any], name: str, value: Any) -> None:
    known = sent.setdefault(name, [])
    if isinstance(known, list):
        known.append(value)
    elif not isinstance(known, dict):
        sent[name] = [known, value]


def parse_pairs(encoded: bytes) -> list[tuple[str, str]]:
    """The pairs of a query string or an urlencoded form.

    >>> parse_pairs(b"labels=a%2C+b&x&state=opened")
    [('labels', 'a, b'), ('x', ''), ('state', 'opened')]
    """
    if not encoded:
        return []
    parts = encoded.split(b"&", MAX_FIELDS)
    if len(parts) > MAX_FIELDS:
        raise MalformedRequestError(error_response(400, "400 Bad Request: too many parameters"))
    pairs = []
    try:
        for part in parts:
            if part:
                name, _, value = part.partition(b"=")
                pairs.append((_unquote(name), _unquote(value)))
    except UnicodeDecodeError:
        raise MalformedRequestError(error_response(400, "400 Bad Request: a parameter is not UTF-8")) from None
    return pairs


def _unquote(part: bytes) -> str:
    if b"+" in part:
        part = part.replace(b"+", b" ")
    return decode_percent(part).decode()


async def read_body(receive: Receive, declared: bytes | None, max_bytes: int = MAX_FORM_BODY_BYTES) -> bytes | None:
    """The body; None when the client disconnected. Raises MalformedRequestError (413) for more than `max_bytes` bytes."""
    return await bodies.read_body(receive, declared, max_bytes, lambda: MalformedRequestError(error_response(413)))


def parse_body(body: bytes, content_type: bytes, accepted: AcceptedNames) -> dict[str, Any]:
    """The values of a body. Without a content type it is parsed as a form.

    Raises MalformedRequestError: 400 for a malformed body, 406 for another content type (docs/wire-facts.md 2.3).
    """
    kind = content_type.partition(b";")[0].strip().lower()
    if not body:
        return {}
    if kind == b"application/json":
        return accepted.select(_parse_json(body))
    if kind in (b"", b"application/x-www-form-urlencoded"):
        return accepted.collect(parse_pairs(body))
    if kind == b"multipart/form-data":
        return accepted.collect(_parse_multipart(body, content_type))
    shown_kind = kind.decode("ascii", "replace")[:100]
    raise MalformedRequestError(error_response(406, f"The requested content-type '{shown_kind}' is not supported."))


def _parse_json(body: bytes) -> dict[str, Any]:
    try:
        members = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise MalformedRequestError(error_response(400, "400 Bad Request: the body is not JSON")) from None
    if members is None:
        return {}
    if not isinstance(members, dict):
        raise MalformedRequestError(error_response(400, "400 Bad Request: the body is not a JSON object"))
    # The number of these characters is an upper bound of both measures, and suffices for ordinary bodies.
    if body.count(b"{") + body.count(b"[") > MAX_JSON_DEPTH or body.count(b":") > MAX_FIELDS:
        _check_json_size(members)
    return members


def _check_json_size(members: dict[str, Any]) -> None:
    fields = 0
    level: list[Any] = [members]
    for _ in range(MAX_JSON_DEPTH):
        next_level: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                fields += len(value)
                next_level.extend(part for part in value.values() if isinstance(part, dict | list))
            else:
                next_level.extend(part for part in value if isinstance(part, dict | list))
        if fields > MAX_FIELDS:
            raise MalformedRequestError(error_response(400, "400 Bad Request: too many fields"))
        if not next_level:
            return
        level = next_level
    raise MalformedRequestError(error_response(400, "400 Bad Request: the JSON is nested too deeply"))


def _parse_multipart(body: bytes, content_type: bytes) -> list[tuple[str, str]]:
    """The text fields of a multipart form; its files are not parameters."""
    form = MultipartForm(content_type)
    form.feed(body)
    form.close()
    return form.pairs


class MultipartForm:
    """Collects the text fields of a multipart form from chunks.

    Raises MalformedRequestError (400) for a malformed form.
    """

    def __init__(self, content_type: bytes) -> None:
        self.pairs: list[tuple[str, str]] = []
        self._finished = False
        self._parts = 0
        self.begin()
        with _convert_form_errors():
            boundary = parse_options_header(content_type)[1].get(b"boundary")
            if not boundary:
                raise FormParserError("no boundary")
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self.begin,
                    "on_header_field": self.header_name,
                    "on_header_value": self.header_value,
                    "on_header_end": self.header_end,
                    "on_headers_finished": self.headers_finished,
                    "on_part_data": self.data,
                    "on_part_end": self.end,
                    "on_end": self.finish,
                },
            )

    def feed(self, body: bytes) -> None:
        with _convert_form_errors():
            self._parser.write(body)

    def close(self) -> None:
        with _convert_form_errors():
            self._parser.finalize()
            if not self._finished:
                raise FormParserError("the closing boundary is missing")

    def begin(self) -> None:
        self._name = self._value = b""
        self._disposition = b""
        self._pieces: list[bytes] = []
        self.options: dict[bytes, bytes] = {}
        """The parameters of the part's Content-Disposition, such as its `name`."""

    def header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def header_end(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._disposition = self._value
        self._name = self._value = b""

    def headers_finished(self) -> None:
        self.options = parse_options_header(self._disposition)[1]
        extended_name = EXTENDED_FILE_NAME.search(self._disposition)
        if extended_name is not None and b"filename" not in self.options:
            self.options[b"filename"] = decode_percent(extended_name[1])

    def data(self, data: bytes, start: int, end: int) -> None:
        self._pieces.append(data[start:end])

    def end(self) -> None:
        self._parts += 1
        if self._parts > MAX_FIELDS:
            raise FormParserError("too many parts")
        if b"name" in self.options and b"filename" not in self.options:
            self.pairs.append((self.options[b"name"].decode(), b"".join(self._pieces).decode()))

    def finish(self) -> None:
        self._finished = True


@contextmanager
def _convert_form_errors() -> Iterator[None]:
    try:
        yield
    except (FormParserError, UnicodeDecodeError):
        raise MalformedRequestError(error_response(400, "400 Bad Request: the form cannot be read")) from None
