"""The bytes of uploaded files, in one folder: `root/PROJECT_ID/SECRET`.

A file is written under a name that nobody asks for, brought to the disk, and then renamed: who finds it finds all of it. The names
that people give their files stand in the database alone, so none of them is ever part of a path.
"""

import asyncio
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

INCOMING_PREFIX = ".incoming-"
REMOVED_PREFIX = ".removed-"
WRITE_BUFFER_BYTES = 2**18
"""Bytes gathered before they are written, so that a small chunk does not cost a thread's turn."""

SECRET_PATTERN = re.compile("[0-9a-f]{32}")


def new_secret() -> str:
    """32 hex digits that nobody can guess."""
    return secrets.token_hex(16)


class PartialFile:
    """A file that is being received. `ticket` names it until it is kept; `size` is what was written so far, in bytes."""

    def __init__(self, path: Path, ticket: str) -> None:
        self.ticket = ticket
        self.size = 0
        self._path = path
        self._file: BinaryIO | None = None
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._is_closed = False
        # A caller who goes away cancels the waiting, not the thread that writes.
        self._lock = threading.Lock()

    async def write(self, data: bytes) -> None:
        """Raises OSError, as for a full disk."""
        self._pending.append(data)
        self._pending_size += len(data)
        self.size += len(data)
        if self._pending_size >= WRITE_BUFFER_BYTES:
            await asyncio.to_thread(self._flush)

    async def finish(self) -> None:
        """Brings everything to the disk; nothing can be written after it. Raises OSError."""
        await asyncio.to_thread(self._finish)

    async def discard(self) -> None:
        """Removes it, unless it was kept."""
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
    """The files under `root`, which is made when the first one comes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def receive(self) -> PartialFile:
        """A new file to write. It ends in `store` or in its own `discard`; what a kill leaves is taken by `sweep`."""
        ticket = new_secret()
        return PartialFile(self._incoming_path(ticket), ticket)

    def received_size(self, ticket: str) -> int | None:
        """The length in bytes of a file that was received and not kept yet, or None where there is none."""
        if not SECRET_PATTERN.fullmatch(ticket):
            return None
        try:
            return self._incoming_path(ticket).stat().st_size
        except FileNotFoundError:
            return None

    def store(self, ticket: str, project_id: int, secret: str) -> None:
        """Gives a received file to the project, on disk when this returns. Raises OSError; FileNotFoundError for an unknown ticket."""
        target = self._path(project_id, secret)
        is_new_folder = not target.parent.is_dir()
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._incoming_path(ticket).rename(target)
        sync_folder(target.parent)
        if is_new_folder:
            sync_folder(self.root)

    def open(self, project_id: int, secret: str) -> BinaryIO:
        """The file, to read. Raises FileNotFoundError."""
        return self._path(project_id, secret).open("rb", buffering=0)

    def remove(self, project_id: int, secret: str) -> None:
        """Nothing happens when it is not there."""
        self._path(project_id, secret).unlink(missing_ok=True)

    def remove_all(self, project_id: int) -> None:
        """Deletes the files of a project: gone at once for readers, from the disk after that."""
        trash = self.root / f"{REMOVED_PREFIX}{project_id:d}-{secrets.token_hex(4)}"
        try:
            (self.root / f"{project_id:d}").rename(trash)
        except FileNotFoundError:
            return
        shutil.rmtree(trash)

    def sweep(self) -> None:
        """Removes what a killed process left half done.

        Only at start and under the instance's lock: a living process's files look the same.
        """
        if not self.root.is_dir():
            return
        for entry in self.root.iterdir():
            if entry.name.startswith(INCOMING_PREFIX):
                entry.unlink(missing_ok=True)
            elif entry.name.startswith(REMOVED_PREFIX):
                shutil.rmtree(entry)

    def list_older_than(self, seconds: float) -> Iterator[tuple[int, str]]:
        """(project id, secret) of the files that have been there for so long."""
        cutoff = time.time() - seconds
        folders = [entry for entry in self.root.iterdir() if entry.name.isdigit()] if self.root.is_dir() else []
        for folder in folders:
            for entry in folder.iterdir():
                if SECRET_PATTERN.fullmatch(entry.name) and entry.stat().st_ctime < cutoff:
                    yield int(folder.name), entry.name

    def sizes(self) -> dict[tuple[int, str], int]:
        """The length in bytes of every file that was kept, by project id and secret."""
        found = {}
        for folder in [entry for entry in self.root.iterdir() if entry.name.isdigit()] if self.root.is_dir() else []:
            for entry in folder.iterdir():
                if SECRET_PATTERN.fullmatch(entry.name):
                    found[int(folder.name), entry.name] = entry.stat().st_size
        return found

    def _incoming_path(self, ticket: str) -> Path:
        return self.root / f"{INCOMING_PREFIX}{ticket}"

    def _path(self, project_id: int, secret: str) -> Path:
        """Raises ValueError for what is no secret."""
        if not SECRET_PATTERN.fullmatch(secret):
            raise ValueError("a secret has 32 hex digits")
        return self.root / f"{project_id:d}" / secret


def sync_folder(folder: Path) -> None:
    """Makes new names in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
