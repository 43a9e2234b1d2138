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
from forgefront.data_folder.data_folder_lock import DataFolderLock
from forgefront.data_folder.file_permissions import SSH_HOST_KEY_FILE
from forgefront.settings.config_file import FILE_NAME as CONFIG_FILE
from storage.secrets import KEY_FILE

UNFINISHED_DEMO = "demo.unfinished"
UNFINISHED_RESTORE = "restore.unfinished"
ALLOWED_ENTRIES = frozenset((CONFIG_FILE, "lost+found"))
"""Files that an empty data folder may contain."""
KEY_FILES = frozenset((KEY_FILE, SSH_HOST_KEY_FILE, f"{SSH_HOST_KEY_FILE}.pub"))
"""Files that it may contain before a restoration, and that are never removed."""
_claimed: set[Path] = set()
"""The folders that this process is filling."""


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
    _require_fillable(config, marker)
    existed = data.exists()
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = _lock_marker(config, marker)
    try:
        _remove_contents(config, _preserved(marker))
        _claimed.add(data.resolve())
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
        _claimed.discard(data.resolve())
        os.close(handle)


def is_claimed(data: Path) -> bool:
    """Whether this process is filling the folder."""
    return data.resolve() in _claimed


def _require_fillable(config: Config, marker: str) -> None:
    if not is_fillable(config, marker):
        names = ", ".join(_list_contents(config.data, marker)[:3])
        raise FolderNotEmpty(f"{config.data} is not empty (it contains {names}); name another folder with --data. Nothing was changed")


def _lock_marker(config: Config, marker: str) -> int:
    """Creates the marker, or takes over that of a killed run; returns the file that holds its lock. Raises FolderNotEmpty."""
    path = config.data / marker
    try:
        handle, is_new = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), True
    except FileExistsError:
        handle, is_new = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), False
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderNotEmpty(f"another process is filling {config.data}. Nothing was changed") from None
        if not is_new and not _is_same_file(handle, path):
            raise FolderNotEmpty(f"another process has just filled {config.data}. Nothing was changed")
        try:
            if is_new:
                # Another process may have used the folder since it was found to be empty.
                _require_unfilled(config, marker)
            if DataFolderLock(config.data).is_locked():
                raise FolderNotEmpty(f"another process uses {config.data}; stop it first. Nothing was changed")
        except FolderNotEmpty:
            if is_new:
                path.unlink()
            raise
    except BaseException:
        os.close(handle)
        raise
    return handle


def _require_unfilled(config: Config, marker: str) -> None:
    if names := [name for name in _list_contents(config.data, marker) if name != marker]:
        raise FolderNotEmpty(f"another process has just filled {config.data} (it contains {', '.join(names[:3])}). Nothing was changed")


def _is_same_file(handle: int, path: Path) -> bool:
    """Whether the path still names the opened file, which the end of another run removes."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _remove_contents(config: Config, preserved: frozenset[str]) -> None:
    """Removes what a run creates in the folder. A database elsewhere is not changed."""
    for folder in (config.repositories, config.uploads, config.artifacts):
        shutil.rmtree(folder, ignore_errors=True)
    for name in (KEY_FILE, LOCK_FILE, *(f"forgefront.db{end}" for end in ("", "-wal", "-shm", "-journal", ".lock"))):
        if name not in preserved:
            (config.data / name).unlink(missing_ok=True)
