"""The object store in a folder: `root/AB/KEY`, where AB are the first two digits of the key.

obstore's local store is not used, because it renames a file without syncing it to disk first.
"""

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

from storage.disk_sync import sync_path
from storage.objects.object_store import KEY_PATTERN, ObjectNotFound, ObjectStore, ObjectTooLarge, read_chunks, validate_key
from storage.objects.uploads import INCOMING_PREFIX, PartialFile

LIST_PAGE_SIZE = 500


class FolderStore(ObjectStore):
    """The objects under `root`, which is created with the first one."""

    def __init__(self, root: Path) -> None:
        self.root = root

    async def put(self, key: str, chunks: AsyncIterable[bytes], limit: int) -> int:
        target = self.path_of(key)
        # The same key may be written by several processes, as those of caches are; or one was killed while it wrote.
        path = self.root / f"{INCOMING_PREFIX}{key}-{secrets.token_hex(4)}"
        incoming = PartialFile(path, key)
        rename_task: asyncio.Future[None] | None = None
        try:
            async for chunk in chunks:
                if incoming.size + len(chunk) > limit:
                    raise ObjectTooLarge(limit)
                await incoming.write(chunk)
            await incoming.finish()
            rename_task = asyncio.ensure_future(asyncio.to_thread(self._publish, path, target))
            await asyncio.shield(rename_task)
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(self._discard(incoming, rename_task, target)))
            raise
        return incoming.size

    @asynccontextmanager
    async def open(self, key: str, start: int = 0, size: int | None = None) -> AsyncIterator[AsyncIterator[bytes]]:
        file = await asyncio.to_thread(_open_file, self.path_of(key))
        try:
            yield read_chunks(file, start, size)
        finally:
            await asyncio.to_thread(file.close)

    async def delete(self, key: str) -> None:
        await asyncio.to_thread(self.path_of(key).unlink, missing_ok=True)

    async def list_older_than(self, seconds: float) -> AsyncIterator[list[str]]:
        cutoff = time.time() - seconds
        for folder in await asyncio.to_thread(self._shard_folders):
            keys = await asyncio.to_thread(_keys_older_than, folder, cutoff)
            for start in range(0, len(keys), LIST_PAGE_SIZE):
                yield keys[start : start + LIST_PAGE_SIZE]
        await asyncio.to_thread(self._remove_incoming, cutoff)

    def sweep(self) -> None:
        self._remove_incoming(float("inf"))

    def _remove_incoming(self, cutoff: float) -> None:
        for entry in _scan(self.root):
            with contextlib.suppress(FileNotFoundError):
                if entry.name.startswith(INCOMING_PREFIX) and entry.stat().st_mtime < cutoff:
                    Path(entry.path).unlink()

    def _shard_folders(self) -> list[Path]:
        return [Path(entry.path) for entry in _scan(self.root) if len(entry.name) == 2 and entry.is_dir()]

    def path_of(self, key: str) -> Path:
        """Returns the path of an object, whether it exists or not. Raises ValueError for an invalid key."""
        return self.root / validate_key(key)[:2] / key

    def _publish(self, incoming: Path, target: Path) -> None:
        """Renames a synced file to its final name."""
        is_new_folder = not target.parent.is_dir()
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        incoming.rename(target)
        sync_path(target.parent)
        if is_new_folder:
            sync_path(self.root)

    async def _discard(self, incoming: PartialFile, rename_task: "asyncio.Future[None] | None", target: Path) -> None:
        # Canceling the caller does not cancel the thread that renames.
        if rename_task is not None:
            with contextlib.suppress(OSError):
                await rename_task
            await asyncio.to_thread(target.unlink, missing_ok=True)
        await incoming.discard()


def _open_file(path: Path) -> BinaryIO:
    try:
        return path.open("rb", buffering=0)
    except FileNotFoundError:
        raise ObjectNotFound(path.name) from None


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _keys_older_than(folder: Path, cutoff: float) -> list[str]:
    keys = []
    for entry in _scan(folder):
        with contextlib.suppress(FileNotFoundError):
            if KEY_PATTERN.fullmatch(entry.name) and entry.stat().st_mtime < cutoff:
                keys.append(entry.name)
    return keys
