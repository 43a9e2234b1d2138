"""Folders of builds: creating, measuring and removing them, whatever scripts have left in them."""

import contextlib
import itertools
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

MAX_PATH_PIECE = 1000
"""Characters, which have up to four bytes, of a path that are opened at once; the system allows 4096 bytes."""
PATH_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OWNER_READS = stat.S_IRUSR | stat.S_IXUSR
MAX_MODE_CHANGES = 100
"""How often a folder is made readable that a program makes unreadable at the same time."""

T = TypeVar("T")

log = structlog.get_logger("runner")


class FolderUnreadable(Exception):
    """A program makes a folder unreadable again and again."""


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
    path = os.open(name, PATH_FLAGS, dir_fd=parent)
    try:
        with contextlib.suppress(OSError):
            Path(f"/proc/self/fd/{path}").chmod(stat.S_IRWXU)
        return os.open(f"/proc/self/fd/{path}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(path)


def measure_folder(folder: Path, limit: int) -> int:
    """The bytes that a folder takes on disk; stops counting above the limit. Files that end meanwhile are not counted.

    A file with several links counts once. Folders that their owner, the user of this process, made unreadable are readable while they
    are measured. Raises FolderUnreadable when a program makes one unreadable again and again. Unreadable folders of other users, as in
    containers, are not counted.
    """
    total, pending = 0, [_Pending("")]
    linked: set[tuple[int, int]] = set()
    try:
        while pending and total <= limit:
            current = pending.pop()
            with contextlib.suppress(OSError), _open_below(folder, current.path) as handle:
                if current.old_mode is not None:
                    _restore_mode(handle, current.old_mode)
                    continue
                mode = stat.S_IMODE(os.fstat(handle).st_mode)
                if mode & OWNER_READS != OWNER_READS:
                    # Folders that are added later are measured earlier.
                    pending.append(_Pending(current.path, mode))
                with _scan(handle) as entries:
                    for entry in entries:
                        with contextlib.suppress(OSError):
                            found = _retry_readable(handle, partial(entry.stat, follow_symlinks=False))
                            is_folder, file = stat.S_ISDIR(found.st_mode), (found.st_dev, found.st_ino)
                            if file in linked:
                                continue
                            if found.st_nlink > 1 and not is_folder:
                                linked.add(file)
                            total += found.st_blocks * 512
                            if is_folder:
                                pending.append(_Pending(f"{current.path}/{entry.name}".lstrip("/")))
    finally:
        for each in reversed(pending):
            if each.old_mode is not None:
                with contextlib.suppress(OSError, FolderUnreadable), _open_below(folder, each.path) as handle:
                    _restore_mode(handle, each.old_mode)
    return total


@dataclass(frozen=True, slots=True)
class _Pending:
    """A folder to measure, by its path below the first one; one with a mode has been measured with its contents, and gets the mode back."""

    path: str
    old_mode: int | None = None


def _retry_readable(folder: int, call: Callable[[], T]) -> T:
    """The result of a call that needs an open folder to be readable, which is made so if its owner is the user of this process.

    Raises FolderUnreadable, OSError.
    """
    for _ in range(MAX_MODE_CHANGES):
        try:
            return call()
        except PermissionError:
            found = os.fstat(folder)
            if found.st_uid != os.geteuid():
                raise
            Path(f"/proc/self/fd/{folder}").chmod(stat.S_IMODE(found.st_mode) | OWNER_READS)
    raise FolderUnreadable


def _restore_mode(folder: int, mode: int) -> None:
    """Sets the mode that an open folder had before it was made readable, unless it was changed meanwhile. Raises OSError."""
    if stat.S_IMODE(os.fstat(folder).st_mode) == mode | OWNER_READS:
        Path(f"/proc/self/fd/{folder}").chmod(mode)


@contextlib.contextmanager
def _scan(folder: int) -> Iterator[Iterator[os.DirEntry[str]]]:
    """The entries of a folder that was opened with O_PATH. Raises FolderUnreadable, OSError."""
    handle = _retry_readable(folder, partial(os.open, f"/proc/self/fd/{folder}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    try:
        with os.scandir(handle) as entries:
            yield entries
    finally:
        os.close(handle)


@contextlib.contextmanager
def _open_below(top: Path, path: str) -> Iterator[int]:
    """Opens a folder with O_PATH, by its path below `top`, which may be longer than the system allows. Folders on the way are made
    readable. Raises FolderUnreadable, OSError."""
    try:
        handle = _open_pieces(top, _split_path(path), _open_path)
    except PermissionError:
        handle = _open_pieces(top, path.split("/"), lambda name, outer: _retry_readable(outer, partial(_open_path, name, outer)))
    try:
        yield handle
    finally:
        os.close(handle)


def _open_pieces(top: Path, pieces: Iterable[str], open_piece: Callable[[str, int], int]) -> int:
    """Opens a folder below `top`, by the pieces of its path. Raises what `open_piece` raises."""
    handle = os.open(top, PATH_FLAGS)
    try:
        for piece in filter(None, pieces):
            outer, handle = handle, open_piece(piece, handle)
            os.close(outer)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _open_path(path: str, outer: int) -> int:
    """Opens a folder by its path below an open one. Raises OSError."""
    return os.open(path, PATH_FLAGS, dir_fd=outer)


def _split_path(path: str) -> Iterator[str]:
    """The pieces of a relative path, each short enough for the system."""
    while len(path) > MAX_PATH_PIECE:
        end = path.rindex("/", 0, MAX_PATH_PIECE)
        yield path[:end]
        path = path[end + 1 :]
    yield path
