"""How answers are written to a connection. Effects that clients see are tested in test_server.py."""

import asyncio
from typing import Any

from forgefront.server.http_connection import BufferedTransport


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def write(self, data: Any) -> None:
        self.seen.append(data)

    def close(self) -> None:
        self.seen.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.seen


class TestResponse:
    async def test_header_and_body_are_one_write(self) -> None:
        transport = Transport()
        joined = BufferedTransport(transport, asyncio.get_running_loop(), transport.close)
        joined.write(b"header")
        joined.write(b"body")
        assert transport.seen == [b"headerbody"]

    async def test_a_header_without_a_body_is_written_immediately(self) -> None:
        transport = Transport()
        joined = BufferedTransport(transport, asyncio.get_running_loop(), transport.close)
        joined.write(b"header")
        await asyncio.sleep(0)
        assert transport.seen == [b"header"]

    async def test_buffered_bytes_are_flushed_on_close(self) -> None:
        transport = Transport()
        joined = BufferedTransport(transport, asyncio.get_running_loop(), transport.close)
        joined.write(b"header")
        joined.close()
        assert transport.seen == [b"header", "closed"]
        assert joined.is_closing()

    async def test_nothing_is_written_to_a_connection_that_the_client_has_reset(self) -> None:
        transport = Transport()
        joined = BufferedTransport(transport, asyncio.get_running_loop(), transport.close)
        joined.write(b"header")
        transport.close()
        await asyncio.sleep(0)
        joined.write(b"body")
        joined.write(b"body")
        assert transport.seen == ["closed"]
