"""Who uses a data folder: every process that serves or changes it holds `forgefront.lock` in common, one that tidies it alone."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

LOCK_FILE_NAME = "forgefront.lock"


class DataFolderLock:
    """The use of one data folder by this process. The kernel ends it with the process, however that ends."""

    def __init__(self, data: Path) -> None:
        self._path = data / LOCK_FILE_NAME
        self._file: int | None = None

    def acquire(self, clean_up: Callable[[], None] | None = None) -> None:
        """Begins the use; runs `clean_up` before, if nobody else uses the folder. Waits while another process tidies. Raises OSError."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if clean_up is not None and _try_lock_exclusively(file):
                clean_up()
            fcntl.flock(file, fcntl.LOCK_SH)
        except BaseException:
            os.close(file)
            raise
        self._file = file

    def release(self) -> None:
        """Ends the use; does nothing without one."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _try_lock_exclusively(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
