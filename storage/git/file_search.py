"""Searches in the files of a commit: by path, and in their text. Git processes read the files, within limits of time and output."""

import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from typing import cast

from storage.git.repository import Repository
from storage.git.subprocesses import git_command

SEARCH_SECONDS = 5.0
"""Maximum duration of one search; what was found until then is returned."""
MAX_LINE_LENGTH = 400
"""Characters of a line that are returned."""
MAX_MATCHES_PER_FILE = 20
_MAX_OUTPUT_BYTES = 2 * 1024 * 1024
_BLOCK_BYTES = 64 * 1024
_MAX_LINE_BYTES = 16 * 1024
"""Bytes of a line that are in memory at most, with the first occurrence of the string."""
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
"""Of a character in UTF-8, all but the first byte."""
_MAX_PATHS_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line of a file that contains the string. `text` has at most MAX_LINE_LENGTH characters, among them the first occurrence."""

    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class FoundPath:
    path: str


def search_text(repository: Repository, commit: str, text: str, limit: int) -> tuple[list[FoundLine], bool]:
    """Returns at most `limit` lines with `text`, ignoring case, by path, and whether these are all.

    At most MAX_MATCHES_PER_FILE lines of a file are returned. Binary files are not searched. Raises UnknownCommit, GitCommandError.
    """
    repository.raw_commit(commit)
    options = ("--no-color", "--full-name", "-I", "-i", "-n", "--column", "-z", "-F", "--threads=1")
    arguments = ("grep", *options, f"--max-count={MAX_MATCHES_PER_FILE + 1}", "-e", text, commit, "--")
    # In the locale C, git compares the case of ASCII letters alone, which is faster.
    locale = {} if text.isascii() else {"LC_ALL": "C.UTF-8"}
    found, in_file, bytes_left, is_complete = list[FoundLine](), Counter[bytes](), _MAX_OUTPUT_BYTES, True
    with git_command.start_reading(repository.path, *arguments, seconds=SEARCH_SECONDS, extra_environment=locale) as process:
        assert process.stdout is not None  # noqa: S101 - start_reading has a pipe
        for name, number, content in _read_rows(cast(BufferedReader, process.stdout)):
            bytes_left -= len(name) + len(content)
            if len(found) == limit or bytes_left < 0:
                return found, False
            if in_file[name] == MAX_MATCHES_PER_FILE:
                is_complete = False
                continue
            in_file[name] += 1
            found.append(FoundLine(name[len(commit) + 1 :].decode("utf-8", "replace"), number, _shorten(content, text)))
        code = process.wait()
    if code == -signal.SIGKILL:
        return found, False
    if code not in (0, 1):
        raise git_command.GitCommandError(f"git grep failed with code {code}")
    return found, is_complete


def _read_rows(stream: BufferedReader) -> Iterator[tuple[bytes, int, bytes]]:
    """Yields the commit with the path, the number, and the part of each line around its first match that `_MAX_LINE_BYTES` allow.

    A line may have the size of its file, as those of minified scripts do, and the name of a file may contain line breaks.
    """
    rest = b""
    while True:
        while len(fields := rest.split(b"\0", 3)) < 4:
            if not (block := stream.read1(_BLOCK_BYTES)):
                return
            rest += block
        name, number, column, rest = fields
        match = int(column) - 1
        start = 0 if match < _MAX_LINE_BYTES // 2 else match - MAX_LINE_LENGTH
        content, offset, end = b"", 0, -1
        while end < 0:
            end = rest.find(b"\n")
            part = rest if end < 0 else rest[:end]
            content += part[max(start - offset, 0) :][: _MAX_LINE_BYTES - len(content)]
            offset += len(part)
            rest = rest[end + 1 :] if end >= 0 else stream.read1(_BLOCK_BYTES)
            if end < 0 and not rest:
                return
        yield name, int(number), content.lstrip(_CONTINUATION_BYTES) if start else content


def _shorten(content: bytes, text: str) -> str:
    line = content.decode("utf-8", "replace").rstrip("\r")
    if len(line) <= MAX_LINE_LENGTH:
        return line
    at = max(line.lower().find(text.lower()) - MAX_LINE_LENGTH // 4, 0)
    return line[at : at + MAX_LINE_LENGTH]


def search_paths(repository: Repository, commit: str, text: str, limit: int) -> tuple[list[FoundPath], bool]:
    """Returns at most `limit` files whose path contains each word of `text`, ignoring case, and whether these are all.

    Files whose name contains the first word come first, then shorter paths. Raises UnknownCommit, GitCommandError.
    """
    repository.raw_commit(commit)
    output, is_complete = git_command.read_prefix(
        repository.path, "ls-tree", "-r", "-z", "--name-only", "--full-tree", commit, limit=_MAX_PATHS_BYTES, seconds=SEARCH_SECONDS
    )
    words = text.lower().split()
    paths = (name for name in output.decode("utf-8", "replace").split("\0")[:-1])
    found = [path for path in paths if all(word in path.lower() for word in words)]
    found.sort(key=lambda path: (_rank(path.lower(), words[0] if words else ""), len(path), path))
    return [FoundPath(path) for path in found[:limit]], is_complete and len(found) <= limit


def _rank(path: str, word: str) -> int:
    name = path.rpartition("/")[2]
    return 0 if name.startswith(word) else 1 if word in name else 2
