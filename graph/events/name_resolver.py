"""Resolves names with the system's resolver, in threads, so that names whose servers do not answer do not delay others."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

SLOW_SECONDS = 2.0
"""A name that takes longer is slow. The system gives a name up after some ten seconds, in which its thread cannot be ended."""
MAX_FAST_LOOKUPS, MAX_SLOW_LOOKUPS = 32, 16
MAX_THREADS = 128
MAX_SLOW_NAMES = 1_000


class NameResolver:
    """At most MAX_FAST_LOOKUPS names are looked up at once, and those that have become slow meanwhile; of the names that were slow before,
    at most MAX_SLOW_LOOKUPS."""

    def __init__(self) -> None:
        # Separate threads, because the default executor is shared. They are started as they are needed.
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="resolver")
        self._fast, self._slow = asyncio.Semaphore(MAX_FAST_LOOKUPS), asyncio.Semaphore(MAX_SLOW_LOOKUPS)
        self._slow_names: dict[str, None] = {}

    async def resolve(self, host: str, port: int) -> list[str]:
        """The addresses of a name, best first. Raises OSError, UnicodeError."""
        if host in self._slow_names:
            return await self._resolve_slowly(host, port)
        async with self._fast:
            lookup = self._threads.submit(_look_up, host, port)
            waiting = asyncio.wrap_future(lookup)
            if not (await asyncio.wait([waiting], timeout=SLOW_SECONDS))[0] and lookup.running():
                self._slow_names[host] = None
                if len(self._slow_names) > MAX_SLOW_NAMES:
                    del self._slow_names[next(iter(self._slow_names))]
        return await waiting

    async def _resolve_slowly(self, host: str, port: int) -> list[str]:
        await self._slow.acquire()
        loop = asyncio.get_running_loop()
        began = loop.time()
        lookup = self._threads.submit(_look_up, host, port)
        # After the end of its thread, even if the caller does not wait for it.
        lookup.add_done_callback(lambda _: _call_soon(loop, self._slow.release))
        found = await asyncio.wrap_future(lookup)
        if loop.time() - began < SLOW_SECONDS:
            self._slow_names.pop(host, None)
        return found

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    # The loop may be closed already when a thread ends.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)
