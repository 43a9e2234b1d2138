"""Claims an empty data folder for a command that fills it completely or not at all: a demo, a restoration.

A run that was killed leaves a marker, and the next run starts over.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from forgefront.config import Config
from forgefront.data_folder.data_folder_lock import LOCK_FILE_NAME as LOCK_FILE
from forgefront.data_folder.file_permissions import SSH_HOST_KEY_FILE
from forgefront.settings.config_file import FILE_NAME as CONFIG_FILE
from storage.secrets import KEY_FILE

UNFINISHED_DEMO = "demo.unfinished"
UNFINISHED_RESTORE = "restore.unfinished"
ALLOWED_ENTRIES = frozenset((CONFIG_FILE, "lost+found"))
"""Files that an empty data folder may contain."""
KEY_FILES = frozenset((KEY_FILE, SSH_HOST_KEY_FILE, f"{SSH_HOST_KEY_FILE}.pub"))
"""Files that it may contain before a restoration, and that are never removed."""


class FolderNotEmpty(Exception):
    """The data folder, or its database, is not empty. Nothing was changed."""


def is_unfinished(data: Path, marker: str = UNFINISHED_DEMO) -> bool:
    return (data / marker).exists()


def is_fillable(config: Config, marker: str = UNFINISHED_DEMO) -> bool:
    """Whether the folder is empty, absent, or contains what a killed run left. Raises OSError."""
    if not config.data.exists():
        return True
    return is_unfinished(config.data, marker) or not _list_contents(config.data, marker)


def _list_contents(data: Path, marker: str) -> list[str]:
    allowed = ALLOWED_ENTRIES | _preserved(marker)
    return sorted(entry.name for entry in data.iterdir() if entry.name not in allowed)


def _preserved(marker: str) -> frozenset[str]:
    return KEY_FILES if marker == UNFINISHED_RESTORE else frozenset()


@contextlib.contextmanager
def claim_folder(config: Config, marker: str = UNFINISHED_DEMO) -> Iterator[None]:
    """Locks the empty data folder exclusively. An error inside restores it. Raises FolderNotEmpty, OSError."""
    data = config.data
    if not is_fillable(config, marker):
        names = ", ".join(_list_contents(data, marker)[:3])
        raise FolderNotEmpty(f"{data} is not empty (it contains {names}); name another folder with --data. Nothing was changed")
    existed = data.exists()
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(data / marker, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderNotEmpty(f"another process is filling {data}. Nothing was changed") from None
        _remove_contents(config, _preserved(marker))
        try:
            yield
        except BaseException:
            _remove_contents(config, _preserved(marker))
            (data / marker).unlink(missing_ok=True)
            if not existed:
                with contextlib.suppress(OSError):
                    data.rmdir()
            raise
        (data / marker).unlink()
    finally:
        os.close(handle)


def _remove_contents(config: Config, preserved: frozenset[str]) -> None:
    """Removes what a run creates in the folder. A database elsewhere is not changed."""
    for folder in (config.repositories, config.uploads, config.artifacts):
        shutil.rmtree(folder, ignore_errors=True)
    for name in (KEY_FILE, LOCK_FILE, *(f"forgefront.db{end}" for end in ("", "-wal", "-shm", "-journal", ".lock"))):
        if name not in preserved:
            (config.data / name).unlink(missing_ok=True)
