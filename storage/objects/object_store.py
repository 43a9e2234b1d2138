"""The object store: artifacts of builds and parts of their traces, each an object with a random key.

It is a folder by default, or `s3://BUCKET/PREFIX` by configuration. Objects are created atomically and never changed. The names of users'
files are only in the database, never part of a key.
"""

import asyncio
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import BinaryIO

KEY_PATTERN = re.compile("[0-9a-f]{32}")
OWNER_NAME = "forgefront-instance"
"""The object that contains the identity of the instance that owns a bucket. It is no key, so it is never listed or deleted."""
READ_CHUNK_BYTES = 2**18
"""Size of the chunks that are read."""
ALL_SECONDS = -1e9
"""Every object is older than this."""


class ObjectTooLarge(Exception):
    """The data exceeds the limit, in bytes; nothing was stored."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the object exceeds the limit of {limit} bytes")
        self.limit = limit


class ObjectNotFound(FileNotFoundError):
    """There is no object with this key."""


class ObjectStoreUnavailable(ConnectionError):
    """The object store cannot be reached, or refuses the request."""


def new_key() -> str:
    """Generates a key: 32 random hex digits."""
    return secrets.token_hex(16)


def validate_key(key: str) -> str:
    """Returns the key. Raises ValueError if it is not valid."""
    if not KEY_PATTERN.fullmatch(key):
        raise ValueError("an object key must be 32 hex digits")
    return key


class ObjectStore(ABC):
    """The interface of the folder and the S3 store. Every method may raise OSError, on S3 also if the server is unreachable."""

    @abstractmethod
    async def put(self, key: str, chunks: AsyncIterable[bytes], limit: int) -> int:
        """Stores an object in constant memory and returns its size in bytes; when it returns, the object survives a power failure.

        After any error, an exception of `chunks` or a cancellation, there is no object. Raises ObjectTooLarge.
        """

    @abstractmethod
    def open(self, key: str, start: int = 0, size: int | None = None) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Returns a context manager that yields the chunks of `size` bytes from `start` on, or all. Raises ObjectNotFound when entered.

        There are as many bytes as the object has from `start` on, or none.

        An open object can be read to its end even if it is deleted meanwhile.
        """

    @abstractmethod
    async def delete(self, key: str) -> None:
        """Deletes an object. Does nothing if it does not exist."""

    @abstractmethod
    def list_older_than(self, seconds: float) -> AsyncIterator[list[str]]:
        """Yields batches of the keys of objects that are older than this. Also removes partial objects of that age."""

    @abstractmethod
    def sweep(self) -> None:
        """Removes partial objects of a killed process. Call it only at startup and under the instance's lock."""

    is_remote = False
    """Whether the objects are on another machine, so that several hosts can use them."""

    async def check(self) -> None:  # noqa: B027 - a folder is checked by its writers
        """Raises OSError if the store cannot be reached."""

    async def claim(self, owner: str) -> str:
        """Makes `owner` the owner of the store unless it has one; returns the owner. A folder belongs to each instance that opens it."""
        return owner

    async def read_owner(self) -> str | None:
        """The owner that `claim` has written."""
        return None

    async def close(self) -> None:  # noqa: B027 - a folder has nothing to close
        """Closes the store, at the end of the process after the last read or write."""

    async def put_bytes(self, key: str, data: bytes) -> None:
        """Stores bytes that are already in memory."""
        await self.put(key, _single_chunk(data), len(data))

    async def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        """Reads bytes as `open`, all at once; for small objects."""
        async with self.open(key, start, size) as chunks:
            return b"".join([piece async for piece in chunks])

    async def delete_all(self, keys: list[str]) -> None:
        """Deletes many objects, as `delete`."""
        for key in keys:
            await self.delete(key)


async def read_chunks(file: BinaryIO, start: int = 0, size: int | None = None) -> AsyncIterator[bytes]:
    """Yields `size` bytes of an unbuffered file from `start` on, or all, read in threads."""
    await asyncio.to_thread(file.seek, start)
    remaining = size
    while remaining is None or remaining > 0:
        chunk = await asyncio.to_thread(file.read, READ_CHUNK_BYTES if remaining is None else min(READ_CHUNK_BYTES, remaining))
        if not chunk:
            return
        if remaining is not None:
            remaining -= len(chunk)
        yield chunk


async def _single_chunk(data: bytes) -> AsyncIterator[bytes]:
    if data:
        yield data


def open_store(url: str, folder: Path, s3_settings: Mapping[str, str] | None = None) -> ObjectStore:
    """Opens the store at `s3://BUCKET/PREFIX`, or in the folder if the URL is empty.

    `s3_settings` override the AWS_* settings of the environment, under obstore's names, such as `endpoint`. Raises ValueError.
    """
    if not url:
        from storage.objects.folder_store import FolderStore

        return FolderStore(folder)
    # Imported on demand: the library takes some megabytes.
    from storage.objects.bucket_store import BucketStore

    return BucketStore(url, s3_settings or {})
