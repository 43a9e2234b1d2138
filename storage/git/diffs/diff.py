"""Diffs of commits, file by file, and the lines of a diff that can be commented on."""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import NamedTuple

import pygit2
from pygit2.enums import DiffFind, DiffOption, FileMode

from storage.git.diffs.diff_workers import WORKERS, DiffFailed
from storage.git.repository import DamagedRepository, Repository
from storage.git.subprocesses import git_command
from storage.git.tree_objects import canonical_mode

MAX_DIFF_BYTES = 5_000_000
"""Maximum of bytes of UTF-8 of all entries of one diff, including paths and fields."""

MAX_FILE_BYTES = 5_000_000
"""A file that is larger before or after the change, in bytes, is not read."""

MAX_READ_BYTES = 64_000_000
"""Bytes of file contents that are read for one diff."""

MAX_DIFF_SECONDS = 8.0
"""After this time the remaining files of a diff are listed without their patches."""

CUT_MARK = "\\ Diff cut: "
"""Prefix of the line that replaces omitted parts. Like git's `\\ No newline at end of file`, it is not a line of a file."""

DIFF_TOO_LARGE = f"{CUT_MARK}the changes are larger than 5 MB in all\n"
FILE_TOO_LARGE = f"{CUT_MARK}the file is larger than 5 MB\n"
DIFF_TOO_SLOW = f"{CUT_MARK}comparing the files takes too long\n"

_ENTRY_BYTES = 250  # bytes of an entry's field names, modes, flags and cut mark
_MAX_INLINE_PAIR_BYTES = 256 * 1024  # a larger pair of files (sum of both sides) is compared by the git program
_MAX_PAIR_OUTPUT_BYTES = 3 * MAX_FILE_BYTES
_MAX_RENAME_PAIRS = 40_000
_MAX_RENAME_BYTES = 8_000_000
_MAX_RENAME_SOURCES = 2_000
_MAX_INLINE_FILES = 100
_MAX_INLINE_BYTES = 1_000_000
_MAX_INLINE_TREE_BYTES = 256 * 1024
_PROCESS_SECONDS = 30.0
_TREE_ENTRY = re.compile(rb"([0-7]+) ([^\0]+)\0(.{20})", re.DOTALL)
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)")
_ESCAPES = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


class FileDiff(NamedTuple):
    """One changed file (api-v3.md, Diff entry; docs/wire-facts.md 7).

    `diff` begins with the `--- ` line, or is `Binary files a/… and b/… differ`, or is empty (a pure rename, a change of
    mode, an empty file). Modes are octal ("100644"); "0" is `a_mode` of an added and `b_mode` of a deleted file. `too_large`:
    the patch was truncated or omitted, and its last line, which starts with CUT_MARK, gives the reason; `additions` and
    `deletions` then count the compared part (0 if nothing was compared).
    """

    diff: str
    old_path: str
    new_path: str
    a_mode: str | None
    b_mode: str
    new_file: bool
    renamed_file: bool
    deleted_file: bool
    additions: int = 0
    deletions: int = 0
    too_large: bool = False


def diff_of_commit(repository: Repository, oid: str) -> list[FileDiff]:
    """Returns the diff of the commit `oid` (a full id) and its first parent, or the empty tree for a root commit.

    Renames are detected (50 % similarity, as in git; only exact renames among very many or large files). Size and time are limited by
    the MAX_ constants of this module. Raises UnknownCommit, DamagedRepository.
    """
    _, parents = repository.time_and_parents(oid)
    return diff_between(repository, parents[0] if parents else None, oid)


def diff_between(repository: Repository, old: str | None, oid: str) -> list[FileDiff]:
    """Returns the diff from the commit `old` (a full id; None: the empty tree) to the commit `oid`, limited as `diff_of_commit`.

    libgit2 holds the GIL while it compares trees and files, so a diff that is not small is computed in a separate process, where it does
    not block other threads. The cache of the repository, if it has one, keeps those that were not cut for lack of time.
    """
    cache = repository.history_cache
    cached = cache.get_diff(repository, old, oid) if cache is not None else None
    if cached is not None and all(map(repository.has_commit, filter(None, (old, oid)))):
        return list(cached)
    found = read_diff(repository, old, oid) if is_small(repository, old, oid) else _diff_in_process(repository, old, oid)
    if cache is not None and not any(entry.diff.endswith(DIFF_TOO_SLOW) for entry in found if entry.too_large):
        cache.put_diff(repository, old, oid, tuple(found))
    return found


