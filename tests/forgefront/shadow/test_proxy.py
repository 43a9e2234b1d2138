"""The proxy: what clients and servers receive, and what is copied."""

import asyncio
import gzip
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from forgefront.importing.source_client import SourceClient
from forgefront.importing.source_errors import SourceError
from forgefront.shadow.comparison.comparison_worker import ComparisonWorker
from forgefront.shadow.exchanges import Exchange, SkipReason
from forgefront.shadow.proxy.proxy_server import log_unreachable
from forgefront.shadow.settings import ShadowSettings
from tests.forgefront.support.scripted_server import OK, ScriptedServer, answering, run_proxy_to, run_scripted

MIB = 1024 * 1024


def get(path: str = "/api/v3/projects", *headers: str, version: str = "1.1") -> bytes:
    return "\r\n".join([f"GET {path} HTTP/{version}", "Host: forge.example", *headers, "", ""]).encode()


class TestHeaders:
    async def test_of_the_connection_are_removed_and_forwarded_ones_added(self) -> None:
        answer = (
            b"HTTP/1.1 200 Fine\r\nX-TOTAL: 7\r\nset-cookie: a=1\r\nSet-Cookie: b=2\r\nKeep-Alive: timeout=5\r\n"
            b"Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nContent-Length: 2\r\n\r\n{}"
        )
        async with run_scripted(answering(answer)) as old, run_proxy_to(old.url) as proxy:
            received = await proxy.send(
                get(
                    "/api/v3/projects/a%2Fb//x?q=%zz&private_token=secret",
                    "PRIVATE-TOKEN: secret",
                    "X-Odd-CASE:  two  words ",
                    "Connection: close, X-Mine, Authorization, Content-Length",
                    "X-Mine: 1",
                    "Authorization: Basic eDp5",
                    "TE: trailers",
                    "Keep-Alive: 3",
                    "Proxy-Connection: keep-alive",
                    "X-Forwarded-For: 10.0.0.1",
                )
            )
            (exchange,) = await proxy.queue.wait_for(1)

        assert old.requests == [
            b"GET /api/v3/projects/a%2Fb//x?q=%zz&private_token=secret HTTP/1.1\r\nHost: forge.example\r\nPRIVATE-TOKEN: secret\r\n"
            b"X-Odd-CASE: two  words\r\nAuthorization: Basic eDp5\r\nX-Forwarded-For: 10.0.0.1, 127.0.0.1\r\nX-Forwarded-Proto: http\r\n"
            b"X-Forwarded-Host: forge.example\r\nConnection: close\r\n\r\n"
        ]
        assert received == (
            b"HTTP/1.1 200 Fine\r\nX-TOTAL: 7\r\nset-cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
        )
        assert (exchange.method, exchange.status, exchange.response_body, exchange.skip_reason) == ("GET", 200, b"{}", None)
        assert ("X-TOTAL", "7") in (exchange.response_headers or [])

    async def test_keep_what_an_outer_proxy_says_and_the_host_may_be_rewritten(self) -> None:
        async with run_scripted(answering(OK)) as old, run_proxy_to(old.url, rewrites_host=True) as proxy:
            await proxy.send(get("/", "X-Forwarded-Proto: https", "X-Forwarded-Host: public.example", "Connection: close"))

        assert old.requests == [
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: public.example\r\n"
            b"X-Forwarded-For: 127.0.0.1\r\nConnection: close\r\n\r\n" % old.port
        ]


