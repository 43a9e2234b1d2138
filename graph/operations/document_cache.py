"""What texts of anybody's mean, remembered while they are in use, within bounds.

A bound is in characters, since a text that was read takes some hundred bytes for each: its nodes and its costs.
"""

import gc
from typing import Generic, TypeVar

from graphql import Location, Node

from storage.caches import CacheBounds, LruCache

T = TypeVar("T")
DocumentKey = tuple[str, str | None]

IN_USE_CHARACTERS = 100_000
"""Characters of the texts that were asked for twice and more."""
NEW_CHARACTERS = 10_000
"""Characters of those that were asked for once. Most of them never are again, and they push no other out of use."""
MIN_WEIGHT_CHARACTERS = 100
"""What even the shortest text counts."""
BYTES_PER_CHARACTER = 50
"""What a text that was read takes in memory, for each of its characters."""
DOCUMENTS = CacheBounds(
    "documents",
    max_entries=(IN_USE_CHARACTERS + NEW_CHARACTERS) // MIN_WEIGHT_CHARACTERS,
    max_bytes=(IN_USE_CHARACTERS + NEW_CHARACTERS) * BYTES_PER_CHARACTER,
)
EVICTED_BEFORE_GC = 20_000
"""Characters of the texts that went out of use between two sweeps of the collector."""


class DocumentCache(Generic[T]):
    """What each text means. The nodes and the plans of a text point at each other, so that one that is let go is freed by the collector
    alone. Left to itself, a server's would come after tens of thousands of them; so it is called after each EVICTED_BEFORE_GC.
    """

    def __init__(self, *, in_use: int = IN_USE_CHARACTERS, new: int = NEW_CHARACTERS) -> None:
        self._in_use = self._segment(in_use)
        self._new = self._segment(new)
        self._evicted = 0

    def _segment(self, characters: int) -> LruCache[DocumentKey, T]:
        return LruCache(DOCUMENTS, document_size, self._count_evicted, max_bytes=characters * BYTES_PER_CHARACTER, max_entries=characters)

    def find(self, key: DocumentKey) -> T | None:
        found = self._in_use.get(key)
        if found is None and (found := self._new.pop(key)) is not None:
            self._put(self._in_use, key, found)
        return found

    def put(self, key: DocumentKey, value: T) -> None:
        """One that was not found."""
        self._put(self._new, key, value)

    def _put(self, segment: LruCache[DocumentKey, T], key: DocumentKey, value: T) -> None:
        segment.put(key, value)
        if self._evicted > EVICTED_BEFORE_GC:
            self._evicted = 0
            gc.collect()

    def _count_evicted(self, key: DocumentKey, _: T) -> None:
        self._evicted += _weight(key)


def document_size(key: DocumentKey, _: object) -> int:
    return _weight(key) * BYTES_PER_CHARACTER


def _weight(key: DocumentKey) -> int:
    return max(len(key[0]), MIN_WEIGHT_CHARACTERS)


def drop_tokens(node: Node) -> None:
    """Lets go what only reading needed, a third of what the nodes take: where they stand in the text they still know."""
    if node.loc is not None:
        location: Location = node.loc
        location.start_token = location.end_token = None  # type: ignore[assignment]
    for name in node.keys:
        child = getattr(node, name, None)
        if isinstance(child, Node):
            drop_tokens(child)
        elif isinstance(child, tuple | list):
            for each in child:
                if isinstance(each, Node):
                    drop_tokens(each)
