"""The connection to the server that answers."""

import asyncio
from typing import TYPE_CHECKING, cast

from forgefront.shadow.proxy.proxy_context import ProxyContext

if TYPE_CHECKING:
    from forgefront.shadow.proxy.client_connection import ClientConnection

CONNECT_SECONDS = 10.0
MAX_PENDING = 64 * 1024


class ServerConnection(asyncio.Protocol):
    """Connects when it is created. Data that is written earlier is sent once it is connected."""

    def __init__(self, context: ProxyContext, client: "ClientConnection") -> None:
        self._context = context
        self._client: ClientConnection | None = client
        self._transport: asyncio.Transport | None = None
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._ends_after_pending = False
        self._is_reading_paused = client.is_writing_paused
        self.was_connected = False
        self.is_closing = False
        self._connecting = asyncio.create_task(self._connect())

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
            return
        self._pending.append(data)
        self._pending_size += len(data)
        if self._pending_size > MAX_PENDING and self._client is not None:
            self._client.pause_sending()

    def end(self) -> None:
        """The client sends nothing more; the server may still answer."""
        if self._transport is None:
            self._ends_after_pending = True
        elif self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()

    def close(self) -> None:
        self._client = None
        self.is_closing = True
        self._connecting.cancel()
        if self._transport is not None:
            self._transport.close()

    def pause_reading(self) -> None:
        self._is_reading_paused = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_reading_paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    async def _connect(self) -> None:
        context = self._context
        loop = asyncio.get_running_loop()
        failure: Exception = OSError("no address")
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                for address in await context.resolve():
                    try:
                        await loop.create_connection(
                            lambda: self,
                            address,
                            context.address.port,
                            ssl=context.tls,
                            server_hostname=context.address.host if context.tls else None,
                        )
                    except OSError as error:
                        failure = error
                    else:
                        context.prefer(address)
                        return
        except (OSError, UnicodeError) as error:
            failure = error
        self.connection_lost(failure)

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        if self._client is None:
            transport.abort()
            return
        self.was_connected = True
        if self._pending:
            transport.write(b"".join(self._pending))
            self._pending.clear()
            self._client.resume_sending()
        if self._ends_after_pending:
            self.end()
        if self._is_reading_paused:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        if self._client is not None:
            self._client.take_answer(data)

    def eof_received(self) -> bool:
        return self._client is not None and self._client.end_tunnel_input()

    def pause_writing(self) -> None:
        if self._client is not None:
            self._client.pause_sending()

    def resume_writing(self) -> None:
        if self._client is not None:
            self._client.resume_sending()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closing = True
        if self._client is not None:
            client, self._client = self._client, None
            client.end_answer(error)
