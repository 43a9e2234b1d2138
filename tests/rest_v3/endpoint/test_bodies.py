"""Parsing of request bodies."""

from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from rest_v3.requests.bodies import MAX_FORM_BODY_BYTES, AcceptedNames, MalformedRequestError, parse_body, parse_pairs, read_body

KNOWN = AcceptedNames(single={"title", "note"}, multiple={"labels", "iid"})
JSON = b"application/json; charset=utf-8"
FORM = b"application/x-www-form-urlencoded"


def multipart(*parts: str) -> bytes:
    return "".join(f"--limit\r\nContent-Disposition: form-data; {part}\r\n" for part in parts).encode() + b"--limit--\r\n"


class TestQueryPairs:
    def test_reads(self) -> None:
        assert parse_pairs(b"a=1&b=x+y%2C%C3%A9&c&&=d&a=2") == [
            ("a", "1"),
            ("b", "x y,é"),
            ("c", ""),
            ("", "d"),
            ("a", "2"),
        ]

    def test_a_broken_escape_stays_as_it_is(self) -> None:
        assert parse_pairs(b"a=%zz%4") == [("a", "%zz%4")]

    @pytest.mark.parametrize("encoded", [b"a=%ff", b"%c3=1", b"a=\xff", b"a=%ed%a0%80"])
    def test_rejects_invalid_utf8(self, encoded: bytes) -> None:
        with pytest.raises(MalformedRequestError) as caught:
            parse_pairs(encoded)
        assert caught.value.response.status == 400

    def test_rejects_too_many(self) -> None:
        assert len(parse_pairs(b"&".join([b"a=1"] * 1000))) == 1000
        with pytest.raises(MalformedRequestError):
            parse_pairs(b"&".join([b"a=1"] * 1001))


class TestGather:
    @pytest.mark.parametrize(
        ("query", "sent"),
        [
            (b"title=a&title=b", {"title": "b"}),
            (b"unknown=1&unknown[]=2&unknown[a]=3&title=a", {"title": "a"}),
            (b"title=a&title[]=b", {"title": ["a", "b"]}),
            (b"title[]=a&title=b", {"title": "b"}),
            (b"title[a]=b&title[c][d]=e", {"title": {"a": "b", "c": {"[d]": "e"}}}),
            (b"iid=1&iid=2", {"iid": ["1", "2"]}),
            (b"iid[]=1&iid%5B%5D=2", {"iid": ["1", "2"]}),
            (b"iid[0]=1&iid[1]=2", {"iid": ["1", "2"]}),
            (b"iid[]=1&iid[a]=2&iid[]=3", {"iid": {"a": "2"}}),
            (b"iid[=1", {"iid": {"": "1"}}),
            (b"iid[0]x=1&iid[][]=2&iid[][a]=3", {"iid": [{"x": "1"}, {"[]": "2"}, {"[a]": "3"}]}),
            (b"labels=a,b", {"labels": ["a,b"]}),
        ],
    )
    def test_gathers(self, query: bytes, sent: dict[str, Any]) -> None:
        assert KNOWN.collect(parse_pairs(query)) == sent


