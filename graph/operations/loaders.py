"""Dataloaders: the keys that the resolvers of one level request are fetched in one batch, and each key once per operation."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from graph.operations.time_slices import SliceScheduler

MAX_RESUMED_KEYS_PER_TICK = 250
"""Maximum of keys whose waiting resolvers are resumed in one iteration of the loop."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Loader(Generic[K, V]):
    """A dataloader. `fetch` takes the distinct keys of a batch and returns the values that it found; a missing key loads as None."""

    __slots__ = ("_fetch", "_fetching", "_is_gathering", "_scheduler", "_tasks", "_values", "_waiting")

    def __init__(self, fetch: Callable[[list[K]], Awaitable[Mapping[K, V]]], scheduler: SliceScheduler | None = None) -> None:
        """`scheduler` is the operation's: paused pieces of work may request further keys, so a batch waits for them."""
        self._fetch = fetch
        self._scheduler = scheduler
        self._values: dict[K, V | None] = {}
        self._waiting: dict[K, asyncio.Future[V | None]] = {}
        # None: one caller alone is fetching the key, and nobody else has requested it since.
        self._fetching: dict[K, asyncio.Future[V | None] | None] = {}
        self._is_gathering = False
        self._tasks: set[asyncio.Task[None]] = set()

    def load(self, key: K) -> V | Awaitable[V | None] | None:
        """Returns the value if it is loaded, otherwise an awaitable."""
        if key in self._values:
            return self._values[key]
        waiting = self._waiting.get(key)
        if waiting is not None:
            return waiting
        loop = asyncio.get_running_loop()
        if key in self._fetching:
            waiting = self._fetching[key]
            if waiting is None:
                waiting = self._fetching[key] = loop.create_future()
            return waiting
        waiting = self._waiting[key] = loop.create_future()
        if not self._is_gathering:
            self._is_gathering = True
            self._start_task(self._fetch_gathered())
        return waiting

    async def get(self, key: K) -> V | None:
        if key in self._values:
            return self._values[key]
        if self._is_gathering or key in self._fetching:
            return await self._wait(self.load(key))  # type: ignore[arg-type]
        # The first caller waits briefly for others. Most have no others, and need no task and no future.
        self._is_gathering = True
        try:
            await self._wait_for_other_requests()
        except BaseException:
            self._finish_gathering()
            raise
        if key in self._values:
            self._finish_gathering()
            return self._values[key]
        if not self._waiting:
            self._is_gathering = False
            await self._fetch_now([key])
            return self._values[key]
        future = self._waiting.get(key) or self._waiting.setdefault(key, asyncio.get_running_loop().create_future())
        self._finish_gathering()
        return await self._wait(future)

    async def _wait(self, future: "asyncio.Future[V | None]") -> V | None:
        value = await asyncio.shield(future)
        if self._scheduler is not None:
            # All waiters of a key are resumed in the same loop iteration.
            await self._scheduler.pause()
        return value

    def _finish_gathering(self) -> None:
        """Fetches the gathered keys in a task, if there are any."""
        if self._waiting:
            self._start_task(self._fetch_gathered())
        else:
            self._is_gathering = False

    async def get_many(self, keys: Iterable[K]) -> dict[K, V | None]:
        distinct_keys = list(dict.fromkeys(keys))
        missing = [key for key in distinct_keys if key not in self._values]
        if missing and not self._is_gathering and self._fetching.keys().isdisjoint(missing):
            # As in `get`, with all keys.
            self._is_gathering = True
            try:
                await self._wait_for_other_requests()
            except BaseException:
                self._finish_gathering()
                raise
            missing = [key for key in missing if key not in self._values]
            if missing and not self._waiting:
                self._is_gathering = False
                await self._fetch_now(missing)
                missing = []
            found = [self.load(key) for key in missing]
            self._finish_gathering()
        else:
            found = [self.load(key) for key in missing]
        futures = [each for each in found if isinstance(each, asyncio.Future)]
        for future in futures:
            await asyncio.shield(future)
        if futures and self._scheduler is not None:
            # Once for all keys: reading the clock costs more than a key.
            await self._scheduler.pause()
        return {key: self._values[key] for key in distinct_keys}

    def is_loaded(self, key: K) -> bool:
        """Whether the value of a key can be read without a statement."""
        return key in self._values

    def get_loaded(self, key: K) -> V | None:
        """Returns the value of a loaded key (`is_loaded`)."""
        return self._values[key]

    def prime(self, key: K, value: V | None) -> None:
        self._values[key] = value

    def prime_if_absent(self, key: K, value: V | None) -> None:
        """As `prime`, but does not replace a loaded value."""
        self._values.setdefault(key, value)

    def clear(self, key: K) -> None:
        self._values.pop(key, None)

    def _store(self, keys: list[K], found: Mapping[K, V]) -> None:
        for key in keys:
            self._values[key] = found.get(key)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fetch_now(self, keys: list[K]) -> None:
        """Fetches keys that no other call is fetching; later callers for the same keys wait for it."""
        self._fetching.update(dict.fromkeys(keys))
        try:
            self._store(keys, await self._fetch(keys))
        except BaseException as error:
            other_waiters = self._pop_waiters(keys)
            if isinstance(error, Exception):
                for future in other_waiters.values():
                    _fail(future, error)
            elif other_waiters:
                # The caller was canceled, but others wait for the keys.
                self._start_task(self._fetch_for(other_waiters))
            raise
        for key, future in self._pop_waiters(keys).items():
            if not future.done():
                future.set_result(self._values[key])

    def _pop_waiters(self, keys: list[K]) -> dict[K, "asyncio.Future[V | None]"]:
        """Removes the keys from the pending fetches, and returns the futures of those that others wait for."""
        waiting = ((key, self._fetching.pop(key)) for key in keys)
        return {key: future for key, future in waiting if future is not None}

    async def _wait_for_other_requests(self) -> None:
        """Waits until other resolvers of the level have requested their keys."""
        await asyncio.sleep(0)
        if self._scheduler is not None and self._scheduler.has_paused:
            await self._scheduler.wait_for_paused()

    async def _fetch_gathered(self) -> None:
        if self._scheduler is not None and self._scheduler.has_paused:
            await self._scheduler.wait_for_paused()
        self._is_gathering = False
        waiting, self._waiting = self._waiting, {}
        await self._fetch_for(waiting)

    async def _fetch_for(self, waiting: dict[K, "asyncio.Future[V | None]"]) -> None:
        self._fetching.update(waiting)
        try:
            self._store(list(waiting), await self._fetch(list(waiting)))
        except BaseException as error:
            for future in waiting.values():
                _fail(future, error)
            if not isinstance(error, Exception):
                raise
        else:
            for number, (key, future) in enumerate(waiting.items(), 1):
                if not future.done():
                    future.set_result(self._values[key])
                if not number % MAX_RESUMED_KEYS_PER_TICK:
                    # Further waiters are resumed in the next iteration of the loop.
                    await asyncio.sleep(0)
        finally:
            for key in waiting:
                self._fetching.pop(key, None)


def _fail(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
        # Nobody may be waiting; this marks the exception as retrieved.
        future.exception()
