"""Repacks repositories, so that they stay fast to read: each push adds a pack.

No object is deleted here, reachable or not (`object_collection` does that): a merge commit is written before its branch refers to it, and
pushes arrive during a repack. Packs are combined by size (git-repack, --geometric), so the cost depends on the size of the new packs, not
of the repository.
"""

import asyncio
import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path

from storage.git.subprocesses import background_command

MAX_PACKS = 30
"""A repository with more packs is repacked."""
MAX_LOOSE_OBJECTS = 27
"""A repository with more loose objects in one of their 256 folders is repacked; git's own threshold (gc.auto, 6,700 in total)."""
LEFTOVER_SECONDS = 2 * 24 * 3600.0
"""A partial pack is removed at this age, long after its writer has ended."""

_LOCK = "packing"


def repositories_to_repack(root: Path) -> list[Path]:
    """Returns the repositories under `root` that need repacking, those with the most packs first. Reads only directories."""
    if not root.is_dir():
        return []
    found = [(packs, path) for path in root.iterdir() if path.suffix == ".git" and (packs := _pack_count(path))]
    return [path for _, path in sorted(found, reverse=True)]


def _pack_count(path: Path) -> int:
    """Returns the number of packs; 0 if the repository needs no repacking."""
    packs = sum(name.endswith(".pack") for name in _names(path / "objects/pack"))
    loose = len(_names(path / "objects/17"))
    return max(packs, 1) if packs > MAX_PACKS or loose > MAX_LOOSE_OBJECTS else 0


def _names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


async def repack(path: Path) -> bool:
    """Repacks the repository. Returns False if another process is repacking it. Canceling the caller ends git.

    Raises GitCommandError, also after a time limit, and OSError if the repository was removed meanwhile or the disk is full.
    """
    with try_lock(path) as is_locked:
        if is_locked:
            await asyncio.to_thread(remove_partial_packs, path / "objects/pack")
            await background_command.run(path, "repack", "-d", "-l", "--quiet", "--geometric=2")
        return is_locked


@contextlib.contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Tries to lock the repository for repacking, and yields whether it succeeded. The system releases the lock of a dead process."""
    with (path / _LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def remove_partial_packs(folder: Path) -> None:
    """Removes partial packs that a killed process left."""
    cutoff = time.time() - LEFTOVER_SECONDS
    for name in _names(folder):
        if name.startswith(("tmp_", ".tmp-")):
            with contextlib.suppress(FileNotFoundError):
                if (folder / name).stat().st_mtime < cutoff:
                    (folder / name).unlink()
