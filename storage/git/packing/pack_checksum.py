"""The checksum at the end of a pack or of its index."""

import hashlib

TRAILER_BYTES = 20
"""Both end with the SHA-1 of everything before it (gitformat-pack)."""


class PackChecksum:
    """Verifies a pack, or an index, that is read or received block by block."""

    def __init__(self) -> None:
        self._sum = hashlib.sha1(usedforsecurity=False)
        self._tail = b""

    def update(self, block: bytes) -> None:
        data = self._tail + block
        self._sum.update(data[:-TRAILER_BYTES])
        self._tail = data[-TRAILER_BYTES:]

    @property
    def is_complete(self) -> bool:
        """Whether what was read ends with its checksum."""
        return self._sum.digest() == self._tail

    def is_complete_with(self, block: bytes) -> bool:
        """Whether the pack is complete with this block, the next one."""
        self.update(block)
        return self.is_complete
