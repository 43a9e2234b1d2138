"""The folder of a demo: empty before, and filled completely or not at all.

A run that was killed leaves a marker, and the next run starts over.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from forgefront.config import FILE_NAME as CONFIG_FILE
from forgefront.config import Config
from forgefront.data_folder_lock import LOCK_FILE_NAME as LOCK_FILE
from storage.secrets import KEY_FILE

UNFINISHED_MARKER = "demo.unfinished"
ALLOWED_ENTRIES = frozenset((CONFIG_FILE, "lost+found"))
"""Files that an empty data folder may contain."""


class FolderNotEmpty(Exception):
    """The data folder, or its database, is not empty. Nothing was changed."""


def is_unfinished(data: Path) -> bool:
    return (data / UNFINISHED_MARKER).exists()


def is_fillable(config: Config) -> bool:
    """Whether the folder is empty, absent, or contains what a killed run left. Raises OSError."""
    if not config.data.exists():
        return True
    return is_unfinished(config.data) or not _list_contents(config.data)


def _list_contents(data: Path) -> list[str]:
    return sorted(entry.name for entry in data.iterdir() if entry.name not in ALLOWED_ENTRIES)


@contextlib.contextmanager
def claim_folder(config: Config) -> Iterator[None]:
    """Locks the empty data folder exclusively. An error inside restores it. Raises FolderNotEmpty, OSError."""
    data = config.data
    if not is_fillable(config):
        names = ", ".join(_list_contents(data)[:3])
        raise FolderNotEmpty(f"{data} is not empty (it contains {names}); name another folder with --data. Nothing was changed")
    existed = data.exists()
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    marker = os.open(data / UNFINISHED_MARKER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderNotEmpty(f"another process is filling {data}. Nothing was changed") from None
        _remove_contents(config)
        try:
            yield
        except BaseException:
            _remove_contents(config)
            (data / UNFINISHED_MARKER).unlink(missing_ok=True)
            if not existed:
                with contextlib.suppress(OSError):
                    data.rmdir()
            raise
        (data / UNFINISHED_MARKER).unlink()
    finally:
        os.close(marker)


def _remove_contents(config: Config) -> None:
    """Removes what a run creates in the folder. A database elsewhere is not changed."""
    for folder in (config.repositories, config.uploads, config.artifacts):
        shutil.rmtree(folder, ignore_errors=True)
    for name in (KEY_FILE, LOCK_FILE, *(f"forgefront.db{end}" for end in ("", "-wal", "-shm", "-journal", ".lock"))):
        (config.data / name).unlink(missing_ok=True)
