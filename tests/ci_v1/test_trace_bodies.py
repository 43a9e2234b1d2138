"""PUT /builds/:id accepts a trace of any bytes and any length, so that every build finishes."""

import asyncio
import json
from collections.abc import AsyncIterator, MutableMapping
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from ci_v1.trace_body import PIECE_BYTES, TraceSpool, read_trace_body
from graph.context import Services
from rest_v3.requests.bodies import AcceptedNames, MalformedRequestError
from storage import tables
from storage.tables import CheckStatus
from tests.ci_v1.conftest import LegacyRunner
from tests.ci_v1.test_builds import trace_of
from tests.make import DataFactory
from tests.support.generated_examples import given, settings, st

JSON = {"content-type": "application/json"}
KNOWN = AcceptedNames({"token", "state", "trace", "info"}, ())
LIMIT = 2**24


async def read(
    body: bytes, content_type: str = "application/json", *, cuts: list[int] | None = None, limit: int = LIMIT
) -> tuple[Any, str]:
    """What is sent beside the trace, and the trace."""
    positions = sorted({0, len(body), *(cut for cut in cuts or () if cut < len(body))})
    pieces = [body[start:end] for start, end in pairwise(positions)] or [b""]

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    spool = TraceSpool(limit)
    try:
        sent = await read_trace_body(receive, None, content_type.encode(), KNOWN, spool)
        return sent, b"".join([piece async for piece in spool.read_pieces(0, final=True, size=7)]).decode()
    finally:
        spool.close()