def read_diff(repository: Repository, old: str | None, oid: str) -> list[FileDiff]:
    """As `diff_between`, but always in this process."""
    try:
        tree = _tree(repository, oid)
        if old is not None:
            diff = _tree(repository, old).diff_to_tree(tree, DiffOption.INDENT_HEURISTIC)
        else:
            diff = tree.diff_to_tree(flags=DiffOption.INDENT_HEURISTIC, swap=True)
        _find_renames(repository, diff)
        return _DiffReader(repository, diff).entries()
    except (pygit2.GitError, LookupError, ValueError, OSError) as error:
        raise DamagedRepository(f"{repository.path}: the diff of {oid} cannot be read: {error}") from error


def is_small(repository: Repository, old: str | None, oid: str) -> bool:
    """Whether at most _MAX_INLINE_FILES files with _MAX_INLINE_BYTES (sum of both sides) differ. Stops as soon as a limit is exceeded."""
    handle = repository.handle
    header = handle.odb.read_header
    try:
        pending: list[tuple[str | None, str | None]] = [(repository.tree_of(old) if old else None, repository.tree_of(oid))]
        files, bytes_left = 0, _MAX_INLINE_BYTES
        while pending:
            pair = pending.pop()
            # Checked before reading: unpacking and parsing a large tree holds the GIL for seconds.
            if any(each is not None and header(each)[1] > _MAX_INLINE_TREE_BYTES for each in pair):
                return False
            sides = [dict(read_tree_entries(handle[each].read_raw())) if each is not None else {} for each in pair]
            for name in {name for name, _ in sides[0].items() ^ sides[1].items()}:
                found = [side.get(name, (b"", "")) for side in sides]
                folders = [each if mode == b"40000" else None for mode, each in found]
                if any(folders):
                    pending.append((folders[0], folders[1]))
                bytes_left -= sum(header(each)[1] for mode, each in found if mode not in (b"", b"40000", b"160000"))
                files += None in folders
                if files + len(pending) > _MAX_INLINE_FILES or bytes_left < 0:
                    return False
        return True
    except (pygit2.GitError, LookupError, ValueError, OSError) as error:
        raise DamagedRepository(f"{repository.path}: the diff of {oid} cannot be read: {error}") from error


def read_tree_entries(raw: bytes) -> Iterator[tuple[bytes, tuple[bytes, str]]]:
    """Yields (name, (mode, id)) of each entry of a tree object. The modes are those of `canonical_mode`."""
    for mode, name, oid in _TREE_ENTRY.findall(raw):
        yield name, (canonical_mode(mode), oid.hex())


def _diff_in_process(repository: Repository, old: str | None, oid: str) -> list[FileDiff]:
    """Computes the diff in another process, which is killed after _PROCESS_SECONDS. Raises DamagedRepository."""
    try:
        return list(map(FileDiff._make, WORKERS.compute(repository.path, oid, old, seconds=_PROCESS_SECONDS)))
    except DiffFailed as error:
        raise DamagedRepository(f"{repository.path}: the diff of {oid} cannot be read: {error}") from error


def has_line(entries: Iterable[FileDiff], path: str, line: int, line_type: str) -> bool:
    """Whether `line` of the file `path` can be commented on (docs/wire-facts.md 7).

    The file is the entry whose new path is `path`. `line` is the position in the *new* file, both for `line_type` "new" (an added
    line) and for "old" (a removed line: the position of the next line of the new file). Context lines never match.
    """
    sign = {"new": "+", "old": "-"}.get(line_type)
    if sign is None:
        return False
    return any(_patch_has_line(entry.diff, line, sign) for entry in entries if entry.new_path == path)


def _patch_has_line(patch: str, line: int, sign: str) -> bool:
    position: int | None = None
    for row in patch.split("\n"):
        if hunk := _HUNK.match(row):
            position = int(hunk[1])
        elif position is not None:
            if position == line and row.startswith(sign):
                return True
            if row.startswith(("+", " ")):
                position += 1
    return False


_LINK_MODES = (int(FileMode.LINK), int(FileMode.COMMIT))
_MODES_WITHOUT_BLOB = (int(FileMode.UNREADABLE), int(FileMode.COMMIT))


