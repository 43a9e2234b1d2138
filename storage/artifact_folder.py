"""The object store in a folder: `root/AB/KEY`, where AB are the first two digits of the key.

By hand, since obstore's local store renames without bringing the file to the disk first.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

from storage.artifacts import KEY, READ_AT_ONCE, NoObject, ObjectStore, TooLong, checked
from storage.uploads import INCOMING, Incoming, sync_folder

LISTED_AT_ONCE = 500


class FolderStore(ObjectStore):
    """The objects under `root`, which is made when the first one comes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    async def put(self, key: str, pieces: AsyncIterable[bytes], limit: int) -> int:
        target = self._path(key)
        incoming = Incoming(self._incoming(key), key)
        renaming: asyncio.Future[None] | None = None
        try:
            async for piece in pieces:
                if incoming.size + len(piece) > limit:
                    raise TooLong(limit)
                await incoming.write(piece)
            await incoming.finish()
            renaming = asyncio.ensure_future(asyncio.to_thread(self._show, key, target))
            await asyncio.shield(renaming)
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(self._take_back(incoming, renaming, target)))
            raise
        return incoming.size

    @asynccontextmanager
    async def open(self, key: str, start: int = 0, size: int | None = None) -> AsyncIterator[AsyncIterator[bytes]]:
        file = await asyncio.to_thread(_open, self._path(key))
        try:
            yield _pieces(file, start, size)
        finally:
            await asyncio.to_thread(file.close)

    async def erase(self, key: str) -> None:
        await asyncio.to_thread(self._path(key).unlink, missing_ok=True)

    async def older_than(self, seconds: float) -> AsyncIterator[list[str]]:
        latest = time.time() - seconds
        for folder in await asyncio.to_thread(self._folders):
            found = await asyncio.to_thread(_older, folder, latest)
            for begin in range(0, len(found), LISTED_AT_ONCE):
                yield found[begin : begin + LISTED_AT_ONCE]
        await asyncio.to_thread(self._remove_incoming, latest)

    def sweep(self) -> None:
        self._remove_incoming(float("inf"))

    def _remove_incoming(self, latest: float) -> None:
        for entry in _entries(self.root):
            with contextlib.suppress(FileNotFoundError):
                if entry.name.startswith(INCOMING) and entry.stat().st_mtime < latest:
                    Path(entry.path).unlink()

    def _folders(self) -> list[Path]:
        return [Path(entry.path) for entry in _entries(self.root) if len(entry.name) == 2 and entry.is_dir()]

    def _path(self, key: str) -> Path:
        return self.root / checked(key)[:2] / key

    def _incoming(self, key: str) -> Path:
        return self.root / f"{INCOMING}{key}"

    def _show(self, key: str, target: Path) -> None:
        """Gives a file that is on the disk its lasting name."""
        fresh = not target.parent.is_dir()
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._incoming(key).rename(target)
        sync_folder(target.parent)
        if fresh:
            sync_folder(self.root)

    async def _take_back(self, incoming: Incoming, renaming: "asyncio.Future[None] | None", target: Path) -> None:
        # A caller who goes away cancels the waiting, not the thread that renames.
        if renaming is not None:
            with contextlib.suppress(OSError):
                await renaming
            await asyncio.to_thread(target.unlink, missing_ok=True)
        await incoming.discard()


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb", buffering=0)
    except FileNotFoundError:
        raise NoObject(path.name) from None


async def _pieces(file: BinaryIO, start: int, size: int | None) -> AsyncIterator[bytes]:
    await asyncio.to_thread(file.seek, start)
    left = size
    while left is None or left > 0:
        piece = await asyncio.to_thread(file.read, READ_AT_ONCE if left is None else min(READ_AT_ONCE, left))
        if not piece:
            return
        if left is not None:
            left -= len(piece)
        yield piece


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _older(folder: Path, latest: float) -> list[str]:
    found = []
    for entry in _entries(folder):
        with contextlib.suppress(FileNotFoundError):
            if KEY.fullmatch(entry.name) and entry.stat().st_mtime < latest:
                found.append(entry.name)
    return found
