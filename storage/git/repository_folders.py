"""Folders of repositories: made as a whole or not at all, and synced to disk."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.disk_sync import sync_path


@contextmanager
def create_atomically(path: Path) -> Iterator[Path]:
    """Yields an empty folder beside `path`; at the end it is synced to disk and renamed to `path`.

    After an error or a crash `path` does not exist; a crash leaves a folder whose name starts with `.incoming-`. Raises
    FileExistsError if `path` exists.
    """
    if path.exists():
        raise FileExistsError(f"{path} exists")
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = path.parent / f".incoming-{path.name}-{secrets.token_hex(4)}"
    folder.mkdir()
    try:
        yield folder
        for parent, _, files in os.walk(folder, topdown=False):
            for name in files:
                sync_path(Path(parent, name))
            sync_path(Path(parent))
        move_into_place(folder, path)
    except OSError as error:
        if path.exists() and folder.exists():
            raise FileExistsError(f"{path} exists") from error
        raise
    finally:
        if folder.exists():
            shutil.rmtree(folder)


def move_into_place(folder: Path, path: Path) -> None:
    """Renames a folder to `path`, synced to disk when this returns."""
    folder.rename(path)
    sync_path(path.parent)


def sync_packs(path: Path) -> None:
    """Syncs the names of the packs of the repository at `path` to disk. Git syncs only their contents."""
    sync_path(path / "objects" / "pack")
