"""The object store: artifacts of builds and stretches of their traces, each an object under a key that nobody can guess.

A folder by default, `s3://BUCKET/PREFIX` by the configuration. An object appears when all of it is there, never before, and is never
changed. The names that people give their files stand in the database alone, so none of them is part of a key.
"""

import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

KEY_PATTERN = re.compile("[0-9a-f]{32}")
READ_CHUNK_BYTES = 2**18
"""Bytes of one piece of what is read."""


class ObjectTooLarge(Exception):
    """More came than may be kept; nothing was. `limit` is in bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"at most {limit} bytes may be kept")
        self.limit = limit


class ObjectNotFound(FileNotFoundError):
    """There is no object of this key."""


def new_key() -> str:
    """32 hex digits, of which none says what the object is."""
    return secrets.token_hex(16)


def validate_key(key: str) -> str:
    """Raises ValueError for what is no key."""
    if not KEY_PATTERN.fullmatch(key):
        raise ValueError("a key has 32 hex digits")
    return key


class ObjectStore(ABC):
    """What holds for a folder and for S3. Every method may raise OSError, S3's also where the server cannot be reached."""

    @abstractmethod
    async def put(self, key: str, chunks: AsyncIterable[bytes], limit: int) -> int:
        """Keeps what comes, in constant memory, and gives its length in bytes: when this returns, it survives a power cut.

        Whatever ends it early, also what `chunks` raises and a cancellation, leaves no object. Raises ObjectTooLarge.
        """

    @abstractmethod
    def open(self, key: str, start: int = 0, size: int | None = None) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The bytes from `start` on, `size` of them or all that follow, in pieces. Raises ObjectNotFound when entered.

        Who has it open reads it to its end, whether or not it is erased meanwhile.
        """

    @abstractmethod
    async def delete(self, key: str) -> None:
        """Nothing happens when it is not there."""

    @abstractmethod
    def list_older_than(self, seconds: float) -> AsyncIterator[list[str]]:
        """The keys of the objects that have been there for so long, some at a time. What is half written is tidied up beside."""

    @abstractmethod
    def sweep(self) -> None:
        """Removes what a killed process left half written. Only at start and under the instance's lock."""

    async def close(self) -> None:  # noqa: B027 - a folder has nothing to close
        """At the end of the process, when nothing is put or read any more."""

    async def put_bytes(self, key: str, data: bytes) -> None:
        """Keeps what is in the memory anyway."""
        await self.put(key, _single_chunk(data), len(data))

    async def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        """As `open`, all at once: for what is known to be small."""
        async with self.open(key, start, size) as chunks:
            return b"".join([piece async for piece in chunks])

    async def delete_all(self, keys: list[str]) -> None:
        """As `delete`, for many."""
        for key in keys:
            await self.delete(key)


async def _single_chunk(data: bytes) -> AsyncIterator[bytes]:
    if data:
        yield data


def open_store(url: str, folder: Path, s3_settings: Mapping[str, str] | None = None) -> ObjectStore:
    """The store at `s3://BUCKET/PREFIX`, or in the folder where there is no address.

    `s3_settings` has what differs from the AWS_* settings of the environment, in obstore's words, as `endpoint`. Raises ValueError.
    """
    if not url:
        from storage.objects.folder_store import FolderStore

        return FolderStore(folder)
    # Only where it is wanted: the library takes some megabytes.
    from storage.objects.bucket_store import BucketStore

    return BucketStore(url, s3_settings or {})
