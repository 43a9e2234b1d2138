"""The lock of a data folder: processes that use it share `forgefront.lock`; one that cleans it up holds it exclusively."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

LOCK_FILE_NAME = "forgefront.lock"


class DataFolderLock:
    """This process's lock on one data folder. The kernel releases it when the process ends."""

    def __init__(self, data: Path) -> None:
        self._path = data / LOCK_FILE_NAME
        self._file: int | None = None

    def acquire(self, clean_up: Callable[[], None] | None = None) -> None:
        """Takes the shared lock; runs `clean_up` before, if no other process uses the folder. Waits for another process's cleanup. Raises
        OSError."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if clean_up is not None and _try_lock_exclusively(file):
                clean_up()
            fcntl.flock(file, fcntl.LOCK_SH)
        except BaseException:
            os.close(file)
            raise
        self._file = file

    def acquire_exclusively(self) -> bool:
        """Takes the lock, unless another process uses the folder; returns whether it did. Other processes wait then. Raises OSError."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not _try_lock_exclusively(file):
            os.close(file)
            return False
        self._file = file
        return True

    def is_locked(self) -> bool:
        """Whether any process, this one included, uses the folder. Creates no file. Raises OSError."""
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not _try_lock_exclusively(file)
        finally:
            os.close(file)

    def release(self) -> None:
        """Releases the lock; does nothing if it is not acquired."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _try_lock_exclusively(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
