"""Reads the commits that are reachable from branch heads but not indexed yet.

Two git processes, connected by a pipe, walk and read the commits; only one chunk is in memory, whatever the length of the history. A short
chain without merges, which is what most pushes add, and a short history can be read without them. Objects that cannot be read raise
DamagedRepository or GitCommandError.
"""

import contextlib
import subprocess
import tempfile
from collections.abc import Collection, Generator, Iterator, Sequence
from heapq import heappop, heappush
from typing import IO

from storage.git.commits import GitCommit, parse_commit, parse_time_and_parents
from storage.git.history.short_histories import find_range
from storage.git.refs.ref_names import FULL_ID
from storage.git.repository import DamagedRepository, Repository, UnknownCommit
from storage.git.subprocesses import git_command

MAX_CHUNK_COMMITS = 1_000
"""Maximum of commits in one chunk."""
MAX_CHUNK_BYTES = 8 * 1024 * 1024
"""A chunk also ends with the commit that reaches this size."""
MAX_COMMIT_BYTES = 1024 * 1024
"""Bytes of a commit that are read; the rest is skipped."""
COUNT_SECONDS = 10.0
MAX_CHAIN_COMMITS = 100
MAX_CHAIN_BYTES = 1024 * 1024
"""Limits of a chain or a history that is read without a process, in the caller's thread."""
MAX_EXAMINED_COMMITS = 1_000
"""Commits that are read to see whether one is reachable from others, which takes some milliseconds."""

_BLOCK_BYTES = 64 * 1024


def walk_new_commits(repository: Repository, tips: Collection[str], known: Collection[str]) -> Generator[list[GitCommit], None, None]:
    """Yields the commits reachable from `tips` but not from `known`, in chunks, newest first in the order of git log.

    Known ids that are not in the repository are ignored. The iterator may be continued in another thread; closing it ends the processes.
    """
    with contextlib.ExitStack() as stack:
        stderr = stack.enter_context(tempfile.TemporaryFile())
        walk = stack.enter_context(_start_process(repository, stderr, "rev-list", "--parents", "--ignore-missing", "--stdin"))
        assert walk.stdin is not None  # noqa: S101 - PIPE in _start_process
        reading = "cat-file", "--buffer", "--batch=%(objectname) %(objecttype) %(objectsize) %(rest)"
        read = stack.enter_context(_start_process(repository, stderr, *reading, stdin=walk.stdout))
        assert read.stdout is not None  # noqa: S101 - PIPE in _start_process
        with contextlib.suppress(BrokenPipeError):
            walk.stdin.write(_rev_list_input(tips, known))
        with contextlib.suppress(BrokenPipeError):
            walk.stdin.close()
        chunk: list[GitCommit] = []
        size = 0
        while head := read.stdout.readline():
            raw, commit = _read_commit(repository, head, read.stdout)
            chunk.append(commit)
            size += raw
            if len(chunk) == MAX_CHUNK_COMMITS or size >= MAX_CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
        # To the reader a failed walk looks like the end of the history; only the exit code shows the failure.
        if walk.wait() or read.wait():
            stderr.seek(0)
            raise git_command.failure_of(stderr.read(_BLOCK_BYTES))
        if chunk:
            yield chunk


def raw_chain(repository: Repository, tip: str, known: Collection[str]) -> list[tuple[str, bytes]] | None:
    """Returns (id, bytes) from `tip` to the first known commit, or to the first that has not one parent, newest first, without a process.

    They are at most MAX_CHAIN_COMMITS and one, which may not be read; None if commits are missing or large.
    """
    chain, oid, size = list[tuple[str, bytes]](), tip, 0
    while oid not in known and len(chain) < MAX_CHAIN_COMMITS:
        try:
            raw = repository.raw_commit(oid)
        except UnknownCommit:
            return None
        size += len(raw)
        if size > MAX_CHAIN_BYTES:
            return None
        chain.append((oid, raw))
        parents = parse_time_and_parents(raw)[1]
        if len(parents) != 1:
            return chain
        oid = parents[0]
    return [*chain, (oid, b"")]


def read_range(repository: Repository, tip: str, known: str) -> list[GitCommit] | None:
    """Returns the commits of `walk_new_commits` if they are few, as those of a merge; None if they are many or large."""
    try:
        found = find_range(repository, known, tip)
    except UnknownCommit:
        return None
    if found is None or len(found.ahead) > MAX_CHAIN_COMMITS:
        return None
    raws = [repository.raw_commit(oid) for oid in found.ahead]
    return None if sum(map(len, raws)) > MAX_CHAIN_BYTES else list(map(repository.parse, found.ahead, raws))


def read_short_history(repository: Repository, tips: Collection[str]) -> list[GitCommit] | None:
    """Returns the commits of `walk_new_commits` where none is known; None if they are many or large, or if one is missing."""
    found, queue, seen, size = list[GitCommit](), list[tuple[int, int, GitCommit]](), set[str](), 0
    new: Collection[str] = tips
    while True:
        for oid in new:
            if oid in seen:
                continue
            seen.add(oid)
            try:
                raw = repository.raw_commit(oid)
            except UnknownCommit:
                return None
            size += len(raw)
            if size > MAX_CHAIN_BYTES or len(seen) > min(MAX_CHAIN_COMMITS, MAX_CHUNK_COMMITS):
                return None
            # Git lists the newest first, and of one second the commit that it met first.
            heappush(queue, (-parse_time_and_parents(raw)[0], len(seen), repository.parse(oid, raw)))
        if not queue:
            return found
        commit = heappop(queue)[-1]
        found.append(commit)
        new = commit.parents


