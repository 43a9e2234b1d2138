"""The folder that a demo fills: empty before, and filled whole or not at all.

A run that was killed leaves a mark, and the next one starts anew.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from forgefront.config import FILE_NAME as CONFIG_FILE
from forgefront.config import Config
from forgefront.instance import FILE_NAME as LOCK_FILE
from storage.secrets import KEY_FILE

MARK = "demo.unfinished"
ALLOWED = frozenset((CONFIG_FILE, "lost+found"))
"""What an empty data folder may hold."""


class NotEmpty(Exception):
    """The data folder, or its database, holds something already. Nothing was changed."""


def is_unfinished(data: Path) -> bool:
    return (data / MARK).exists()


def can_fill(config: Config) -> bool:
    """Whether the folder is empty, absent, or holds what a killed run left. Raises OSError."""
    if not config.data.exists():
        return True
    return is_unfinished(config.data) or not _contents(config.data)


def _contents(data: Path) -> list[str]:
    return sorted(entry.name for entry in data.iterdir() if entry.name not in ALLOWED)


@contextlib.contextmanager
def claimed(config: Config) -> Iterator[None]:
    """The empty data folder, for this process alone. What goes wrong inside leaves it as it was. Raises NotEmpty, OSError."""
    data = config.data
    if not can_fill(config):
        names = ", ".join(_contents(data)[:3])
        raise NotEmpty(f"{data} is not empty (it holds {names}); name another folder with --data, nothing was changed")
    was_there = data.exists()
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    mark = os.open(data / MARK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotEmpty(f"another process is filling {data} right now; nothing was changed") from None
        _empty(config)
        try:
            yield
        except BaseException:
            _empty(config)
            (data / MARK).unlink(missing_ok=True)
            if not was_there:
                with contextlib.suppress(OSError):
                    data.rmdir()
            raise
        (data / MARK).unlink()
    finally:
        os.close(mark)


def _empty(config: Config) -> None:
    """Removes what a run makes in the folder. A database that lies elsewhere is left alone."""
    for folder in (config.repositories, config.uploads, config.artifacts):
        shutil.rmtree(folder, ignore_errors=True)
    for name in (KEY_FILE, LOCK_FILE, *(f"forgefront.db{end}" for end in ("", "-wal", "-shm", "-journal", ".lock"))):
        (config.data / name).unlink(missing_ok=True)
