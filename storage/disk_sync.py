"""Files that survive a power failure (synced to the disk), or that no reader sees half written (replaced atomically)."""

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

NO_HARD_LINKS = frozenset((errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS))
"""How file systems without hard links refuse to create one."""


def sync_path(path: Path) -> None:
    """Syncs the content of a file, or the entries of a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, contents: bytes) -> None:
    """Replaces a file atomically (mode 0600), unless it has these contents; it is not synced. Raises OSError, and the old file stays."""
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == contents:
            return
    handle, name = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(contents)
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def create_file(path: Path) -> Iterator[BinaryIO]:
    """Writes a new file (mode 0600), which appears complete and synced at the end of the block.

    If the block raises, nothing is left. Raises FileExistsError if another file has appeared there, which stays; OSError. On a file system
    without hard links, such as FAT or one of FUSE, the file is empty for a moment before it is complete.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        try:
            path.hardlink_to(temporary)
        except OSError as error:
            if error.errno not in NO_HARD_LINKS:
                raise
            _replace_claimed(path, temporary)
        sync_path(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _replace_claimed(path: Path, temporary: Path) -> None:
    """Renames a file to a name that nobody has. Raises FileExistsError."""
    path.touch(mode=0o600, exist_ok=False)
    try:
        temporary.rename(path)
    except BaseException:
        path.unlink()
        raise
