"""What texts of anybody's mean, remembered while they are in use, within bounds.

A bound is in characters, since a text that was read takes some hundred bytes for each: its nodes and its costs.
"""

import gc
from typing import Generic, TypeVar

from graphql import Location, Node

from storage.caches import CacheBounds, LruCache

T = TypeVar("T")
Key = tuple[str, str | None]

IN_USE = 100_000
"""Characters of the texts that were asked for twice and more."""
NEW = 10_000
"""Characters of those that were asked for once. Most of them never are again, and they push no other out of use."""
LEAST = 100
"""What even the shortest text counts."""
BYTES_PER_CHARACTER = 50
"""What a text that was read takes in memory, for each of its characters."""
DOCUMENTS = CacheBounds("documents", max_entries=(IN_USE + NEW) // LEAST, max_bytes=(IN_USE + NEW) * BYTES_PER_CHARACTER)
LET_GO = 20_000
"""Characters of the texts that went out of use between two sweeps of the collector."""


class Remembered(Generic[T]):
    """What each text means. The nodes and the plans of a text point at each other, so that one that is let go is freed by the collector
    alone. Left to itself, a server's would come after tens of thousands of them; so it is called after each LET_GO.
    """

    def __init__(self, *, in_use: int = IN_USE, new: int = NEW) -> None:
        self._in_use = self._segment(in_use)
        self._new = self._segment(new)
        self._let_go = 0

    def _segment(self, characters: int) -> LruCache[Key, T]:
        return LruCache(DOCUMENTS, document_size, self._count_let_go, max_bytes=characters * BYTES_PER_CHARACTER, max_entries=characters)

    def find(self, key: Key) -> T | None:
        found = self._in_use.get(key)
        if found is None and (found := self._new.pop(key)) is not None:
            self._put(self._in_use, key, found)
        return found

    def put(self, key: Key, value: T) -> None:
        """One that was not found."""
        self._put(self._new, key, value)

    def _put(self, segment: LruCache[Key, T], key: Key, value: T) -> None:
        segment.put(key, value)
        if self._let_go > LET_GO:
            self._let_go = 0
            gc.collect()

    def _count_let_go(self, key: Key, _: T) -> None:
        self._let_go += _weight(key)


def document_size(key: Key, _: object) -> int:
    return _weight(key) * BYTES_PER_CHARACTER


def _weight(key: Key) -> int:
    return max(len(key[0]), LEAST)


def without_tokens(node: Node) -> None:
    """Lets go what only reading needed, a third of what the nodes take: where they stand in the text they still know."""
    if node.loc is not None:
        place: Location = node.loc
        place.start_token = place.end_token = None  # type: ignore[assignment]
    for name in node.keys:
        part = getattr(node, name, None)
        if isinstance(part, Node):
            without_tokens(part)
        elif isinstance(part, tuple | list):
            for each in part:
                if isinstance(each, Node):
                    without_tokens(each)
