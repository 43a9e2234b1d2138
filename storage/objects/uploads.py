"""The contents of uploaded files, in one folder: `root/PROJECT_ID/SECRET`.

A file is written under a temporary name, synced to disk, and then renamed, so it appears atomically. The names of users' files are only in
the database, never part of a path.
"""

import asyncio
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

from storage.disk_sync import sync_path
from storage.objects.object_store import read_chunks

INCOMING_PREFIX = ".incoming-"
REMOVED_PREFIX = ".removed-"
WRITE_BUFFER_BYTES = 2**18
"""Bytes that are buffered before they are written, so that a small chunk does not cost a switch to a thread."""

SECRET_PATTERN = re.compile("[0-9a-f]{32}")


def new_secret() -> str:
    """Generates a secret: 32 random hex digits."""
    return secrets.token_hex(16)


class PartialFile:
    """A file that is being received. `ticket` identifies it until it is stored; `size` is the number of bytes written so far."""

    def __init__(self, path: Path, ticket: str) -> None:
        self.ticket = ticket
        self.size = 0
        self._path = path
        self._file: BinaryIO | None = None
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._is_closed = False
        # Canceling the caller does not cancel the thread that writes.
        self._lock = threading.Lock()

    async def write(self, data: bytes) -> None:
        """Appends data. Raises OSError, for example for a full disk."""
        self._pending.append(data)
        self._pending_size += len(data)
        self.size += len(data)
        if self._pending_size >= WRITE_BUFFER_BYTES:
            await asyncio.to_thread(self._flush)

    async def finish(self) -> None:
        """Writes the rest, syncs the file to disk and closes it. Raises OSError."""
        await asyncio.to_thread(self._finish)

    async def discard(self) -> None:
        """Removes the file, unless it was stored."""
        await asyncio.to_thread(self._discard)

    def _flush(self) -> None:
        with self._lock:
            self._write_pending()

    def _finish(self) -> None:
        with self._lock:
            self._write_pending()
            if self._file is not None:
                os.fsync(self._file.fileno())
                self._file.close()
                self._is_closed = True

    def _discard(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._file is not None:
                self._file.close()
                self._path.unlink(missing_ok=True)

    def _write_pending(self) -> None:
        if self._is_closed:
            return
        if self._file is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = self._path.open("xb", buffering=0)
        pending = memoryview(b"".join(self._pending))
        self._pending, self._pending_size = [], 0
        while pending:
            pending = pending[self._file.write(pending) :]


class UploadStore:
    """The files under `root`, which is created with the first one."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def receive(self) -> PartialFile:
        """Creates a file to write. The caller ends with `store` or the file's `discard`; `sweep` removes files of killed processes."""
        ticket = new_secret()
        return PartialFile(self.incoming_path(ticket), ticket)

    def received_size(self, ticket: str) -> int | None:
        """Returns the size in bytes of a received file that is not stored yet; None if there is none."""
        if not SECRET_PATTERN.fullmatch(ticket):
            return None
        try:
            return self.incoming_path(ticket).stat().st_size
        except FileNotFoundError:
            return None

    def store(self, ticket: str, project_id: int, secret: str) -> None:
        """Moves a received file to the project, synced to disk. Raises OSError; FileNotFoundError for an unknown ticket."""
        target = self.path_of(project_id, secret)
        is_new_folder = not target.parent.is_dir()
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.incoming_path(ticket).rename(target)
        sync_path(target.parent)
        if is_new_folder:
            sync_path(self.root)

    def open(self, project_id: int, secret: str) -> BinaryIO:
        """Opens a file for reading. Raises FileNotFoundError."""
        return self.path_of(project_id, secret).open("rb", buffering=0)

    def remove(self, project_id: int, secret: str) -> None:
        """Deletes a file. Does nothing if it does not exist."""
        self.path_of(project_id, secret).unlink(missing_ok=True)

    def remove_all(self, project_id: int) -> None:
        """Deletes the files of a project: they disappear immediately for readers, then they are deleted from disk."""
        trash = self.root / f"{REMOVED_PREFIX}{project_id:d}-{secrets.token_hex(4)}"
        try:
            (self.root / f"{project_id:d}").rename(trash)
        except FileNotFoundError:
            return
        shutil.rmtree(trash)

    async def publish(self, ticket: str, project_id: int, secret: str) -> None:
        """As `store`. Raises ConnectionError if the files are in a bucket that cannot be reached."""
        await asyncio.to_thread(self.store, ticket, project_id, secret)

    @asynccontextmanager
    async def read(self, project_id: int, secret: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """A context manager that yields the chunks of a file. Raises FileNotFoundError when entered, OSError."""
        file = await asyncio.to_thread(self.open, project_id, secret)
        try:
            yield read_chunks(file)
        finally:
            await asyncio.to_thread(file.close)

    async def erase(self, project_id: int, secret: str) -> None:
        """As `remove`."""
        await asyncio.to_thread(self.remove, project_id, secret)

    async def list_old(self, seconds: float) -> list[tuple[int, str]]:
        """(project id, secret) of the files that are older than this."""
        return await asyncio.to_thread(lambda: list(self.list_older_than(seconds)))

    def sweep(self) -> None:
        """Removes partial files and unfinished deletions of a killed process.

        Call it only at startup and under the instance's lock, because the files of a running process look the same.
        """
        if not self.root.is_dir():
            return
        for entry in self.root.iterdir():
            if entry.name.startswith(INCOMING_PREFIX):
                entry.unlink(missing_ok=True)
            elif entry.name.startswith(REMOVED_PREFIX):
                shutil.rmtree(entry)

    def list_older_than(self, seconds: float) -> Iterator[tuple[int, str]]:
        """Yields (project id, secret) of the files that are older than this."""
        cutoff = time.time() - seconds
        folders = [entry for entry in self.root.iterdir() if entry.name.isdigit()] if self.root.is_dir() else []
        for folder in folders:
            for entry in folder.iterdir():
                if SECRET_PATTERN.fullmatch(entry.name) and entry.stat().st_ctime < cutoff:
                    yield int(folder.name), entry.name

    def sizes(self) -> dict[tuple[int, str], int]:
        """Returns the size in bytes of every stored file, by project id and secret."""
        found = {}
        for folder in [entry for entry in self.root.iterdir() if entry.name.isdigit()] if self.root.is_dir() else []:
            for entry in folder.iterdir():
                if SECRET_PATTERN.fullmatch(entry.name):
                    found[int(folder.name), entry.name] = entry.stat().st_size
        return found

    def incoming_path(self, ticket: str) -> Path:
        return self.root / f"{INCOMING_PREFIX}{ticket}"

    def path_of(self, project_id: int, secret: str) -> Path:
        """Returns the path of a stored file, whether it exists or not. Raises ValueError for an invalid secret."""
        if not SECRET_PATTERN.fullmatch(secret):
            raise ValueError("an upload's secret must be 32 hex digits")
        return self.root / f"{project_id:d}" / secret
