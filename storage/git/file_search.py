"""Searches in the files of a commit: by path, and in their text. Git processes read the files, within limits of time and output."""

from dataclasses import dataclass

from storage.git.repository import Repository
from storage.git.subprocesses import git_command

SEARCH_SECONDS = 5.0
"""Maximum duration of one search; what was found until then is returned."""
MAX_LINE_LENGTH = 400
"""Characters of a line that are returned."""
MAX_MATCHES_PER_FILE = 20
_MAX_OUTPUT_BYTES = 2 * 1024 * 1024
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
    options = ("--no-color", "--full-name", "-I", "-i", "-n", "-z", "-F", "--threads=1", f"--max-count={MAX_MATCHES_PER_FILE}")
    output, is_complete = git_command.read_prefix(
        repository.path, "grep", *options, "-e", text, commit, "--", limit=_MAX_OUTPUT_BYTES, seconds=SEARCH_SECONDS, expected_codes=(0, 1)
    )
    rows = output.split(b"\n")
    # The last row is empty, or not complete.
    rows.pop()
    found = [_parse_match(row[len(commit) + 1 :], text) for row in rows[:limit] if row.count(b"\0") >= 2]
    return found, is_complete and len(rows) <= limit


def _parse_match(row: bytes, text: str) -> FoundLine:
    path, number, content = row.split(b"\0", 2)
    line = content.decode("utf-8", "replace").rstrip("\r")
    if len(line) > MAX_LINE_LENGTH:
        at = max(line.lower().find(text.lower()) - MAX_LINE_LENGTH // 4, 0)
        line = line[at : at + MAX_LINE_LENGTH]
    return FoundLine(path.decode("utf-8", "replace"), int(number), line)


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