class _DiffReader:
    """Reads the patches of one diff within its limits."""

    def __init__(self, repository: Repository, diff: pygit2.Diff) -> None:
        self._repository = repository
        self._objects = repository.handle.odb
        self._diff = diff
        self._deadline = monotonic() + MAX_DIFF_SECONDS
        self._read_bytes_left = MAX_READ_BYTES
        self._output_bytes_left = MAX_DIFF_BYTES

    def entries(self) -> list[FileDiff]:
        listed = list[_ListedChange]()
        count = len(self._diff)
        for index, delta in enumerate(self._diff.deltas):
            entry, old, new = _ChangedSide.pair_of(delta)
            if old == new:
                # libgit2 compares the modes as they are written.
                count -= 1
                continue
            cost = _ENTRY_BYTES + _utf8_size(entry.old_path) + _utf8_size(entry.new_path)
            if cost > self._output_bytes_left:
                break
            self._output_bytes_left -= cost
            listed.append((index, entry, old, new))
        count -= _pair_renamed_links(listed)
        # libgit2 does not define the order of the two entries of a type change (a file becomes a symlink); git deletes first.
        listed.sort(key=lambda row: (row[3].raw_path, row[1].new_file))
        found = [self._read_patch(*row) for row in listed]
        if found and len(found) < count:
            mark = f"{CUT_MARK}{count - len(found)} more files have changed\n"
            found[-1] = found[-1]._replace(diff=mark, too_large=True)
        return found

    def _read_patch(self, index: int, entry: FileDiff, old: "_ChangedSide", new: "_ChangedSide") -> FileDiff:
        if old.oid == new.oid:
            return entry
        sizes = self._blob_size(old), self._blob_size(new)
        if max(sizes) > MAX_FILE_BYTES:
            return entry._replace(diff=FILE_TOO_LARGE, too_large=True)
        self._read_bytes_left -= sum(sizes)
        if self._read_bytes_left < 0 or self._output_bytes_left <= 0:
            return entry._replace(diff=DIFF_TOO_LARGE, too_large=True)
        if monotonic() > self._deadline:
            return entry._replace(diff=DIFF_TOO_SLOW, too_large=True)
        if min(sizes) and sum(sizes) > _MAX_INLINE_PAIR_BYTES:
            raw = self._diff_with_git(old, new)
            if raw is None:
                return entry._replace(diff=DIFF_TOO_SLOW, too_large=True)
            body = raw.partition(b"\n@@ ")[2]
            additions, deletions = body.count(b"\n+"), body.count(b"\n-")
        else:
            patch = self._diff[index]
            assert patch is not None  # noqa: S101 - only an unchanged file has none
            data = patch.data
            start = data.find(b"\n--- ")
            if start < 0:
                start = data.find(b"\nBinary files ")
            raw = data[start + 1 :] if start >= 0 else b""
            if raw.startswith(b"---") and b"\n@@ " not in raw:  # an empty file, for which git prints no patch
                raw = b""
            _, additions, deletions = patch.line_stats
        shown, is_cut = self._truncate(raw.decode("utf-8", "replace"))
        paths_and_modes = entry.old_path, entry.new_path, entry.a_mode, entry.b_mode
        return FileDiff(
            shown, *paths_and_modes, entry.new_file, entry.renamed_file, entry.deleted_file, additions, deletions, too_large=is_cut
        )

    def _blob_size(self, side: "_ChangedSide") -> int:
        if side.mode in _MODES_WITHOUT_BLOB:  # absent, or a submodule's commit, which another repository has
            return 0
        return int(self._objects.read_header(side.oid)[1])

    def _diff_with_git(self, old: "_ChangedSide", new: "_ChangedSide") -> bytes | None:
        """Computes the patch of two large files by the git program.

        libgit2 holds the GIL while it compares, which takes seconds for adversarial contents of a few megabytes.
        """
        output = git_command.read_output(
            self._repository.path,
            *("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--unified=3"),
            *("--end-of-options", str(old.oid), str(new.oid)),
            limit=_MAX_PAIR_OUTPUT_BYTES,
            seconds=max(self._deadline - monotonic(), 0.1),
        )
        if output is None:
            return None
        old_name, new_name = _quote_path("a/", old.raw_path), _quote_path("b/", new.raw_path)
        hunks = output.find(b"\n@@ ")
        if hunks < 0:
            return f"Binary files {old_name} and {new_name} differ\n".encode()
        return f"--- {old_name}\n+++ {new_name}".encode() + output[hunks:]

    def _truncate(self, patch: str) -> tuple[str, bool]:
        """Truncates a patch to the whole lines that fit into the diff. Returns it and whether lines are missing."""
        size = _utf8_size(patch)
        if size <= self._output_bytes_left:
            self._output_bytes_left -= size
            return patch, False
        beginning = patch.encode()[: self._output_bytes_left].decode("utf-8", "ignore")
        self._output_bytes_left = 0
        return beginning[: beginning.rfind("\n") + 1] + DIFF_TOO_LARGE, True


