"""A cache of object ids of refs by the version of a project's refs. A version never has other refs, so no entry is ever wrong."""

from storage.caches import CacheBounds, LruCache

REFS = CacheBounds("refs", max_entries=10_000, max_bytes=4 * 2**20)
ABSENT = ""
"""The value of a ref that does not exist."""
_ENTRY_BYTES = 300

RefKey = tuple[int, int, str]
"""A project id, the version of its refs, and the complete name of a ref."""


class RefCache(LruCache[RefKey, str]):
    def __init__(self) -> None:
        super().__init__(REFS, lambda key, _: _ENTRY_BYTES + len(key[2]))
