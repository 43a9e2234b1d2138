"""Syncs files and folders to the disk, so that they survive a power failure."""

import os
from pathlib import Path


def sync_path(path: Path) -> None:
    """Syncs the content of a file, or the entries of a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
