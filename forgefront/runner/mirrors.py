"""Copies of repositories that the runner keeps between builds, so that a build fetches only what is new.

A build reads its objects from the copy (git's alternates), and in a sandbox cannot write it. Nothing that a build leaves in its working
folder reaches the next build.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from forgefront.runner.folders import remove_folder

UNUSED_DAYS = 30
"""Days after which a copy that no build used is removed."""
LOCK_POLL_SECONDS = 0.2
MAX_PACKS = 50
"""Packs of a copy above which they become one."""


class MirrorStore:
    """The copies below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path_of(self, url: str) -> Path:
        """Where the copy of a repository is, or will be."""
        return self._folder / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.git"

    @asynccontextmanager
    async def use(self, mirror: Path, stop: asyncio.Event) -> AsyncIterator[None]:
        """Keeps a copy from being removed. Removes those that nobody used for a long time."""
        await asyncio.to_thread(self._prepare)
        async with _locked(mirror.with_suffix(".use"), fcntl.LOCK_SH, stop):
            yield

    @asynccontextmanager
    async def write(self, mirror: Path, stop: asyncio.Event) -> AsyncIterator[None]:
        """Waits until no other build writes the copy. Ends early, without the lock, when `stop` is set."""
        async with _locked(mirror.with_suffix(".lock"), fcntl.LOCK_EX, stop):
            yield

    def has_many_packs(self, mirror: Path) -> bool:
        return len(list((mirror / "objects" / "pack").glob("*.pack"))) > MAX_PACKS

    def discard(self, mirror: Path) -> None:
        """Has a damaged copy removed as soon as no build uses it any more."""
        mirror.with_suffix(".damaged").touch()

    def _prepare(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for mirror in self._folder.glob("*.git"):
            use = mirror.with_suffix(".use")
            damaged = mirror.with_suffix(".damaged")
            with contextlib.suppress(OSError):
                if damaged.exists() or use.stat().st_mtime < time.time() - UNUSED_DAYS * 86400:
                    handle = os.open(use, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                    try:
                        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        remove_folder(mirror)
                        damaged.unlink(missing_ok=True)
                    finally:
                        os.close(handle)


@asynccontextmanager
async def _locked(file: Path, kind: int, stop: asyncio.Event) -> AsyncIterator[None]:
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.utime(handle)
        while not stop.is_set():
            try:
                fcntl.flock(handle, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOCK_POLL_SECONDS):
                        await stop.wait()
        yield
    finally:
        os.close(handle)