class TestBodies:
    def test_json(self) -> None:
        body = orjson.dumps({"title": "a", "labels": ["x"], "unknown": {}, "note": None})
        assert parse_body(body, JSON, KNOWN) == {"title": "a", "labels": ["x"], "note": None}

    @pytest.mark.parametrize("content_type", [FORM, b""])
    def test_a_form(self, content_type: bytes) -> None:
        assert parse_body(b"title=a+b&labels=x", content_type, KNOWN) == {"title": "a b", "labels": ["x"]}

    def test_a_multipart_form(self) -> None:
        body = multipart('name="title"\r\n\r\né', 'name="labels[]"\r\n\r\nx', 'name="note"; filename="a.txt"\r\n\r\nfile')
        assert parse_body(body, b"multipart/form-data; boundary=limit", KNOWN) == {"title": "é", "labels": ["x"]}

    @pytest.mark.parametrize("content_type", [JSON, FORM, b"", b"text/xml", b"multipart/form-data"])
    def test_nothing(self, content_type: bytes) -> None:
        assert parse_body(b"", content_type, KNOWN) == {}

    @pytest.mark.parametrize(
        ("body", "content_type", "status"),
        [
            (b"{", JSON, 400),
            (b"[]", JSON, 400),
            (b'"a"', JSON, 400),
            (b'{"title": "\xff"}', JSON, 400),
            (b'{"title": "\\ud800"}', JSON, 400),
            (b'{"title": NaN}', JSON, 400),
            (b"title=%ff", FORM, 400),
            (b"<a/>", b"text/xml", 406),
            (b"a", b"\xff", 406),
            (b"--limit", b"multipart/form-data; boundary=limit", 400),
            (b"--limit", b"multipart/form-data", 400),
            (b"nothing of the kind", b"multipart/form-data; boundary=limit", 400),
            (multipart('name="title"\r\n\r\n\udcff'.encode("utf-8", "replace").decode()), b"multipart/form-data", 400),
            (multipart(*['name="title"\r\n\r\na'] * 1001), b"multipart/form-data; boundary=limit", 400),
        ],
    )
    def test_rejects_invalid_input(self, body: bytes, content_type: bytes, status: int) -> None:
        with pytest.raises(MalformedRequestError) as caught:
            parse_body(body, content_type, KNOWN)
        assert caught.value.response.status == status
        assert isinstance(caught.value.response.body, dict)

    def test_null_is_an_empty_body(self) -> None:
        assert parse_body(b"null", JSON, KNOWN) == {}

    def test_depth(self) -> None:
        def nested(depth: int) -> bytes:
            return b'{"unknown":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"

        assert parse_body(nested(64), JSON, KNOWN) == {}
        for depth in (65, 1000, 100_000):
            with pytest.raises(MalformedRequestError):
                parse_body(nested(depth), JSON, KNOWN)

    def test_fields(self) -> None:
        def wide(count: int) -> bytes:
            return orjson.dumps({"unknown": [{"a": 1} for _ in range(count - 1)]})

        assert parse_body(wide(1000), JSON, KNOWN) == {}
        with pytest.raises(MalformedRequestError):
            parse_body(wide(1001), JSON, KNOWN)

    def test_colons_in_text_are_no_fields(self) -> None:
        assert parse_body(orjson.dumps({"title": ":{[" * 2000}), JSON, KNOWN) == {"title": ":{[" * 2000}


class ReceiveStub:
    """What a server hands over, piece by piece."""

    def __init__(self, pieces: Iterable[bytes], *, cut: bool = False) -> None:
        pieces = list(pieces)
        self.messages = [
            {"type": "http.request", "body": piece, "more_body": cut or index < len(pieces) - 1} for index, piece in enumerate(pieces)
        ]
        self.taken = 0

    async def __call__(self) -> Any:
        if self.taken == len(self.messages):
            return {"type": "http.disconnect"}
        self.taken += 1
        return self.messages[self.taken - 1]


class TestReadBody:
    async def test_joins_the_pieces(self) -> None:
        assert await read_body(ReceiveStub([b"a", b"", b"b"]), b"2") == b"ab"

    async def test_the_largest_body(self) -> None:
        assert len(await read_body(ReceiveStub([b"a" * MAX_FORM_BODY_BYTES]), None) or b"") == MAX_FORM_BODY_BYTES

    async def test_a_declared_length_is_rejected_unread(self) -> None:
        wire = ReceiveStub([b"a"])
        for declared in (str(MAX_FORM_BODY_BYTES + 1).encode(), b"9" * 50):
            with pytest.raises(MalformedRequestError) as caught:
                await read_body(wire, declared)
            assert caught.value.response.status == 413
        assert wire.taken == 0

    @pytest.mark.parametrize("declared", [None, b"1", b"0", b"-1", b"x"])
    async def test_a_wrong_content_length_is_counted(self, declared: bytes | None) -> None:
        wire = ReceiveStub([b"a" * 2**18] * 100)
        with pytest.raises(MalformedRequestError) as caught:
            await read_body(wire, declared)
        assert caught.value.response.status == 413
        assert wire.taken == 5

    async def test_a_client_disconnect(self) -> None:
        assert await read_body(ReceiveStub([b"a"], cut=True), b"2") is None