def parse_chain(
    repository: Repository, chain: Sequence[tuple[str, bytes]], known: Collection[str], likely: str | None = None
) -> list[GitCommit] | None:
    """Parses the commits of a chain but the last; None if it cannot be seen quickly that the last is reachable from a known one.

    `likely` is examined first, if it is known. The commits are those of `walk_new_commits` unless one of them is reachable too.
    """
    tips = [{likely}, known] if likely is not None and likely in known else [known]
    if not any(is_reachable(repository, chain[-1][0], each) for each in tips):
        return None
    return [repository.parse(oid, raw) for oid, raw in chain[:-1]]


def is_reachable(repository: Repository, oid: str, tips: Collection[str]) -> bool:
    """Whether a commit is reachable from one of these; False also if that takes more than MAX_EXAMINED_COMMITS, or dates mislead."""
    if oid in tips or len(tips) > MAX_EXAMINED_COMMITS:
        return oid in tips
    found, queue = set(tips), list[tuple[int, tuple[str, ...]]]()

    def push(commit: str) -> None:
        with contextlib.suppress(UnknownCommit):
            seconds, parents = repository.time_and_parents(commit)
            heappush(queue, (-seconds, parents))

    for tip in tips:
        push(tip)
    try:
        oldest = repository.time_and_parents(oid)[0]
    except UnknownCommit:
        return False
    while queue:
        newest, parents = heappop(queue)
        if oid in parents:
            return True
        if -newest < oldest:
            return False
        new = set(parents) - found
        found |= new
        if len(found) > MAX_EXAMINED_COMMITS:
            return False
        for parent in new:
            push(parent)
    return False


def walk_ids(repository: Repository, tips: Collection[str]) -> Generator[list[str], None, None]:
    """Yields the full ids of all commits reachable from `tips`, in chunks. As `walk_new_commits`, but it reads no commits."""
    with contextlib.ExitStack() as stack:
        stderr = stack.enter_context(tempfile.TemporaryFile())
        walk = stack.enter_context(_start_process(repository, stderr, "rev-list", "--stdin"))
        assert walk.stdin is not None and walk.stdout is not None  # noqa: S101 - PIPE in _start_process
        with contextlib.suppress(BrokenPipeError):
            walk.stdin.write(_rev_list_input(tips, ()))
        with contextlib.suppress(BrokenPipeError):
            walk.stdin.close()
        chunk: list[str] = []
        for line in walk.stdout:
            chunk.append(line.decode("ascii").strip())
            if len(chunk) == MAX_CHUNK_COMMITS:
                yield chunk
                chunk = []
        if walk.wait():
            stderr.seek(0)
            raise git_command.failure_of(stderr.read(_BLOCK_BYTES))
        if chunk:
            yield chunk


def absent_ids(repository: Repository, oids: Collection[str]) -> list[str]:
    """Returns the ids that the repository has no object for."""
    return [oid for oid in oids if not FULL_ID.fullmatch(oid) or oid not in repository.handle]


def count_new_commits(repository: Repository, tips: Collection[str], known: Collection[str]) -> int | None:
    """Counts the commits that `walk_new_commits` would yield; None if git fails or takes longer than COUNT_SECONDS."""
    try:
        output = git_command.run(
            repository.path, "rev-list", "--count", "--ignore-missing", "--stdin", stdin=_rev_list_input(tips, known), seconds=COUNT_SECONDS
        )
    except git_command.GitCommandError:
        return None
    return int(output)


def _rev_list_input(tips: Collection[str], known: Collection[str]) -> bytes:
    """Returns the input of `rev-list --stdin`, which contains only ids. Raises ValueError."""
    for oid in (*tips, *known):
        if not FULL_ID.fullmatch(oid):
            raise ValueError(f"{oid!r} is not an object id")
    return "".join([*(f"{oid}\n" for oid in tips), *(f"^{oid}\n" for oid in known)]).encode()


def _read_commit(repository: Repository, head: bytes, stream: IO[bytes]) -> tuple[int, GitCommit]:
    """Reads the commit after the line `head` of cat-file's output. Returns the number of bytes read and the commit."""
    oid, kind, *rest = head.decode("ascii", "replace").split()
    if kind != "commit":
        raise DamagedRepository(f"{repository.path}: {oid} is {kind}")
    size, parents = int(rest[0]), tuple(rest[1:])
    raw = stream.read(min(size, MAX_COMMIT_BYTES))
    bytes_left = size - len(raw) + 1  # a line feed follows
    while bytes_left > 0 and (skipped := stream.read(min(bytes_left, _BLOCK_BYTES))):
        bytes_left -= len(skipped)
    if bytes_left > 0:
        raise DamagedRepository(f"{repository.path}: {oid} cannot be read")
    return len(raw), parse_commit(oid, raw, parents)


@contextlib.contextmanager
def _start_process(
    repository: Repository, stderr: IO[bytes], *arguments: str, stdin: IO[bytes] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    process = git_command.start_process(
        git_command.command(repository.path, *arguments),
        git_command.environment(),
        stdin=subprocess.PIPE if stdin is None else stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
    )
    if stdin is not None:
        # Otherwise the walk would not receive SIGPIPE when the reader ends.
        stdin.close()
    try:
        yield process
    finally:
        process.kill()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        process.wait()