class TestBodies:
    async def test_stream_both_ways_before_they_are_complete(self) -> None:
        async def echo(script: ScriptedServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n")
            while (line := await reader.readline()) != b"0\r\n":
                writer.write(line + await reader.readexactly(int(line.partition(b";")[0], 16) + 2))
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"0\r\nX-Sum: 9\r\n\r\n")
            await reader.read(1)

        async with run_scripted(echo) as old, run_proxy_to(old.url) as proxy:
            reader, writer = await proxy.connect()
            writer.write(b"POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).endswith(b"Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n")
            for chunk in (b"5;name=value\r\nfirst\r\n", b"6\r\nsecond\r\n"):
                writer.write(chunk)
                # Each comes back before the next one is sent.
                assert await reader.readexactly(len(chunk)) == chunk
            writer.write(b"0\r\nX-Check: 1\r\n\r\n")
            assert await reader.readuntil(b"\r\n\r\n") == b"0\r\nX-Sum: 9\r\n\r\n"
            writer.close()
            (exchange,) = await proxy.queue.wait_for(1)
            assert exchange.skip_reason is SkipReason.WRITE

    async def test_over_the_limit_pass_with_little_memory_and_are_counted(self) -> None:
        size = 48 * MIB

        async def handle(script: ScriptedServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"PUT"):
                received = 0
                while received < size:
                    received += len(await reader.read(MIB))
                    buffered.append(proxy.queue.reserved)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                head = await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            for _ in range(size // MIB):
                writer.write(b"x" * MIB)
                await writer.drain()

        buffered: list[int] = []
        async with run_scripted(handle) as old, run_proxy_to(old.url, replays_writes=True, max_body=MIB) as proxy:

            async def content() -> Any:
                for _ in range(size // MIB):
                    yield b"y" * MIB

            async with httpx.AsyncClient(base_url=proxy.url) as client:
                answer = await client.put("/big", content=content(), headers={"Content-Length": str(size)})
                assert answer.status_code == 200
                async with client.stream("GET", "/big") as response:
                    received = sum([len(piece) async for piece in response.aiter_raw()])
            assert received == size
            put, read = await proxy.queue.wait_for(2)
            assert (put.skip_reason, read.skip_reason) == (SkipReason.TOO_LARGE, SkipReason.TOO_LARGE)
            assert (put.request_body, read.response_body) == (b"", b"")
            assert max(buffered) <= MIB
            assert proxy.queue.reserved == 0

    async def test_a_slow_reader_slows_the_server_down(self) -> None:
        sent = 0

        async def handle(script: ScriptedServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            for _ in range(256):
                writer.write(b"x" * MIB)
                await writer.drain()
                sent += MIB

        async with run_scripted(handle) as old, run_proxy_to(old.url) as proxy:
            _, writer = await proxy.connect()
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(get())
            before = -1
            while sent != before:
                before = sent
                await asyncio.sleep(0.3)
            # What the buffers of the four sockets hold.
            assert 0 < sent < 64 * MIB
            writer.transport.abort()
            (exchange,) = await proxy.queue.wait_for(1)
            assert exchange.skip_reason in (SkipReason.DISCONNECTED, SkipReason.TOO_LARGE)

    async def test_a_slow_server_slows_the_client_down(self) -> None:
        """An upload that it does not read, and requests that are sent before the first is answered."""

        async def handle(script: ScriptedServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(60)

        async def send_all(start: bytes, piece: bytes) -> None:
            nonlocal sent
            writer.write(start)
            while True:
                writer.write(piece)
                await writer.drain()
                sent += len(piece)

        upload = b"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999\r\n\r\n"
        async with run_scripted(handle) as old, run_proxy_to(old.url) as proxy:
            for start, piece in ((upload, b"x" * MIB), (b"", get() * 5000)):
                _, writer = await proxy.connect()
                sent, before = 0, -1
                sending = asyncio.create_task(send_all(start, piece))
                while sent != before:
                    before = sent
                    await asyncio.sleep(0.3)
                assert 0 <= sent < 64 * MIB
                assert not sending.done()
                sending.cancel()
                writer.transport.abort()

    async def test_of_no_length_are_recognized_by_method_status_and_connection(self) -> None:
        """HEAD, 204 and 304 have no body, whatever their head says; an answer without a length ends with the connection."""
        answers = {
            b"HEAD": b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n",
            b"GET /none": b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"GET /same": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 50\r\n\r\n",
            b"GET /long": b"HTTP/1.0 200 OK\r\n\r\nto the end",
        }

        async def handle(script: ScriptedServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while request := await script.read_request(reader):
                writer.write(next(answer for start, answer in answers.items() if request.startswith(start)))
                if b"/long" in request:
                    return

        async with run_scripted(handle) as old, run_proxy_to(old.url) as proxy:
            requests = [get(path) for path in ("/x", "/none", "/same", "/long")]
            # Pipelined: all are sent before the first answer.
            received = await proxy.send(requests[0].replace(b"GET", b"HEAD") + b"".join(requests[1:]))
            head, none, same, long = await proxy.queue.wait_for(4)

        assert old.connections == 1
        assert [line for line in received.split(b"\r\n") if line.startswith(b"HTTP/")] == [
            answer.split(b"\r\n")[0] for answer in answers.values()
        ]
        assert received.endswith(b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nto the end")
        assert [each.status for each in (head, none, same, long)] == [200, 204, 304, 200]
        assert (long.response_body, long.skip_reason, same.skip_reason) == (b"to the end", None, SkipReason.NOT_MODIFIED)

    async def test_streams_of_events_pass_and_are_not_copied(self) -> None:
        async def handle(script: ScriptedServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\nevent: one\n\n")
            await reader.read(1)
            closed.set()

        closed = asyncio.Event()
        async with run_scripted(handle) as old, run_proxy_to(old.url) as proxy:
            reader, writer = await proxy.connect()
            writer.write(get("/events"))
            assert (await reader.readuntil(b"event: one\n\n")).startswith(b"HTTP/1.1 200 OK")
            writer.close()
            # The server sees that its client has left.
            await asyncio.wait_for(closed.wait(), 2)
            (exchange,) = await proxy.queue.wait_for(1)
            assert exchange.skip_reason is SkipReason.EVENT_STREAM


class TestExpectations:
    async def test_continue_comes_from_the_server(self) -> None:
        async def handle(script: ScriptedServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"Expect: 100-continue" in head
            writer.write(b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
            body = await reader.readexactly(5)
            writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\n" + body)
            await reader.read(1)

        async with run_scripted(handle) as old, run_proxy_to(old.url) as proxy:
            reader, writer = await proxy.connect()
            writer.write(b"POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
            assert await reader.readuntil(b"Continue\r\n\r\n") == b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"hello")
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 201 Created")
            writer.close()

    async def test_an_early_answer_reaches_a_client_that_still_sends(self) -> None:
        async def refuse(script: ScriptedServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno!")

        async with run_scripted(refuse) as old, run_proxy_to(old.url, replays_writes=True) as proxy:
            reader, writer = await proxy.connect()
            writer.write(b"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n")
            for _ in range(40):
                writer.write(b"z" * 100_000)
                await asyncio.sleep(0.002)
            received = await asyncio.wait_for(reader.read(), 5)
            writer.close()
            (exchange,) = await proxy.queue.wait_for(1)
        assert received.startswith(b"HTTP/1.1 413 Too Large")
        assert received.endswith(b"no!")
        # The server did not read the whole request, so the shadow server cannot be sent it.
        assert exchange.skip_reason in (SkipReason.CUT_OFF, SkipReason.TOO_LARGE)


class TestUpgrades:
    async def test_bytes_pass_in_both_directions_after_101(self) -> None:
        async def handle(script: ScriptedServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert b"Connection: Upgrade\r\nUpgrade: websocket\r\n" in await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x02hi")
            while data := await reader.read(100):
                writer.write(data.upper())
            # The client's half has ended, and this one has not.
            writer.write(b"bye")

        async with run_scripted(handle) as old, run_proxy_to(old.url) as proxy:
            reader, writer = await proxy.connect()
            writer.write(get("/live", "Connection: keep-alive, Upgrade", "Upgrade: websocket"))
            head = await reader.readuntil(b"\x81\x02hi")
            assert head == b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x02hi"
            writer.write(b"abc\x00")
            assert await reader.readexactly(4) == b"ABC\x00"
            writer.write_eof()
            assert await asyncio.wait_for(reader.read(), 2) == b"bye"
            writer.close()
            (exchange,) = await proxy.queue.wait_for(1)
            assert exchange.skip_reason is SkipReason.UPGRADE

    async def test_that_the_server_declines_leave_http(self) -> None:
        """HTTP/2 is never offered to the server; a WebSocket that gets 200 is answered as any request."""
        async with run_scripted(answering(OK)) as old, run_proxy_to(old.url) as proxy:
            received = await proxy.send(
                get("/a", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAM")
                + get("/b", "Connection: Upgrade", "Upgrade: websocket")
                + get("/c", "Connection: close")
            )
        assert received.count(b"HTTP/1.1 200 OK") == 3
        assert b"h2c" not in old.requests[0]
        assert b"HTTP2" not in old.requests[0]
        assert b"Upgrade: websocket" in old.requests[1]


class TestConnections:
    async def test_one_of_a_client_is_one_of_the_server(self) -> None:
        async with run_scripted(answering(OK)) as old, run_proxy_to(old.url) as proxy:
            async with httpx.AsyncClient(base_url=proxy.url) as client:
                for _ in range(5):
                    assert (await client.get("/x")).json() == {}
            assert old.connections == 1
            async with httpx.AsyncClient(base_url=proxy.url) as client:
                assert (await client.post("/x", json={})).status_code == 200
            assert old.connections == 2

    async def test_that_the_server_closes_are_closed_for_the_client(self) -> None:
        async with run_scripted(answering(OK, closes=True)) as old, run_proxy_to(old.url) as proxy:
            reader, writer = await proxy.connect()
            writer.write(get())
            assert (await asyncio.wait_for(reader.read(), 2)).endswith(b"{}")
            writer.close()

    async def test_a_read_that_meets_a_closing_connection_is_sent_again(self) -> None:
        async def handle(script: ScriptedServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            number = script.connections
            await script.read_request(reader)
            if number > 1:
                writer.write(OK)
                await script.read_request(reader)

        async with run_scripted(handle) as old, run_proxy_to(old.url) as proxy:
            received = await proxy.send(get("/", "Connection: close"))
            assert received.endswith(b"{}")
            assert old.connections == 2

    async def test_a_write_is_never_sent_twice(self) -> None:
        """It goes over a new connection if the old one has been idle; without an answer, the client sees none."""

        async def handle(script: ScriptedServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await script.read_request(reader)

        async with run_scripted(handle) as old, run_proxy_to(old.url) as proxy:
            for number, request in enumerate(
                (b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", b"DELETE /x HTTP/1.1\r\n\r\n"), 1
            ):
                assert await proxy.send(request) == b""
                assert len(old.requests) == number
                exchange = (await proxy.queue.wait_for(number))[-1]
                assert exchange.skip_reason is SkipReason.WRITE
        async with run_scripted(answering(OK)) as old, run_proxy_to(old.url) as proxy:
            reader, writer = await proxy.connect()
            for seconds in (0.0, 1.1):
                await asyncio.sleep(seconds)
                writer.write(b"DELETE /x HTTP/1.1\r\n\r\n")
                await reader.readuntil(b"{}")
            writer.close()
            assert (old.connections, len(old.requests)) == (2, 2)

    async def test_http_1_0_is_answered_as_such(self) -> None:
        async with run_scripted(answering(OK)) as old, run_proxy_to(old.url) as proxy:
            assert (await proxy.send(get(version="1.0"))).endswith(b"Connection: close\r\n\r\n{}")
            reader, writer = await proxy.connect()
            for _ in range(2):
                writer.write(get("/", "Connection: keep-alive", version="1.0"))
                assert (await reader.readuntil(b"{}")).count(b"Connection: keep-alive\r\n") == 1
            writer.close()
        assert [request.split(b"\r\n")[0] for request in old.requests] == [
            b"GET /api/v3/projects HTTP/1.0",
            b"GET / HTTP/1.0",
            b"GET / HTTP/1.0",
        ]


class TestFailures:
    async def test_a_server_that_does_not_listen_is_502_until_it_does(self) -> None:
        async with run_scripted(answering(OK)) as old:
            url = old.url
        async with run_proxy_to(url) as proxy:
            for request in (get(), b"DELETE /x HTTP/1.1\r\nHost: a\r\n\r\n"):
                received = await proxy.send(request)
                assert received.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
                assert received.endswith(b'{"message":"The server behind this proxy does not accept connections"}')
            read, write = await proxy.queue.wait_for(2)
            assert (read.skip_reason, write.skip_reason) == (SkipReason.NO_ANSWER, SkipReason.WRITE)

    async def test_an_answer_that_is_cut_off_is_cut_off_for_the_client(self) -> None:
        answers = {
            b"/length": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789",
            b"/chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n0123",
            b"/head": b"HTTP/1.1 200 OK\r\nContent-Le",
        }
        for path, answer in answers.items():
            async with run_scripted(answering(answer, closes=True)) as old, run_proxy_to(old.url) as proxy:
                assert await proxy.send(get(path.decode())) == answer
                (exchange,) = await proxy.queue.wait_for(1)
                assert exchange.skip_reason is SkipReason.CUT_OFF

    async def test_malformed_answers_reach_the_client_as_they_are(self) -> None:
        answers = (
            b"HTTP/0.9 what\r\n\r\nrubbish",
            b"\x16\x03\x01\x00\x00\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nno colon\r\n\r\nrubbish",
            b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}!",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nrubbish",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n0\r\n\r\n",
            b"x" * 100_000,
        )
        for answer in answers:
            async with run_scripted(answering(answer, closes=True)) as old, run_proxy_to(old.url) as proxy:
                assert await proxy.send(get()) == answer
                (exchange,) = await proxy.queue.wait_for(1)
                assert exchange.skip_reason is SkipReason.MALFORMED, answer

    async def test_more_bytes_than_the_length_do_not_reach_the_next_answer(self) -> None:
        lying = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nplanted"
        async with run_scripted(answering(lying)) as old, run_proxy_to(old.url) as proxy:
            received = await proxy.send(get("/a") + get("/b"))
            assert received == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

    async def test_a_full_queue_drops_copies_and_answers(self) -> None:
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n" + b"x" * 3000
        async with run_scripted(answering(answer)) as old, run_proxy_to(old.url, max_queue=1000) as proxy:
            assert (await proxy.send(get("/", "Connection: close"))).endswith(b"x" * 3000)
            (exchange,) = await proxy.queue.wait_for(1)
            assert (exchange.skip_reason, proxy.queue.reserved) == (SkipReason.QUEUE_FULL, 0)


class TestHostileRequests:
    async def test_that_two_servers_could_read_differently_are_refused(self) -> None:
        requests = (
            b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
            b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc",
            b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            b"GET / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n folded\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\rY: 2\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
            b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1\nHost: a\n\n",
            b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        )
        async with run_scripted(answering(OK)) as old, run_proxy_to(old.url) as proxy:
            for request in requests:
                received = await proxy.send(request + get("/after"))
                assert received.startswith(b"HTTP/1.1 400 Bad Request\r\n"), request
                assert received.count(b"HTTP/1.1") == 1, request
            for body in (
                b"2\r\nabcd0\r\n\r\n",
                b"2\nab\n0\n\n",
                b"-1\r\n\r\n",
                b"1 1\r\n\r\n",
                b"0x1\r\na\r\n0\r\n\r\n",
                b"1;" + b"x" * 20_000,
            ):
                chunks = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + body
                assert (await proxy.send(chunks)).startswith(b"HTTP/1.1 400"), body
            assert (await proxy.send(b"GET / HTTP/1.1\r\nX: " + b"y" * 70_000)).startswith(b"HTTP/1.1 431")
            assert old.requests == []
            assert (await proxy.send(get("/", "Connection: close"))).endswith(b"{}")


class TestCopies:
    async def test_are_made_of_reads_and_of_writes_that_are_replayed(self) -> None:
        body = gzip.compress(b'{"a": 1}')
        answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        requests = (
            get("/api/v3/projects?page=2", "User-Agent: old-script"),
            b"POST /api/v3/projects HTTP/1.1\r\nHost: a\r\nUser-Agent: old-script\r\nContent-Length: 6\r\n\r\nname=x",
            b"POST /demo/tools.git/git-upload-pack HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n0000",
            get("/demo/tools.git/info/refs?service=git-upload-pack", "Connection: close"),
        )
        for replays in (False, True):
            async with run_scripted(answering(answer)) as old, run_proxy_to(old.url, replays_writes=replays) as proxy:
                assert (await proxy.send(b"".join(requests))).count(body) == 4
                read, write, fetch, refs = await proxy.queue.wait_for(4)
                assert (read.target, read.response_body) == ("/api/v3/projects?page=2", body)
                assert ("User-Agent", "old-script") in write.request_headers
                assert write.skip_reason is (None if replays else SkipReason.WRITE)
                assert write.request_body == (b"name=x" if replays else b"")
                assert (fetch.skip_reason, refs.skip_reason) == (SkipReason.GIT, SkipReason.GIT)


class TestStops:
    async def test_a_running_request_is_answered_and_an_idle_connection_closed(self) -> None:
        async def handle(script: ScriptedServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if await script.read_request(reader):
                arrived.set()
                await release.wait()
                writer.write(OK)
                await script.read_request(reader)

        arrived, release = asyncio.Event(), asyncio.Event()
        async with run_scripted(handle) as old, run_proxy_to(old.url) as proxy:
            idle_reader, idle_writer = await proxy.connect()
            running = asyncio.create_task(proxy.send(get()))
            await arrived.wait()
            stopping = asyncio.create_task(proxy.server.stop(5))
            assert await asyncio.wait_for(idle_reader.read(), 2) == b""
            release.set()
            assert (await running).endswith(b"Connection: close\r\n\r\n{}")
            await asyncio.wait_for(stopping, 2)
            idle_writer.close()


class TestTls:
    async def test_to_the_server_passes_both_ways(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(1), now + timedelta(1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
            .sign(key, hashes.SHA256())
        )
        file = tmp_path / "server.pem"
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        file.write_bytes(certificate.public_bytes(Encoding.PEM) + secret)
        server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server_tls.load_cert_chain(file)
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        body = b"x" * MIB

        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        async with run_scripted(answering(answer), tls=server_tls) as old:
            async with run_proxy_to(f"https://localhost:{old.port}") as proxy, httpx.AsyncClient(base_url=proxy.url) as client:
                for method in ("GET", "PUT", "GET"):
                    assert (await client.request(method, "/x", content=body if method == "PUT" else None)).content == body
                # A client that sends nothing more still gets its answer.
                reader, writer = await proxy.connect()
                writer.write(get("/", "Connection: close"))
                writer.write_eof()
                assert (await asyncio.wait_for(reader.read(), 5)).endswith(body)
                writer.close()
            assert old.connections == 2
            # The certificate is for another name.
            async with run_proxy_to(f"https://127.0.0.1:{old.port}") as proxy:
                assert (await proxy.send(get())).startswith(b"HTTP/1.1 502 ")
            # Copies and imports trust the same authorities.
            reasons = {"localhost": {}, "127.0.0.1": {"shadow server: certificate not accepted": 1}}
            for host, reason in reasons.items():
                worker = ComparisonWorker(ShadowSettings(old="http://127.0.0.1:1", new=f"https://{host}:{old.port}"))
                await worker.take(Exchange("GET", "/x", [], 200, [], response_body=body))
                reader = asyncio.StreamReader()
                reader.feed_eof()
                await worker.run(reader)
                assert worker.report.as_json()["total"]["not_compared"] == reason
            trusted, refused = (SourceClient(f"https://{host}:{old.port}", "token") for host in reasons)
            assert await trusted.get_text("/x") == body
            with pytest.raises(SourceError, match="CERTIFICATE_VERIFY_FAILED"):
                await refused.get("/x")
            await trusted.aclose()
            await refused.aclose()
            settings = ShadowSettings(old=f"https://localhost:{old.port}", new=f"https://127.0.0.1:{old.port}")
            with structlog.testing.capture_logs() as lines:
                await log_unreachable(settings)
            assert [(line["server"], "CERTIFICATE_VERIFY_FAILED" in line["error"]) for line in lines] == [(settings.new, True)]
