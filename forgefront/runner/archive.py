"""Zips files of a build: those in its working folder that match patterns, and never one outside; and unzips such archives."""

import contextlib
import errno
import fnmatch
import os
import posixpath
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from lzma import LZMAError
from pathlib import Path, PurePosixPath

BLOCK_BYTES = 2**18
MAX_ENTRIES = 1_000_000
MAX_LINK_BYTES = 4096


class ArchiveRejected(Exception):
    """An archive that is damaged, or larger than allowed."""


class ArchiveInterrupted(Exception):
    """The work ended before its end, because `is_stopped` returned True."""


def write_archive(
    root: Path,
    patterns: Iterable[str],
    extra_names: Iterable[str],
    target: Path,
    *,
    keeps_links: bool = False,
    on_unreadable: Callable[[str], None] = lambda name: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> tuple[int, list[str]]:
    """Writes the zip; returns the number of files, and the patterns that matched none. `extra_names` are exact file names.

    Symbolic links, and files behind them, are left out; with `keeps_links`, links to something in the folder are entries. `on_unreadable`
    takes the names of files that cannot be read. `is_stopped` is called often. Raises ArchiveInterrupted, OSError if the zip cannot be
    written.
    """
    root = root.resolve()
    missing, names = [], set(extra_names)
    for pattern in patterns:
        found = find_matching(root, pattern, is_stopped)
        if not found:
            missing.append(pattern)
        names |= found
    count = 0
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for name in sorted(names):
            if is_stopped():
                raise ArchiveInterrupted
            if keeps_links and _is_link(root, name):
                count += _add_link(archive, root, name)
            else:
                count += _add_file(archive, root, name, on_unreadable, is_stopped)
    return count, missing


def list_files(root: Path) -> set[str]:
    """The names of all files and symbolic links below the folder, without git's own."""
    return find_matching(root.resolve(), ".")


def find_matching(root: Path, pattern: str, is_stopped: Callable[[], bool] = lambda: False) -> set[str]:
    """The files that a pattern matches below the folder; a folder matches everything in it. Git's own files are left out.

    Folders are matched part by part, each once, so that the time does not grow with the ways in which several `**` match a path. Raises
    ArchiveInterrupted.
    """
    parts = PurePosixPath(pattern).parts
    if not pattern.strip() or parts[:1] == ("/",) or any(part == ".." or ("**" in part and part != "**") for part in parts):
        return set()
    names = {""}
    for part in parts:
        names = {name for name in _match_part(root, names, part, is_stopped) if name != ".git"}
    folders = {name for name in names if _is_folder(root, name)}
    files = {name for name in names - folders if not _is_link(root, name)}
    return files | {name for name, is_folder in _walk(root, folders, is_stopped) if not is_folder}


def _match_part(root: Path, names: Iterable[str], part: str, is_stopped: Callable[[], bool]) -> Iterator[str]:
    """The names that one part of a pattern matches in the folders of these names."""
    if part == "**":
        folders = {name for name in names if _is_folder(root, name)}
        yield from folders
        yield from (name for name, is_folder in _walk(root, folders, is_stopped) if is_folder)
        return
    if not any(letter in part for letter in "*?["):
        yield from (name for folder in names if _is_folder(root, folder) and _mode_of(root, name := _join(folder, part)))
        return
    expression = re.compile(fnmatch.translate(part))
    for folder in names:
        for name, _ in _list_folder(root, folder, is_stopped):
            if expression.match(posixpath.basename(name)):
                yield name


def _walk(root: Path, folders: Iterable[str], is_stopped: Callable[[], bool]) -> Iterator[tuple[str, bool]]:
    """Everything below the folders, each once, and whether it is a folder; those among `folders` are left out."""
    pending, seen = list(folders), set(folders)
    while pending:
        for name, is_folder in _list_folder(root, pending.pop(), is_stopped):
            if name in seen or name == ".git":
                continue
            yield name, is_folder
            if is_folder:
                seen.add(name)
                pending.append(name)


def _list_folder(root: Path, folder: str, is_stopped: Callable[[], bool]) -> list[tuple[str, bool]]:
    """The names in a folder, relative to the root, and whether each is a folder; none if it cannot be listed or is a symbolic link."""
    if is_stopped():
        raise ArchiveInterrupted
    if not _is_folder(root, folder):
        return []
    try:
        with os.scandir(root / folder) as entries:
            return [(_join(folder, entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
    except OSError:
        return []


def _is_folder(root: Path, name: str) -> bool:
    return stat.S_ISDIR(_mode_of(root, name))


def _is_link(root: Path, name: str) -> bool:
    return stat.S_ISLNK(_mode_of(root, name))


def _mode_of(root: Path, name: str) -> int:
    """The kind and the permissions; 0 if there is no such file, or its path is too long."""
    try:
        return (root / name).lstat().st_mode
    except (OSError, ValueError):
        return 0


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _is_within(root: Path, path: Path) -> bool:
    """Whether no part of the path is a symbolic link or one of git's files."""
    if not path.is_relative_to(root) or path.relative_to(root).parts[:1] == (".git",):
        return False
    # Unlike Path.resolve, it accepts links that lead to themselves.
    return os.path.realpath(path) == os.fspath(path)


def _add_link(archive: zipfile.ZipFile, root: Path, name: str) -> int:
    """Adds a symbolic link to something in the folder."""
    path = root / name
    with contextlib.suppress(OSError, UnicodeEncodeError):
        target = os.fspath(path.readlink())
        if _is_within(root, path.parent) and is_inner_link(name, target):
            info = zipfile.ZipInfo(name)
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(info, target.encode())
            return 1
    return 0


def is_inner_link(name: str, target: str) -> bool:
    """Whether a link of this name, relative to the folder, leads to something in the folder other than git's files.

    >>> is_inner_link("bin/tool", "../lib/tool.js"), is_inner_link("bin/tool", "../../etc"), is_inner_link("bin/tool", "/etc")
    (True, False, False)
    """
    found = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    return bool(target) and not target.startswith("/") and "\0" not in target and found.split("/")[0] not in ("..", ".git")


def extract_archive(source: Path, root: Path, *, max_bytes: int, is_stopped: Callable[[], bool] = lambda: False) -> int:
    """Unzips files into a folder, and returns their number. Raises ArchiveRejected, ArchiveInterrupted, OSError.

    Existing files are replaced. An entry never leads through a symbolic link, out of the folder, or to git's files; such entries are left
    out. Links are created after all files.
    """
    count, remaining, links = 0, max_bytes, []
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with zipfile.ZipFile(source) as archive:
            entries = archive.infolist()
            if len(entries) > MAX_ENTRIES:
                raise ArchiveRejected(f"The archive has more than {MAX_ENTRIES} files.")
            for entry in entries:
                if is_stopped():
                    raise ArchiveInterrupted
                parts = entry.filename.split("/")
                kind = stat.S_IFMT(entry.external_attr >> 16)
                if entry.is_dir() or "\0" in entry.filename or parts[0] == ".git" or any(part in ("", ".", "..") for part in parts):
                    continue
                if kind == stat.S_IFLNK:
                    if entry.file_size <= MAX_LINK_BYTES:
                        links.append((entry.filename, archive.read(entry).decode("utf-8", "surrogateescape")))
                    continue
                if kind not in (0, stat.S_IFREG):
                    continue
                with _parent_folder(top, parts) as folder:
                    if folder is not None:
                        size = _extract_file(archive, entry, folder, parts[-1], remaining, is_stopped)
                        remaining -= size or 0
                        count += size is not None
        count += _create_links(top, links)
    except (zipfile.BadZipFile, zlib.error, LZMAError, NotImplementedError, EOFError, RuntimeError, ValueError) as error:
        raise ArchiveRejected(f"The archive is damaged: {error}.") from error
    finally:
        os.close(top)
    return count


def _create_links(top: int, links: list[tuple[str, str]]) -> int:
    """Creates symbolic links, (name, target), that stay in the folder, and returns their number. Raises OSError."""
    count = 0
    for name, target in links:
        with _parent_folder(top, name.split("/")) as folder:
            if folder is not None and is_inner_link(name, target):
                with contextlib.suppress(FileNotFoundError, IsADirectoryError, PermissionError):
                    os.unlink(name.split("/")[-1], dir_fd=folder)
                with contextlib.suppress(FileExistsError):
                    os.symlink(target, name.split("/")[-1], dir_fd=folder)
                    count += 1
    return count


@contextmanager
def _parent_folder(top: int, parts: list[str]) -> Iterator[int | None]:
    """Opens the folder of an entry, created if there is none; None if something else is in the way."""
    folder = os.dup(top)
    try:
        for part in parts[:-1]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=folder)
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
    except (NotADirectoryError, PermissionError):
        yield None
    except OSError as error:
        # ELOOP: a symbolic link.
        if error.errno not in (errno.ELOOP, errno.ENAMETOOLONG):
            raise
        yield None
    else:
        yield folder
    finally:
        os.close(folder)


def _extract_file(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: int, name: str, limit: int, is_stopped: Callable[[], bool]
) -> int | None:
    """Writes a file, and returns its size; None if a folder is in the way. Raises ArchiveRejected above the limit."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError):
        return None
    mode = ((entry.external_attr >> 16) & 0o777 or 0o644) | 0o600
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder)
    size = 0
    with os.fdopen(handle, "wb") as file, archive.open(entry) as contents:
        os.fchmod(handle, mode)
        while block := contents.read(BLOCK_BYTES):
            size += len(block)
            if size > limit:
                raise ArchiveRejected("The archive has more bytes than the limit.")
            if is_stopped():
                raise ArchiveInterrupted
            file.write(block)
    return size


def _add_file(archive: zipfile.ZipFile, root: Path, name: str, on_unreadable: Callable[[str], None], is_stopped: Callable[[], bool]) -> int:
    path = root / name
    try:
        if not _is_within(root, path):
            return 0
        # A link created meanwhile is not followed, and opening a pipe does not block.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ELOOP:
            on_unreadable(name)
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
                if is_stopped():
                    raise ArchiveInterrupted
                entry.write(block)
    return 1
