"""Loaders: the keys that resolvers of one level ask for are fetched in one statement, and each key once an operation."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Loader(Generic[K, V]):
    """`fetch` takes the distinct keys of a level and gives what it found; a key that it leaves out loads as None."""

    def __init__(self, fetch: Callable[[list[K]], Awaitable[Mapping[K, V]]]) -> None:
        self._fetch = fetch
        self._known: dict[K, V | None] = {}
        self._waiting: dict[K, asyncio.Future[V | None]] = {}
        self._fetching: dict[K, asyncio.Future[V | None]] = {}
        self._scheduled = False
        self._tasks: set[asyncio.Task[None]] = set()

    def load(self, key: K) -> V | Awaitable[V | None] | None:
        """The value itself when it is known already, something to await otherwise."""
        if key in self._known:
            return self._known[key]
        waiting = self._waiting.get(key) or self._fetching.get(key)
        if waiting is None:
            loop = asyncio.get_running_loop()
            waiting = self._waiting[key] = loop.create_future()
            if not self._scheduled:
                self._scheduled = True
                loop.call_soon(self._start)
        return waiting

    async def get(self, key: K) -> V | None:
        found = self.load(key)
        if isinstance(found, asyncio.Future):
            return await asyncio.shield(found)
        return found  # type: ignore[return-value]

    async def get_many(self, keys: Iterable[K]) -> dict[K, V | None]:
        wanted = list(dict.fromkeys(keys))
        missing = [key for key in wanted if key not in self._known]
        if missing:
            self._keep(missing, await self._fetch(missing))
        return {key: self._known[key] for key in wanted}

    def prime(self, key: K, value: V | None) -> None:
        self._known[key] = value

    def offer(self, key: K, value: V | None) -> None:
        """As `prime`, but what is known already stays."""
        self._known.setdefault(key, value)

    def forget(self, key: K) -> None:
        self._known.pop(key, None)

    def _keep(self, keys: list[K], found: Mapping[K, V]) -> None:
        for key in keys:
            self._known[key] = found.get(key)

    def _start(self) -> None:
        self._scheduled = False
        waiting, self._waiting = self._waiting, {}
        self._fetching.update(waiting)
        task = asyncio.get_running_loop().create_task(self._run(waiting))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, waiting: dict[K, asyncio.Future[V | None]]) -> None:
        try:
            self._keep(list(waiting), await self._fetch(list(waiting)))
        except BaseException as error:
            for future in waiting.values():
                if not future.done():
                    future.set_exception(error)
                    future.exception()
            if not isinstance(error, Exception):
                raise
        else:
            for key, future in waiting.items():
                if not future.done():
                    future.set_result(self._known[key])
        finally:
            for key in waiting:
                self._fetching.pop(key, None)