class _ChangedSide(NamedTuple):
    """A file before or after the change. Its fields are read once, since libgit2 makes a new object for each access."""

    raw_path: bytes
    oid: pygit2.Oid
    mode: int

    @classmethod
    def pair_of(cls, delta: pygit2.DiffDelta) -> "tuple[FileDiff, _ChangedSide, _ChangedSide]":
        """The entry without its patch, and both sides."""
        before, after, status = delta.old_file, delta.new_file, delta.status_char()
        old = cls(before.raw_path, before.id, _canonical_bits(before.mode))
        new = cls(after.raw_path, after.id, _canonical_bits(after.mode))
        old_path = new_path = old.raw_path.decode("utf-8", "replace")
        if new.raw_path != old.raw_path:
            new_path = new.raw_path.decode("utf-8", "replace")
        modes = f"{old.mode:o}", f"{new.mode:o}"
        return FileDiff("", old_path, new_path, *modes, status == "A", status == "R", status == "D"), old, new


_ListedChange = tuple[int, FileDiff, _ChangedSide, _ChangedSide]
"""The position in the diff, the entry without its patch, and both sides."""


def _pair_renamed_links(listed: list[_ListedChange]) -> int:
    """Makes one entry of the removed and the added one of a renamed symbolic link or submodule, as git does, and returns how many.

    libgit2 detects renames of files alone.
    """
    # A change of type, as from a file to a link, has both entries at its path.
    paths = Counter(new.raw_path for _, _, _, new in listed)
    # By their object, and by their object and name: a source with the name of the target is preferred.
    sources: dict[tuple[object, ...], deque[_ListedChange]] = defaultdict(deque)
    for change in listed:
        _, entry, old, _ = change
        if entry.deleted_file and old.mode in _LINK_MODES and paths[old.raw_path] == 1:
            sources[old.mode, old.oid].append(change)
            sources[old.mode, old.oid, _name_of(old)].append(change)
    paired = set[int]()
    for at, (index, entry, _, new) in enumerate(listed if sources else ()):
        if not entry.new_file or paths[new.raw_path] > 1:
            continue
        for queue in (sources.get((new.mode, new.oid, _name_of(new))), sources.get((new.mode, new.oid))):
            while queue and queue[0][0] in paired:
                queue.popleft()
            if queue:
                source = queue.popleft()
                paired.add(source[0])
                mode = f"{new.mode:o}"
                listed[at] = index, FileDiff("", source[1].old_path, entry.new_path, mode, mode, False, True, False), source[2], new
                break
    if paired:
        listed[:] = [each for each in listed if each[0] not in paired]
    return len(paired)


def _name_of(side: _ChangedSide) -> bytes:
    return side.raw_path.rpartition(b"/")[2]


def _canonical_bits(mode: int) -> int:
    return int(canonical_mode(b"%o" % mode), 8) if mode else 0


def _tree(repository: Repository, oid: str) -> pygit2.Tree:
    found = repository.handle[repository.tree_of(oid)]
    if not isinstance(found, pygit2.Tree):
        raise DamagedRepository(f"{repository.path}: the tree of {oid} is not a tree object")
    return found


def _find_renames(repository: Repository, diff: pygit2.Diff) -> None:
    """Detects renames among deleted and added files, in bounded time.

    libgit2 reads all candidates completely and compares every pair; so similarity is computed only for limited numbers and sizes of
    candidates, and exact renames are detected otherwise.
    """
    header = repository.handle.odb.read_header
    counts = {"D": 0, "A": 0}
    size = 0
    for delta in diff.deltas:
        status = delta.status_char()
        if status not in counts:
            continue
        side = delta.old_file if status == "D" else delta.new_file
        if side.mode != FileMode.COMMIT:
            counts[status] += 1
            if size <= _MAX_RENAME_BYTES:
                size += header(side.id)[1]
    is_exact_only = counts["D"] * counts["A"] > _MAX_RENAME_PAIRS or size > _MAX_RENAME_BYTES
    if all(counts.values()):
        exact = DiffFind.FIND_EXACT_MATCH_ONLY if is_exact_only else DiffFind.FIND_BY_CONFIG
        diff.find_similar(DiffFind.FIND_RENAMES | exact, rename_limit=_MAX_RENAME_SOURCES)


def _quote_path(prefix: str, path: bytes) -> str:
    """Quotes a file name as git does in a diff: `b"na\\xc3\\xafve"` becomes `"a/na\\303\\257ve"`, in quotation marks."""
    if all(32 <= byte < 127 and byte not in (34, 92) for byte in path):
        return prefix + path.decode()
    inner = "".join(_ESCAPES.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in path)
    return f'"{prefix}{inner}"'


def _utf8_size(string: str) -> int:
    return len(string) if string.isascii() else len(string.encode())
