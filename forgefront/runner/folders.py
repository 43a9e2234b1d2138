"""Folders of builds: creating, measuring and removing them, whatever scripts have left in them."""

import contextlib
import itertools
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

import structlog

MAX_PATH_PIECE = 1000
"""Characters, which have up to four bytes, of a path that are opened at once; the system allows 4096 bytes."""

log = structlog.get_logger("runner")


def remove_folder(folder: Path) -> None:
    """Removes a folder with its contents, including read-only files, whatever its depth and the length of its paths."""
    try:
        top = _open_folder(os.fspath(folder))
        try:
            _remove_contents(top)
        finally:
            os.close(top)
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("folder could not be removed", folder=str(folder), why=error.strerror)


def _remove_contents(top: int) -> None:
    """Removes what is in an open folder, except what cannot be removed.

    The folders of a folder are moved to the top before it is removed: neither the stack nor open files grow with the depth.
    """
    moved, is_changed = itertools.count(), True
    while is_changed:
        is_changed = False
        for name, is_folder in _list_entries(top):
            with contextlib.suppress(OSError):
                if not is_folder:
                    os.unlink(name, dir_fd=top)
                    is_changed = True
                    continue
                inner = _open_folder(name, top)
                try:
                    is_changed = _remove_files(inner, top, moved) or is_changed
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
                is_changed = True


def _remove_files(folder: int, top: int, moved: Iterator[int]) -> bool:
    """Removes the files of an open folder, and moves its folders to the top; returns whether any was moved."""
    has_moved = False
    for name, is_folder in _list_entries(folder):
        with contextlib.suppress(OSError):
            if is_folder:
                # A folder that cannot be written cannot be moved.
                os.close(_open_folder(name, folder))
                os.rename(name, f".removed-{secrets.token_hex(4)}-{next(moved)}", src_dir_fd=folder, dst_dir_fd=top)
                has_moved = True
            else:
                os.unlink(name, dir_fd=folder)
    return has_moved


def _list_entries(folder: int) -> list[tuple[str, bool]]:
    """The names in an open folder, and whether each is a folder. Raises OSError."""
    with os.scandir(folder) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]


def _open_folder(name: str, parent: int | None = None) -> int:
    """Opens a folder, not through a symbolic link, after it was made readable and writable. Raises OSError."""
    path = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        with contextlib.suppress(OSError):
            Path(f"/proc/self/fd/{path}").chmod(stat.S_IRWXU)
        return os.open(f"/proc/self/fd/{path}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(path)


def measure_folder(folder: Path, limit: int) -> int:
    """The bytes that a folder takes on disk; stops counting above the limit. Files that end meanwhile are not counted."""
    total, pending = 0, [os.fspath(folder)]
    while pending and total <= limit:
        path = pending.pop()
        with contextlib.suppress(OSError), _open_long_path(path) as handle, os.scandir(handle) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(f"{path}/{entry.name}")
    return total


@contextlib.contextmanager
def _open_long_path(path: str) -> Iterator[int]:
    """Opens a folder whose path may be longer than the system allows, piece by piece. Raises OSError."""
    handle, position = -1, 0
    try:
        while position < len(path):
            end = len(path) if len(path) - position <= MAX_PATH_PIECE else path.rindex("/", position + 1, position + MAX_PATH_PIECE)
            piece = path[position:end] if position == 0 else path[position:end].lstrip("/")
            outer = handle
            handle = os.open(piece, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=outer if outer >= 0 else None)
            if outer >= 0:
                os.close(outer)
            position = end
        yield handle
    finally:
        if handle >= 0:
            os.close(handle)
