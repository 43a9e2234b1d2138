"""The files that an operation's result refers to, which the endpoint sends."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from storage.objects.object_store import ObjectStore


class ServedFile(Protocol):
    """A file that an operation's result refers to and the viewer may read; the endpoint sends its contents.

    `size` is in bytes; None if it is known only at the end: such a file is sent as a whole.
    """

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int | None: ...

    def open(self, start: int, size: int) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Returns a context manager that yields chunks of `size` bytes from `start` on.

        Entering it raises OSError, FileNotFoundError if the file was deleted meanwhile, and Unavailable.
        """


async def read_first(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Reads the first chunk now, so that what prevents it is raised before the response begins. Returns all chunks."""
    first = await anext(chunks, b"")

    async def all_chunks() -> AsyncIterator[bytes]:
        if first:
            yield first
        async for chunk in chunks:
            yield chunk

    return all_chunks()


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A served file that is one object of the object store."""

    objects: ObjectStore
    key: str
    name: str
    size: int

    def open(self, start: int, size: int) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self.objects.open(self.key, start, size)
