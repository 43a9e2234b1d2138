"""Caches parsed documents of clients.

The bounds are in characters, because the memory of a parsed document (its nodes and costs) is proportional to its length.
"""

import gc
from typing import Generic, TypeVar

from storage.caches import CacheBounds, LruCache

T = TypeVar("T")
DocumentKey = tuple[str, str | None]

IN_USE_CHARACTERS = 60_000
"""Characters of the documents that were requested at least twice."""
NEW_CHARACTERS = 10_000
"""Characters of the documents that were requested once. Most are never requested again; they do not evict those in use."""
MIN_WEIGHT_CHARACTERS = 100
"""Minimum weight of a document."""
BYTES_PER_CHARACTER = 50
"""Estimated memory of a parsed document per character of its source."""
DOCUMENTS = CacheBounds(
    "documents",
    max_entries=(IN_USE_CHARACTERS + NEW_CHARACTERS) // MIN_WEIGHT_CHARACTERS,
    max_bytes=(IN_USE_CHARACTERS + NEW_CHARACTERS) * BYTES_PER_CHARACTER,
)
EVICTED_BEFORE_GC = 20_000
"""Characters of evicted documents after which the garbage collector runs."""


class DocumentCache(Generic[T]):
    """An LRU cache of documents with two segments: documents that were requested once, and those that are in use.

    The nodes and plans of a document refer to each other, so only the garbage collector frees an evicted document. The collector
    would run only after tens of thousands of evictions; so it is called after each EVICTED_BEFORE_GC characters.
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
        """Adds a document that was not found."""
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
