"""What the connections of a proxy share."""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forgefront.shadow.http_heads import Header, RequestHead
from forgefront.shadow.proxy.exchange_capture import ExchangeCapture
from forgefront.shadow.proxy.exchange_queue import ExchangeQueue
from forgefront.shadow.settings import ServerAddress, ShadowSettings

if TYPE_CHECKING:
    from forgefront.shadow.proxy.client_connection import ClientConnection

RESOLVED_SECONDS = 30.0
"""How long the addresses of a host name are used: looking them up takes longer than a request may."""


@dataclass
class ProxyContext:
    settings: ShadowSettings
    queue: ExchangeQueue
    address: ServerAddress = field(init=False)
    tls: ssl.SSLContext | None = field(init=False)
    host: bytes | None = field(init=False)
    """Replaces the header Host of requests."""
    connections: "set[ClientConnection]" = field(default_factory=set)
    is_stopping: bool = False
    _has_no_connections: asyncio.Event = field(default_factory=asyncio.Event)
    _resolved: tuple[str, ...] = ()
    _resolved_at: float = 0.0

    def __post_init__(self) -> None:
        self.address = self.settings.primary
        self.tls = ssl.create_default_context() if self.address.is_tls else None
        self.host = self.address.host_header.encode() if self.settings.rewrites_host else None

    def capture(self, head: RequestHead, headers: Sequence[Header]) -> ExchangeCapture:
        settings = self.settings
        return ExchangeCapture(self.queue, head, headers, settings.max_body, replays_writes=settings.replays_writes)

    def remove(self, connection: "ClientConnection") -> None:
        self.connections.discard(connection)
        if self.is_stopping and not self.connections:
            self._has_no_connections.set()

    async def stop_connections(self, seconds: float) -> None:
        """Closes the idle connections, and the others once they are; those that take longer are aborted."""
        self.is_stopping = True
        for connection in list(self.connections):
            connection.stop()
        if self.connections:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._has_no_connections.wait(), seconds)
        for connection in list(self.connections):
            connection.abort()

    async def resolve(self) -> tuple[str, ...]:
        """The IP addresses of the server, the one that was used last first."""
        loop = asyncio.get_running_loop()
        if not self._resolved or loop.time() - self._resolved_at > RESOLVED_SECONDS:
            found = await loop.getaddrinfo(self.address.host, self.address.port, type=socket.SOCK_STREAM)
            addresses = dict.fromkeys(str(each[4][0]) for each in found)
            self._resolved = tuple(sorted(addresses, key=lambda address: address not in self._resolved[:1]))
            self._resolved_at = loop.time()
        return self._resolved

    def prefer(self, address: str) -> None:
        """Moves an address that accepts connections to the front."""
        if self._resolved[:1] != (address,):
            self._resolved = (address, *(each for each in self._resolved if each != address))
