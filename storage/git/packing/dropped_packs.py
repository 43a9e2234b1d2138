"""Dropped packs: a collection of objects moves them out of the object store, and deletes them a day later if no ref needs them."""

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from storage.disk_sync import replace_file
from storage.git.packing import packs

DROPPED_SECONDS = 24 * 3600.0

_DROPPED = "dropped"
_DROPPED_VERSION = "dropped-version"
"""The file with the version of the refs since packs were last dropped."""


def has_any(path: Path) -> bool:
    """Whether the repository has dropped packs."""
    return (path / _DROPPED).is_dir()


def has_dropped(path: Path, version: int) -> bool:
    """Whether packs were dropped after the refs had this version."""
    try:
        return int((path / _DROPPED_VERSION).read_bytes()) > version
    except FileNotFoundError:
        return False


def drop(path: Path, names: Collection[str], moment: float, version: int | None = None) -> None:
    """Moves packs out of the object store, and deletes those that were moved a day ago, which no ref has needed since.

    `version` is that of the refs from now on, for `has_dropped`.
    """
    if names and version is not None:
        replace_file(path / _DROPPED_VERSION, b"%d" % version)
    dropped = path / _DROPPED
    if dropped.is_dir():
        for file in list(dropped.iterdir()):
            if file.stat().st_mtime <= moment - DROPPED_SECONDS:
                file.unlink()
        with contextlib.suppress(OSError):
            dropped.rmdir()
    for name in names:
        dropped.mkdir(exist_ok=True)
        # Indexes first: no pack may be found without its objects.
        for file in sorted(packs.folder_of(path).glob(f"{name}.*"), key=lambda file: file.suffix != ".idx"):
            target = file.rename(dropped / file.name)
            os.utime(target, (moment, moment))


def restore(path: Path) -> bool:
    """Returns dropped packs to the object store. Returns whether there were any."""
    try:
        files = sorted((path / _DROPPED).iterdir(), key=lambda file: file.suffix == ".idx")
    except FileNotFoundError:
        return False
    for file in files:
        file.rename(packs.folder_of(path) / file.name)
    return bool(files)