def stored_as(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")


ANY_TEXT = st.text(st.one_of(st.characters(), st.sampled_from('\\"\0\x1b\x7fuö€😀{}[],:\ud83d\ude00')), max_size=40)
CUTS = st.lists(st.integers(0, 400), max_size=12)


class TestJson:
    @settings(deadline=None, max_examples=40)
    @given(ANY_TEXT, st.booleans(), st.booleans(), CUTS)
    def test_is_read_alike_wherever_it_is_cut(self, trace: str, ascii_only: bool, trace_first: bool, cuts: list[int]) -> None:
        others = {"token": 't"\\ö', "info": {"trace": "not this", "list": ["trace", {"x": "}"}]}, "state": "success"}
        members: dict[str, Any] = {"trace": trace, **others} if trace_first else {**others, "trace": trace}
        body = json.dumps(members, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
        if not ascii_only and any("\ud800" <= letter <= "\udfff" for letter in trace):
            # What is no UTF-8 becomes one character for each byte.
            assert asyncio.run(read(body, cuts=cuts))[0] == {**others, "trace": ""}
            return

        sent, found = asyncio.run(read(body, cuts=cuts))

        assert (sent, found) == ({**others, "trace": ""}, stored_as(trace))

    async def test_bytes_that_are_no_utf_8_are_replaced(self) -> None:
        assert (await read(b'{"trace": "a\xff\xc3(\xe2\x82"}'))[1] == "a\ufffd\ufffd(\ufffd"

    async def test_raw_control_characters_are_taken(self) -> None:
        assert (await read(b'{"trace": "a\n\tb\x1b"}'))[1] == "a\n\tb\x1b"

    async def test_the_last_of_equal_keys_counts_however_it_is_written(self) -> None:
        assert (await read(b'{"trace": "one", "tr\\u0061ce": "two"}'))[1] == "two"

    @pytest.mark.parametrize("trace", [b"null", b"7", b'["a"]', b'{"trace": "b"}'])
    async def test_a_trace_that_is_not_a_string_is_ignored(self, trace: bytes) -> None:
        assert await read(b'{"trace": ' + trace + b"}") == ({"trace": json.loads(trace)}, "")

    @pytest.mark.parametrize(
        "body",
        [b'{"trace": "a', b'{"trace": "\\', b'{"trace": "\\u12"}', b'{"trace": "\\x"}', b'{"trace": "a"', b'{"trace" "a"}', b"[]", b"{"],
    )
    async def test_a_body_that_is_not_a_json_object_is_rejected(self, body: bytes) -> None:
        with pytest.raises(MalformedRequestError) as caught:
            await read(body)
        assert caught.value.response.status == 400

    async def test_other_fields_are_limited_to_a_mebibyte(self) -> None:
        for body in (b'{"state": "' + b"x" * 2**20 + b'"}', b" " * (2**20 + 1), b'{"' + b"x" * 2**20):
            with pytest.raises(MalformedRequestError) as caught:
                await read(body)
            assert caught.value.response.status == 413


class TestForms:
    @settings(deadline=None)
    @given(ANY_TEXT, CUTS)
    def test_are_read_alike_wherever_they_are_cut(self, trace: str, cuts: list[int]) -> None:
        body = urlencode({"token": "t&ö", "trace": trace.encode("utf-8", "replace"), "state": "success"}).encode()

        sent, found = asyncio.run(read(body, "application/x-www-form-urlencoded", cuts=cuts))

        assert sent == {"token": "t&ö", "state": "success"}
        assert found == stored_as(trace.encode("utf-8", "replace").decode())

    async def test_a_name_of_many_chunks_is_limited(self) -> None:
        """It is searched for its end with each chunk."""
        with pytest.raises(MalformedRequestError) as caught:
            await read(b"x" * (PIECE_BYTES + 2), "application/x-www-form-urlencoded", cuts=[PIECE_BYTES])
        assert caught.value.response.status == 413

    @settings(deadline=None)
    @given(ANY_TEXT, CUTS)
    def test_of_several_parts_are_read_alike_wherever_they_are_cut(self, trace: str, cuts: list[int]) -> None:
        data = trace.encode("utf-8", "replace")
        body = (
            b'--x\r\nContent-Disposition: form-data; name="token"\r\n\r\nt\r\n--x\r\nContent-Disposition: form-data; name="trace"\r\n\r\n'
        )
        body += data + b'\r\n--x\r\nContent-Disposition: form-data; name="state"\r\n\r\nsuccess\r\n--x--\r\n'

        sent, found = asyncio.run(read(body, "multipart/form-data; boundary=x", cuts=cuts))

        assert (sent, found) == ({"token": "t", "state": "success"}, stored_as(data.decode()))

    async def test_other_content_types_are_rejected(self) -> None:
        with pytest.raises(MalformedRequestError) as caught:
            await read(b"trace", "text/plain")
        assert caught.value.response.status == 406

    async def test_a_truncated_form_is_rejected(self) -> None:
        with pytest.raises(MalformedRequestError) as caught:
            await read(b'--x\r\nContent-Disposition: form-data; name="trace"\r\n\r\nabc', "multipart/form-data; boundary=x")
        assert caught.value.response.status == 400


class TestSpool:
    async def test_stores_at_most_the_limit_and_one_character(self) -> None:
        for limit in range(8):
            found = (await read('{"trace": "ab€öcdef"}'.encode(), limit=limit))[1]
            assert "ab€öcdef".startswith(found)
            assert limit < len(found.encode()) <= limit + 4

    async def test_returns_whole_characters_from_any_offset(self) -> None:
        spool = TraceSpool(LIMIT)
        spool.write("a€ö😀b" * 3)
        whole = ("a€ö😀b" * 3).encode()
        for start in range(len(whole) + 2):
            pieces = [piece.decode() async for piece in spool.read_pieces(start, final=True, size=5)]
            assert "".join(pieces) == whole[start:].decode(errors="ignore")
        spool.close()


class TestUpdate:
    """PUT /builds/:id"""

    @pytest.mark.parametrize(
        ("letter", "size"),
        # The largest of a runner, of what JSON makes the longest; of the others, some pieces of the body.
        [("\x00", 2**22), *((letter, 2**18) for letter in ("\x1b", "\x08", "\ufffd", '"', "\\", "\x7f", "\u2028", "x"))],
    )
    async def test_the_largest_trace_of_a_runner_ends_its_build(
        self, make: DataFactory, services: Services, runner_with_build: LegacyRunner, letter: str, size: int
    ) -> None:
        trace = letter * (size // len(letter.encode()))

        response = await runner_with_build.update(trace=trace, state="success")

        assert (response.status_code, response.json()) == (200, True)
        row = await make.fetch(tables.Build, runner_with_build.build["id"])
        assert row is not None and row.status is CheckStatus.SUCCESS
        assert await trace_of(services, row.id) == trace.replace("\0", "\ufffd")

    async def test_a_trace_over_the_limit_is_truncated_with_a_notice(
        self, make: DataFactory, services: Services, runner_with_build: LegacyRunner
    ) -> None:
        object.__setattr__(services, "max_trace_bytes", 1000)
        for size in (999, 5_000_000, 10_000_000):
            assert (await runner_with_build.update(trace="€" * size)).status_code == 200
        assert (await runner_with_build.update(trace="€" * 10_000_000, state="failed")).status_code == 200

        notice = "\n[The trace is longer than 1000 bytes; the rest was discarded.]\n"
        assert await trace_of(services, runner_with_build.build["id"]) == "€" * 333 + notice
        row = await make.fetch(tables.Build, runner_with_build.build["id"])
        assert row is not None and row.status is CheckStatus.FAILED

    async def test_bytes_that_are_no_utf_8_end_the_build_too(
        self, ci: httpx.AsyncClient, services: Services, runner_with_build: LegacyRunner
    ) -> None:
        body = b'{"token": "%s", "state": "success", "trace": "a\xff\xfe\x00\\ud800b"}' % runner_with_build.token.encode()

        response = await ci.put(f"builds/{runner_with_build.build['id']}", content=body, headers=JSON)

        assert (response.status_code, response.json()) == (200, True)
        assert await trace_of(services, runner_with_build.build["id"]) == "a\ufffd\ufffd\ufffd\ufffdb"

    async def test_a_form_is_taken(self, ci: httpx.AsyncClient, services: Services, runner_with_build: LegacyRunner) -> None:
        for given_as in (
            {"data": {"token": runner_with_build.token, "trace": "a+ö"}},
            {"files": {"token": (None, runner_with_build.token), "trace": (None, "a+öb")}},
        ):
            assert (await ci.put(f"builds/{runner_with_build.build['id']}", **given_as)).status_code == 200  # type: ignore[arg-type]

        assert await trace_of(services, runner_with_build.build["id"]) == "a+öb"

    async def test_a_trace_that_is_not_a_string_is_rejected(self, runner_with_build: LegacyRunner) -> None:
        for trace in (7, ["a"], {"a": "b"}):
            assert (await runner_with_build.update(trace=trace)).status_code == 400
        assert (await runner_with_build.update(trace=None)).status_code == 200

    async def test_other_requests_are_answered_meanwhile(self, ci: httpx.AsyncClient, runner_with_build: LegacyRunner) -> None:
        body = json.dumps({"token": runner_with_build.token, "trace": "\x1b" * 2**22, "state": "success"}).encode()
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async def sent() -> AsyncIterator[bytes]:
            yield body

        beside = asyncio.create_task(others())
        response = await ci.put(f"builds/{runner_with_build.build['id']}", content=sent(), headers=JSON)
        beside.cancel()

        assert response.status_code == 200
        assert turns > len(body) / 2**16
