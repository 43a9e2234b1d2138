"""Blame: the commit that last changed each line of a file."""

import re
from dataclasses import dataclass, replace

from storage.git.merge import WALK_SECONDS
from storage.git.repository import Repository
from storage.git.subprocesses import git_command
from storage.git.trees import argument_of

MAX_RANGES = 20_000
"""Ranges of one file; a file with more raises BlameTooLarge."""
_MAX_OUTPUT_BYTES = 16 * 1024 * 1024

_HEAD = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64}) (\d+) (\d+) (\d+)")
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")
_ESCAPED = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


class BlameTooLarge(Exception):
    """The file has too many ranges, or its history takes too long to read."""


@dataclass(frozen=True, slots=True)
class LineRange:
    """Successive lines of a file that one commit changed last, the first line being 1.

    `path` is the path of the file in that commit. `previous_oid` and `previous_path` are the parent in which git has followed the file,
    and its path there; None if the commit created it.
    """

    start: int
    count: int
    oid: str
    path: str
    previous_oid: str | None = None
    previous_path: str | None = None


def blame(repository: Repository, commit: str, path: str) -> list[LineRange]:
    """Returns the ranges of the file `path` of a commit, in order, by a git process.

    Raises UnknownCommit, DamagedRepository, BlameTooLarge, GitCommandError if there is no such file.
    """
    repository.raw_commit(commit)
    arguments = ("blame", "--incremental", commit, "--", argument_of(repository, commit, path))
    output, is_complete = git_command.read_prefix(repository.path, *arguments, limit=_MAX_OUTPUT_BYTES, seconds=WALK_SECONDS)
    if not is_complete:
        raise BlameTooLarge
    found: list[LineRange] = []
    head: tuple[str, int, int] | None = None
    previous: tuple[str, str] | None = None
    for line in output.split(b"\n"):
        if head is None:
            if match := _HEAD.fullmatch(line):
                head, previous = (match[1].decode(), int(match[3]), int(match[4])), None
        elif line.startswith(b"previous "):
            oid, name = line[9:].split(b" ", 1)
            previous = oid.decode(), _decode_path(name)
        elif line.startswith(b"filename "):
            # The last line of each entry of the output.
            found.append(LineRange(head[1], head[2], head[0], _decode_path(line[9:]), *(previous or (None, None))))
            head = None
    found.sort(key=lambda each: each.start)
    merged: list[LineRange] = []
    for each in found:
        last = merged[-1] if merged else None
        if last is not None and (last.oid, last.path) == (each.oid, each.path):
            merged[-1] = replace(last, count=last.count + each.count)
        else:
            merged.append(each)
    if len(merged) > MAX_RANGES:
        raise BlameTooLarge
    return merged


def _decode_path(name: bytes) -> str:
    """Decodes a path as git prints it: in double quotes with escapes if it has special characters."""
    if name.startswith(b'"') and name.endswith(b'"'):
        name = _ESCAPE.sub(lambda match: bytes([int(match[1], 8)]) if len(match[1]) == 3 else _ESCAPED.get(match[1], match[1]), name[1:-1])
    return name.decode("utf-8", "replace")
