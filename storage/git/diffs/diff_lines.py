"""Lines of diffs and files: finding one that a diff shows, following them from one version to a later one, replacing them."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pygit2

from storage.git import trees
from storage.git.diffs.diff import FileDiff
from storage.git.repository import DamagedRepository, Repository
from storage.git.subprocesses import git_command

EXCERPT_LINES = 8
"""Lines of an excerpt at most."""
MAX_LINE_CHARACTERS = 500
"""Characters of a line in an excerpt; a longer one is cut."""
MAX_FOLLOWED_BYTES = 5_000_000
"""In a file that is larger before or after, lines are not followed."""

_MAX_INLINE_BYTES = 256 * 1024  # a larger pair of files is compared by the git program, because libgit2 holds the GIL meanwhile
_MAX_HUNK_BYTES = 8_000_000
_COMPARE_SECONDS = 4.0
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_RAW_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


class PatchLine(NamedTuple):
    """A line of a unified diff: its sign (`+`, `-` or a space), its numbers, None on the side that lacks it, and its contents."""

    sign: str
    old: int | None
    new: int | None
    text: str


@dataclass(frozen=True, slots=True)
class LocatedLine:
    """A line that a diff shows: the paths of its file, and the lines up to it as a hunk of a unified diff."""

    old_path: str
    new_path: str
    excerpt: str


class ChangedRange(NamedTuple):
    """A hunk without context: `old_count` lines from the line `old_start` on were replaced by `new_count` lines."""

    old_start: int
    old_count: int
    new_count: int


def read_hunks(patch: str) -> Iterator[list[PatchLine]]:
    """Yields the lines of each hunk of a unified diff of one file, without marks such as `\\ No newline at end of file`."""
    hunk: list[PatchLine] | None = None
    old = new = 0
    for row in patch.removesuffix("\n").split("\n"):
        if head := _HUNK.match(row):
            if hunk:
                yield hunk
            hunk, old, new = [], int(head[1]), int(head[3])
        elif hunk is not None and row[:1] in ("+", "-", " "):
            sign, text = row[0], row[1:]
            hunk.append(PatchLine(sign, None if sign == "+" else old, None if sign == "-" else new, text))
            old += sign != "+"
            new += sign != "-"
    if hunk:
        yield hunk


def find_line(
    entries: Iterable[FileDiff], old_path: str | None, new_path: str | None, old_line: int | None, new_line: int | None
) -> LocatedLine | None:
    """The line of a diff with exactly these numbers; None if the diff does not show it.

    A path that is None is not compared. An added line has only `new_line`, a removed one only `old_line`, a line of context both.
    """
    if old_line is None and new_line is None:
        return None
    for entry in entries:
        if (old_path is None or entry.old_path == old_path) and (new_path is None or entry.new_path == new_path):
            for hunk in read_hunks(entry.diff):
                for index, line in enumerate(hunk):
                    if (line.old, line.new) == (old_line, new_line):
                        return LocatedLine(
                            entry.old_path, entry.new_path, _make_excerpt(hunk[max(index + 1 - EXCERPT_LINES, 0) : index + 1])
                        )
    return None


def _make_excerpt(lines: list[PatchLine]) -> str:
    ranges = []
    for sign, numbers in (("-", [line.old for line in lines]), ("+", [line.new for line in lines])):
        known = [number for number in numbers if number is not None]
        ranges.append(f"{sign}{known[0] if known else 0},{len(known)}")
    rows = [f"{line.sign}{_shorten(line.text)}\n" for line in lines]
    return f"@@ {' '.join(ranges)} @@\n{''.join(rows)}"


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_LINE_CHARACTERS else f"{text[:MAX_LINE_CHARACTERS]}…"


class LineSpan(NamedTuple):
    """Lines of a file: the numbers of the first and the last one."""

    first: int
    last: int


def replace_lines(data: bytes, lines: LineSpan, text: str) -> bytes | None:
    """Replaces lines of a file, in whose kind of line ends; an empty text removes them. None if the file has no such lines.

    >>> replace_lines(b"a\r\nb\r\nc", LineSpan(2, 3), "x\n")
    b'a\r\nx'
    """
    rows = [row + b"\n" for row in data.split(b"\n")]
    rows[-1] = rows[-1].removesuffix(b"\n")
    if not rows[-1]:
        rows.pop()
    if not 1 <= lines.first <= lines.last <= len(rows):
        return None
    old = rows[lines.first - 1 : lines.last]
    new = text.replace("\r\n", "\n").encode()
    if new and not new.endswith(b"\n"):
        new += b"\n"
    if all(row.endswith(b"\r\n") for row in old if row.endswith(b"\n")) and any(row.endswith(b"\r\n") for row in rows):
        new = new.replace(b"\n", b"\r\n")
    if not old[-1].endswith(b"\n"):
        new = new.removesuffix(b"\n").removesuffix(b"\r")
    return b"".join([*rows[: lines.first - 1], new, *rows[lines.last :]])


class LineFollower:
    """Follows lines of files from one commit to another. Files are compared once. Used by the repository's thread."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._changes: dict[tuple[str, str], list[ChangedRange] | None] = {}
        self._texts: dict[str, list[bytes]] = {}

    def follow(self, path: str, line: int, old: str, new: str) -> int | None:
        """The number that `line` of the file `path` in the commit `old` has in the commit `new`; None if it was changed or removed.

        Also None if the file was renamed, is too large, or a commit is no longer there. Raises DamagedRepository.
        """
        if old == new:
            return line
        try:
            before, after = (trees.find_blob(self._repository, commit, path) for commit in (old, new))
        except LookupError:
            return None
        if before is None or after is None:
            return None
        changes = [] if before[0] == after[0] else self._changed_ranges(before[0], after[0])
        return None if changes is None else follow_line(changes, line)

    def follow_range(self, path: str, lines: LineSpan, old: str, new: str) -> LineSpan | None:
        """Like `follow`, for lines that must still follow each other."""
        found = [self.follow(path, number, old, new) for number in range(lines.first, lines.last + 1)]
        first = found[0]
        return LineSpan(first, first + len(found) - 1) if first is not None and found == list(range(first, first + len(found))) else None

    def read(self, path: str, lines: LineSpan, commit: str) -> str | None:
        """The text of lines of a file; None if there are no such lines, if the file is too large, or the commit is no longer there."""
        try:
            entry = trees.find_blob(self._repository, commit, path)
        except LookupError:
            return None
        if entry is None or (trees.blob_size(self._repository, entry[0]) or 0) > MAX_FOLLOWED_BYTES:
            return None
        if entry[0] not in self._texts:
            self._texts[entry[0]] = trees.read_bytes(self._repository, entry[0]).split(b"\n")
        rows = self._texts[entry[0]][lines.first - 1 : lines.last]
        return trees.decode_text(b"\n".join(rows)) if len(rows) == lines.last - lines.first + 1 else None

    def _changed_ranges(self, before: str, after: str) -> list[ChangedRange] | None:
        if (before, after) not in self._changes:
            try:
                self._changes[before, after] = self._compare(before, after)
            except (pygit2.GitError, KeyError, ValueError) as error:
                raise DamagedRepository(f"{self._repository.path}: {before} and {after} cannot be compared: {error}") from error
        return self._changes[before, after]

    def _compare(self, before: str, after: str) -> list[ChangedRange] | None:
        handle = self._repository.handle
        sizes = [int(handle.odb.read_header(pygit2.Oid(hex=oid))[1]) for oid in (before, after)]
        if max(sizes) > MAX_FOLLOWED_BYTES:
            return None
        if sum(sizes) > _MAX_INLINE_BYTES:
            arguments = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--unified=0", "--end-of-options", before, after)
            output = git_command.read_output(self._repository.path, *arguments, limit=_MAX_HUNK_BYTES, seconds=_COMPARE_SECONDS)
            if output is None or len(output) == _MAX_HUNK_BYTES:
                return None
            found = [[int(number) if number is not None else 1 for number in hunk.groups()] for hunk in _RAW_HUNK.finditer(output)]
            if not found:
                # One of the files is binary, since their contents differ.
                return None
            return [ChangedRange(old_start, old_count, new_count) for old_start, old_count, _, new_count in found]
        old, new = handle[before], handle[after]
        if not isinstance(old, pygit2.Blob) or not isinstance(new, pygit2.Blob):
            return None
        patch = pygit2.Patch.create_from(old, new, context_lines=0)
        if patch.delta.is_binary:
            return None
        return [ChangedRange(hunk.old_start, hunk.old_lines, hunk.new_lines) for hunk in patch.hunks]


def follow_line(changes: Iterable[ChangedRange], line: int) -> int | None:
    """The number of a line after these changes, which are in order; None if it is one of those that were changed or removed.

    >>> follow_line([ChangedRange(2, 0, 3), ChangedRange(7, 1, 1)], 6)
    9
    """
    shift = 0
    for change in changes:
        # A hunk that only adds begins after its `old_start`.
        if change.old_count == 0:
            if line <= change.old_start:
                break
        elif line < change.old_start:
            break
        elif line < change.old_start + change.old_count:
            return None
        shift += change.new_count - change.old_count
    return line + shift
