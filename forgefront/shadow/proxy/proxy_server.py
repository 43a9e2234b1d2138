"""Listens, and stops gracefully."""

import asyncio
import signal
import socket
import ssl
from collections.abc import Callable

import structlog

from forgefront.server.listeners import LISTEN_BACKLOG
from forgefront.shadow.proxy.client_connection import ClientConnection
from forgefront.shadow.proxy.exchange_queue import ExchangeQueue
from forgefront.shadow.proxy.proxy_context import ProxyContext
from forgefront.shadow.proxy.server_connection import CONNECT_SECONDS
from forgefront.shadow.settings import ShadowSettings

STOP_SECONDS = 10.0
"""How long running requests have to end when the proxy is stopped."""


class ProxyServer:
    """One proxy: `start`, then `stop`. Requests that run when it stops are answered."""

    def __init__(self, settings: ShadowSettings, listener: socket.socket, queue: ExchangeQueue) -> None:
        self._queue = queue
        self._context = ProxyContext(settings, queue)
        self._listener = listener
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._queue.start()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: ClientConnection(self._context), sock=self._listener, backlog=LISTEN_BACKLOG)

    async def stop(self, seconds: float = STOP_SECONDS) -> None:
        if self._server is not None:
            self._server.close()
        await self._context.stop_connections(seconds)
        await self._queue.close()


async def run_proxy(
    settings: ShadowSettings, listener: socket.socket, status_listener: socket.socket | None, on_ready: Callable[[], None]
) -> None:
    """Serves until SIGTERM or SIGINT. SIGHUP has the report written."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    queue = ExchangeQueue(settings, status_listener)
    proxy = ProxyServer(settings, listener, queue)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    loop.add_signal_handler(signal.SIGHUP, queue.request_report)
    await proxy.start()
    on_ready()
    checking = asyncio.create_task(log_unreachable(settings))
    await stopped.wait()
    checking.cancel()
    structlog.get_logger().info("stopping")
    await proxy.stop()


async def log_unreachable(settings: ShadowSettings) -> None:
    """Logs which of the two servers cannot be reached, so that a wrong address or certificate is reported before the first request."""
    for address in (settings.primary, settings.secondary):
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                tls = ssl.create_default_context() if address.is_tls else None
                _, writer = await asyncio.open_connection(address.host, address.port, ssl=tls)
        except (OSError, UnicodeError) as error:
            reason = str(error) or type(error).__name__
            structlog.get_logger().warning("server cannot be reached", server=str(address), error=reason)
        else:
            writer.transport.abort()
