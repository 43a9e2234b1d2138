"""The caches of the process: each has a name, a bound in entries and a bound in bytes (docs/caches.md lists them).

    PATHS = CacheBounds("paths", max_entries=2_000, max_bytes=2**21)
    paths = LruCache(PATHS, lambda path, project: 500 + len(path))

The size of an entry is estimated when it is put in, so that a lookup costs little more than that of a dictionary. Estimates are within a
factor of two of the real sizes (tests/storage/test_caches.py).
"""

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
O = TypeVar("O")  # noqa: E741 - an owner


class CacheUsage(NamedTuple):
    entries: int
    bytes: int


BOUNDS_BY_NAME: dict[str, "CacheBounds"] = {}
"""The bounds of every cache, by its name."""


@dataclass(frozen=True, eq=False)
class CacheBounds:
    """The bounds of one cache, or of each cache with that name, for example one per connection (`per`).

    An entry of more than `max_entry_bytes` is not stored; without it, one of more than `max_bytes`.
    """

    name: str
    max_entries: int
    max_bytes: int
    per: str = "process"
    max_entry_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.name in BOUNDS_BY_NAME:
            raise ValueError(f"two caches have the name {self.name}")
        BOUNDS_BY_NAME[self.name] = self


_USAGE_FUNCTIONS: "dict[weakref.ref[Any], tuple[str, Callable[[Any], CacheUsage]]]" = {}


def register_usage(bounds: CacheBounds, owner: O, usage: Callable[[O], CacheUsage]) -> None:
    """Registers `usage(owner)` as part of the cache's usage until the owner is garbage-collected."""
    _USAGE_FUNCTIONS[weakref.ref(owner, _unregister)] = (bounds.name, usage)


def _unregister(owner: "weakref.ref[Any]") -> None:
    _USAGE_FUNCTIONS.pop(owner, None)


def current_usage() -> dict[str, CacheUsage]:
    """Returns the current usage of the caches, summed by name."""
    totals = dict.fromkeys(BOUNDS_BY_NAME, CacheUsage(0, 0))
    # Copying is one step of the interpreter. A garbage collection during an iteration could remove owners.
    for owner, (name, usage_of) in _USAGE_FUNCTIONS.copy().items():
        if (alive := owner()) is not None:
            more = usage_of(alive)
            totals[name] = CacheUsage(totals[name].entries + more.entries, totals[name].bytes + more.bytes)
    return totals


class _Entry(Generic[V]):
    __slots__ = ("is_used", "size", "value")

    def __init__(self, value: V, size: int) -> None:
        self.value = value
        self.size = size
        self.is_used = False


class LruCache(Generic[K, V]):
    """A bounded cache that evicts entries that have not been used recently. `size` estimates the bytes of an entry with its key.

    It uses the CLOCK algorithm: an entry that was used since the last check is spared once, so a lookup only sets a flag and hashes its
    key once. `on_evict` is called with each evicted entry, also with one that is too large to be stored.
    """

    __slots__ = ("__weakref__", "_entries", "_max_bytes", "_max_entries", "_max_entry_bytes", "_on_evict", "_size", "bytes")

    def __init__(
        self, bounds: CacheBounds, size: Callable[[K, V], int], on_evict: Callable[[K, V], None] | None = None, **overrides: int
    ) -> None:
        """`overrides` replaces `max_entries` or `max_bytes` for this cache."""
        self._max_entries = overrides.get("max_entries", bounds.max_entries)
        self._max_bytes = overrides.get("max_bytes", bounds.max_bytes)
        self._max_entry_bytes = bounds.max_entry_bytes or self._max_bytes
        self._size = size
        self._on_evict = on_evict
        self._entries: OrderedDict[K, _Entry[V]] = OrderedDict()
        self.bytes = 0
        register_usage(bounds, self, lambda cache: CacheUsage(len(cache), cache.bytes))

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry.is_used = True
        return entry.value

    def put(self, key: K, value: V) -> None:
        self._put(key, value, self._size(key, value))

    def grow(self, key: K, more: int) -> None:
        """Counts more bytes for an entry that has grown."""
        entry = self._entries.get(key)
        if entry is not None:
            self._put(key, entry.value, entry.size + more)

    def _put(self, key: K, value: V, size: int) -> None:
        self.pop(key)
        if size > self._max_entry_bytes:
            if self._on_evict is not None:
                self._on_evict(key, value)
            return
        added = self._entries[key] = _Entry(value, size)
        self.bytes += size
        while self.bytes > self._max_bytes or len(self._entries) > self._max_entries:
            oldest, entry = self._entries.popitem(last=False)
            if entry.is_used or entry is added:
                entry.is_used = False
                self._entries[oldest] = entry
                continue
            self.bytes -= entry.size
            if self._on_evict is not None:
                self._on_evict(oldest, entry.value)

    def pop(self, key: K) -> V | None:
        """Removes and returns an entry; None if there is none."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self.bytes -= entry.size
        return entry.value

    def clear(self) -> None:
        self._entries.clear()
        self.bytes = 0
