"""What a repository holds and somebody does not know yet: its branch heads, and the commits between them and what is known.

Walking and reading are the git program's work, two processes that hand on to each other; of a history of any length no more than a
chunk is held. What cannot be read raises DamagedRepository or GitFailed.
"""

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Collection, Generator, Iterator
from typing import IO

from storage.git import program
from storage.git.commits import Commit, parse_commit
from storage.git.repository import DamagedRepository, Repository

CHUNK = 1_000
"""Commits that are given at once, at most."""
CHUNK_BYTES = 8 * 1024 * 1024
"""A chunk ends also with the commit that reaches this size."""
LARGEST_COMMIT = 1024 * 1024
"""Bytes of a commit that are read; what follows is passed over."""
LONGEST_NAME = 255
COUNT_SECONDS = 10.0

_FULL_ID = re.compile(r"[0-9a-f]{40}")
_BLOCK = 64 * 1024


def heads(repository: Repository) -> dict[str, str]:
    """The commits of the branches, by name without `refs/heads/`.

    Left out are names that are no UTF-8 or longer than LONGEST_NAME characters: imports bring them, and no list takes them.
    """
    return {ref.name: ref.oid for ref in repository.branches() if len(ref.name) <= LONGEST_NAME and "\ufffd" not in ref.name}


def new_commits(repository: Repository, tips: Collection[str], known: Collection[str]) -> Generator[list[Commit], None, None]:
    """The commits that `tips` hold and `known` do not, in chunks, newest first as git log shows them.

    Known ids that are not in the repository (any more) count for nothing. The iterator may be continued in another thread; closing it
    ends the processes.
    """
    with contextlib.ExitStack() as stack:
        said = stack.enter_context(tempfile.TemporaryFile())
        walk = stack.enter_context(_started(repository, said, "rev-list", "--parents", "--ignore-missing", "--stdin"))
        assert walk.stdin is not None  # noqa: S101 - asked for in _started
        reading = "cat-file", "--buffer", "--batch=%(objectname) %(objecttype) %(objectsize) %(rest)"
        read = stack.enter_context(_started(repository, said, *reading, stdin=walk.stdout))
        assert read.stdout is not None  # noqa: S101 - asked for in _started
        with contextlib.suppress(BrokenPipeError):
            walk.stdin.write(_bounds(tips, known))
        with contextlib.suppress(BrokenPipeError):
            walk.stdin.close()
        chunk: list[Commit] = []
        size = 0
        while head := read.stdout.readline():
            raw, commit = _commit(repository, head, read.stdout)
            chunk.append(commit)
            size += raw
            if len(chunk) == CHUNK or size >= CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
        # The walk's end looks like the end of the history to the reader; only the exit code tells that it broke off.
        if walk.wait() or read.wait():
            said.seek(0)
            raise program.failure(said.read(_BLOCK))
        if chunk:
            yield chunk


def new_ids(repository: Repository, tips: Collection[str]) -> Generator[list[str], None, None]:
    """The full ids of all that `tips` hold, in chunks. As `new_commits`, of which it reads no commit."""
    with contextlib.ExitStack() as stack:
        said = stack.enter_context(tempfile.TemporaryFile())
        walk = stack.enter_context(_started(repository, said, "rev-list", "--stdin"))
        assert walk.stdin is not None and walk.stdout is not None  # noqa: S101 - asked for in _started
        with contextlib.suppress(BrokenPipeError):
            walk.stdin.write(_bounds(tips, ()))
        with contextlib.suppress(BrokenPipeError):
            walk.stdin.close()
        chunk: list[str] = []
        for line in walk.stdout:
            chunk.append(line.decode("ascii").strip())
            if len(chunk) == CHUNK:
                yield chunk
                chunk = []
        if walk.wait():
            said.seek(0)
            raise program.failure(said.read(_BLOCK))
        if chunk:
            yield chunk


def absent(repository: Repository, oids: Collection[str]) -> list[str]:
    """Those of these ids that the repository has no object of."""
    return [oid for oid in oids if not _FULL_ID.fullmatch(oid) or oid not in repository.handle]


def count(repository: Repository, tips: Collection[str], known: Collection[str]) -> int | None:
    """How many commits `new_commits` would give; None when git cannot tell within COUNT_SECONDS."""
    try:
        said = program.run(
            repository.path, "rev-list", "--count", "--ignore-missing", "--stdin", stdin=_bounds(tips, known), seconds=COUNT_SECONDS
        )
    except program.GitFailed:
        return None
    return int(said)


def _bounds(tips: Collection[str], known: Collection[str]) -> bytes:
    """What `rev-list --stdin` reads: nothing but ids gets there. Raises ValueError."""
    for oid in (*tips, *known):
        if not _FULL_ID.fullmatch(oid):
            raise ValueError(f"{oid!r} is no object id")
    return "".join([*(f"{oid}\n" for oid in tips), *(f"^{oid}\n" for oid in known)]).encode()


def _commit(repository: Repository, head: bytes, stream: IO[bytes]) -> tuple[int, Commit]:
    """Bytes read, and the commit that follows the line `head` in the answer of cat-file."""
    oid, kind, *rest = head.decode("ascii", "replace").split()
    if kind != "commit":
        raise DamagedRepository(f"{repository.path}: {oid} is {kind}")
    size, parents = int(rest[0]), tuple(rest[1:])
    raw = stream.read(min(size, LARGEST_COMMIT))
    left = size - len(raw) + 1  # a line end follows
    while left > 0 and (passed := stream.read(min(left, _BLOCK))):
        left -= len(passed)
    if left > 0:
        raise DamagedRepository(f"{repository.path}: {oid} cannot be read")
    return len(raw), parse_commit(oid, raw, parents)


@contextlib.contextmanager
def _started(repository: Repository, said: IO[bytes], *arguments: str, stdin: IO[bytes] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    process = program.start(
        program.command(repository.path, *arguments),
        program.environment(),
        stdin=subprocess.PIPE if stdin is None else stdin,
        stdout=subprocess.PIPE,
        stderr=said,
    )
    if stdin is not None:
        # Else the walk would not hear that the reader is gone.
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
