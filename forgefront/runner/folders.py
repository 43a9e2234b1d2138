"""Folders of builds: creating, measuring and removing them, whatever scripts have left in them."""

import contextlib
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import structlog

log = structlog.get_logger("runner")


def remove_folder(folder: Path) -> None:
    """Removes a folder with its contents, including read-only files."""

    def allow(function: Any, path: str, _error: Any) -> None:
        with contextlib.suppress(OSError):
            Path(path).parent.chmod(stat.S_IRWXU)
            if not Path(path).is_symlink():
                Path(path).chmod(stat.S_IRWXU)
            function(path)

    # Again, for folders that could not be listed before.
    for _ in range(2):
        if folder.exists():
            shutil.rmtree(folder, onerror=allow)
    if folder.exists():
        log.warning("folder could not be removed", folder=str(folder))


def measure_folder(folder: Path, limit: int) -> int:
    """The bytes that a folder takes on disk; stops counting above the limit. Files that end meanwhile are not counted."""
    total, pending = 0, [os.fspath(folder)]
    while pending and total <= limit:
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
    return total
