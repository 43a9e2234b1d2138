"""The cache of directories and files of commits, which never change: pages of listings, small files, and their last changes."""

from collections.abc import Hashable
from typing import Any

from storage.caches import CacheBounds, LruCache
from storage.git.refs.ref_names import TYPED_ID
from storage.git.repository import RefTargets
from storage.git.trees import BlobContent

CONTENTS = CacheBounds("git contents", max_entries=2_000, max_bytes=16 * 2**20)
MAX_ENTRY_BYTES = 2**18

_LISTED_BYTES, _BLOB_BYTES, _ID_BYTES = 600, 1_000, 400
"""An entry of a directory, a blob without its contents, a commit id with its key."""


class ContentCache:
    """Pages of listings, blobs and ids of last changes. `content_key` makes their keys."""

    def __init__(self) -> None:
        self._contents: LruCache[Hashable, Any] = LruCache(CONTENTS, lambda _, value: _estimate(value))

    def get(self, key: Hashable | None) -> Any:
        """The value; None if there is none."""
        return self._contents.get(key) if key is not None else None

    def put(self, key: Hashable | None, value: Any) -> None:
        """Stores a list of entries, a blob or a commit id, unless it is large. Does nothing for the key None."""
        if key is not None and _estimate(value) <= MAX_ENTRY_BYTES:
            self._contents.put(key, value)


def content_key(project_id: int, name: str | None, refs: RefTargets, *arguments: Hashable) -> Hashable | None:
    """The key of an answer about a commit; None if the name may mean another commit later."""
    return (project_id, name, frozenset(refs.items()), *arguments) if is_lasting(name, refs) else None


def is_lasting(name: str | None, refs: RefTargets) -> bool:
    """Whether a name means the same commit as long as its `refs` stay, which an abbreviated id does not."""
    return name is not None and bool(refs or TYPED_ID.fullmatch(name))


def _estimate(value: Any) -> int:
    if isinstance(value, str):
        return _ID_BYTES
    if isinstance(value, BlobContent):
        # Text of one character beyond Latin-1 takes two or four bytes for each.
        return _BLOB_BYTES + 4 * len(value.text or "") + len(value.data or b"")
    return sum(_LISTED_BYTES + 2 * len(entry.path) for entry in value)
