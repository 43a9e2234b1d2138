"""Zips the artifacts of a build: the files in its working folder that match its patterns, and never one outside."""

import os
import stat
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

BLOCK_BYTES = 2**18


def write_archive(root: Path, patterns: Iterable[str], extra_names: Iterable[str], target: Path) -> tuple[int, list[str]]:
    """Writes the zip; returns the number of files, and the patterns that matched none. `extra_names` are exact file names.

    Symbolic links, and files behind them, are left out.
    """
    root = root.resolve()
    missing, names = [], set(extra_names)
    for pattern in patterns:
        found = set(find_matching(root, pattern))
        if not found:
            missing.append(pattern)
        names |= found
    count = 0
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for name in sorted(names):
            count += _add_file(archive, root, name)
    return count, missing


def find_matching(root: Path, pattern: str) -> Iterator[str]:
    """The files that a pattern matches below the folder; a folder matches everything in it. Git's own files are left out."""
    parts = PurePosixPath(pattern).parts
    if not pattern.strip() or parts[:1] == ("/",) or ".." in parts:
        return
    try:
        found = list(root.glob("/".join(parts))) if parts else [root]
    except (ValueError, NotImplementedError, OSError):
        return
    for path in found:
        if not _is_within(root, path):
            continue
        if path.is_dir():
            for folder, folders, files in os.walk(path):
                folders[:] = [each for each in folders if not (folder == str(root) and each == ".git")]
                yield from (str((Path(folder) / file).relative_to(root)) for file in files)
        else:
            yield str(path.relative_to(root))


def _is_within(root: Path, path: Path) -> bool:
    """Whether no part of the path is a symbolic link or one of git's files."""
    if not path.is_relative_to(root) or path.relative_to(root).parts[:1] == (".git",):
        return False
    return path.resolve() == path


def _add_file(archive: zipfile.ZipFile, root: Path, name: str) -> int:
    path = root / name
    if not _is_within(root, path):
        return 0
    try:
        # A link created meanwhile is not followed, and opening a pipe does not block.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return 0
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return 0
        try:
            name.encode()
        except UnicodeEncodeError:
            name = os.fsencode(name).decode("utf-8", "replace")
        info = zipfile.ZipInfo.from_file(path, name, strict_timestamps=False)
        info.compress_type = zipfile.ZIP_DEFLATED
        with archive.open(info, "w", force_zip64=True) as entry:
            while block := file.read(BLOCK_BYTES):
                entry.write(block)
    return 1
