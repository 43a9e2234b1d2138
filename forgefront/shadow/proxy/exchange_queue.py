"""The bounded queue of exchanges, and the process that takes them from it."""

import asyncio
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

import structlog

from forgefront.shadow.exchanges import Exchange, encode_frame
from forgefront.shadow.settings import ShadowSettings

MIN_RESTART_SECONDS = 1.0
MAX_RESTART_SECONDS = 30.0
DRAIN_SECONDS = 20.0
"""How long the comparison may go on with what is queued once the proxy has stopped."""
PROCESS_MODULE = "forgefront.shadow.comparison"


class _QueueProtocol(asyncio.Protocol):
    """The comparison sends nothing: the end of its side means that it has died."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end

    def eof_received(self) -> None:
        self._on_end()

    def connection_lost(self, error: Exception | None) -> None:
        self._on_end()


class ExchangeQueue:
    """Starts the process of the comparison, replaces it if it dies, and sends it exchanges without ever waiting for it."""

    def __init__(self, settings: ShadowSettings, status_listener: socket.socket | None = None) -> None:
        self._settings = settings
        self._status_listener = status_listener
        self._transport: asyncio.WriteTransport | None = None
        self._supervision: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._captured = 0
        self._lost = 0
        self._restarts = 0

    def start(self) -> None:
        self._supervision = asyncio.create_task(self._supervise())

    def reserve(self, size: int) -> bool:
        """Takes memory for a part of a body that is being copied; False if the queue is full."""
        if self._transport is None or self._captured + size + self._transport.get_write_buffer_size() > self._settings.max_queue:
            return False
        self._captured += size
        return True

    def release(self, size: int) -> None:
        self._captured -= size

    def put(self, exchange: Exchange) -> None:
        """Queues an exchange; counts it as lost if there is no room."""
        transport = self._transport
        if transport is None or transport.is_closing() or transport.get_write_buffer_size() > self._settings.max_queue:
            self._lost += 1
            return
        exchange.lost, self._lost = self._lost, 0
        transport.write(exchange.encode())

    def request_report(self) -> None:
        """Has the report written now."""
        if self._transport is not None:
            self._transport.write(encode_frame({"command": "report"}))

    async def close(self) -> None:
        """Waits until the comparison has finished what is queued, for a bounded time."""
        self._closing.set()
        if self._transport is not None:
            self._transport.write(encode_frame({"command": "end", "lost": self._lost}))
            self._transport.close()
        if self._supervision is not None:
            await self._supervision

    async def _supervise(self) -> None:
        delay = MIN_RESTART_SECONDS
        log = structlog.get_logger()
        loop = asyncio.get_running_loop()
        while not self._closing.is_set():
            began = loop.time()
            try:
                outcome = f"exit code {await self._run_process()}"
            except OSError as error:
                outcome = str(error)
            if self._closing.is_set():
                break
            self._restarts += 1
            delay = MIN_RESTART_SECONDS if loop.time() - began > MAX_RESTART_SECONDS else min(delay * 2, MAX_RESTART_SECONDS)
            log.error("comparison ended", outcome=outcome, restart_seconds=delay)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), delay)

    def _disconnect(self) -> None:
        self._transport = None

    async def _run_process(self) -> int:
        """Runs the comparison until it ends; its exit code."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        files = [theirs.fileno(), *([self._status_listener.fileno()] if self._status_listener is not None else ())]
        with theirs:
            # In a session of its own, so that Ctrl-C only reaches the proxy.
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                PROCESS_MODULE,
                *map(str, files),
                stdin=asyncio.subprocess.PIPE,
                pass_fds=files,
                start_new_session=True,
            )
        transport, _ = await asyncio.get_running_loop().create_unix_connection(lambda: _QueueProtocol(self._disconnect), sock=ours)
        transport.write(encode_frame({"restarts": self._restarts}, self._settings.encode()))
        self._transport = transport
        if self._closing.is_set():
            transport.close()
        ended = asyncio.create_task(process.wait())
        closing = asyncio.create_task(self._closing.wait())
        try:
            await asyncio.wait((ended, closing), return_when=asyncio.FIRST_COMPLETED)
            if process.stdin is not None:
                # From here on, the comparison has a bounded time.
                process.stdin.close()
            await asyncio.wait((ended,), timeout=DRAIN_SECONDS)
            if not ended.done():
                process.kill()
            return await ended
        finally:
            closing.cancel()
            transport.abort()
