"""Creates git histories of any size in seconds, for tests and benchmarks: a seeded stream for `git fast-import`.

It also creates single commits of an exact form.
"""

import os
import random
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

T = TypeVar("T")

FIRST_COMMIT_TIME = 1_400_000_000
"""Commit time of the first commit, in seconds since 1970; each later one is 0 to 10 minutes younger."""

BUILT: dict[Path, Any] = {}
"""What the builders of `build_once` returned, by the path of their repository."""
_LINES = [f"line of kind {kind}\n" for kind in range(40)]
GIT_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_AUTHOR_NAME": "A U Thor",
    "GIT_AUTHOR_EMAIL": "author@example.org",
    "GIT_COMMITTER_NAME": "C O Mitter",
    "GIT_COMMITTER_EMAIL": "committer@example.org",
}
"""The environment of git in tests: no configuration of the machine, and no prompt."""


@dataclass(frozen=True, slots=True)
class GitHistory:
    """The result of `make_history`: a bare repository whose HEAD is `master`."""

    path: Path
    commits: int
    branches: tuple[str, ...]
    tags: tuple[str, ...]


def make_history(
    path: Path,
    *,
    commits: int = 100,
    authors: int = 5,
    seed: int = 1,
    merges_every: int = 10,
    tags: int = 2,
    files: int = 50,
) -> GitHistory:
    """Creates a bare repository at `path` with exactly `commits` commits, with the same ids for the same arguments.

    About every `merges_every`-th commit of master merges a side branch of one to three commits (0: no merges). From four commits on, the
    last two are the open branch `topic`. Tags `v1`, `v2`, … are spread over master; even ones are annotated.
    """
    subprocess.run(["git", "init", "-q", "--bare", "--template=", "-b", "master", str(path)], check=True)
    stream = _FastImportStream(random.Random(seed), authors, files)
    branches, names = stream.write(commits, merges_every, tags)
    quick = ["-c", "core.compression=1", "-c", "pack.compression=1", "fast-import", "--quiet", "--depth=5"]
    with subprocess.Popen(["git", "-C", str(path), *quick], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.writelines(stream.parts)
    assert process.returncode == 0
    return GitHistory(path, commits, branches, names)


def build_once(build: Callable[[Path], T], folder: Path, path: Path) -> T:
    """Creates the repository that `build` creates at `path`, and returns what `build` returns. `build` runs once a run, in `folder`; its
    repository is copied, so that a test may change it."""
    template = folder / f"{build.__module__}.{build.__qualname__}"
    if template not in BUILT:
        BUILT[template] = build(template)
    shutil.copytree(template, path, symlinks=True)
    return cast(T, BUILT[template])


def git(path: Path, *arguments: str, stdin: bytes = b"", environment: dict[str, str] | None = None) -> str:
    """The output of `git arguments` in the folder `path`, without the last line break; fails the test when git fails."""
    done = subprocess.run(
        ["git", *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        cwd=path,
        env=GIT_ENVIRONMENT | (environment or {}),
    )
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    return done.stdout.decode("utf-8", "replace").removesuffix("\n")


def write_commit(path: Path, raw: bytes) -> str:
    """Stores `raw` as a commit object, whatever it contains; returns its id."""
    return git(path, "hash-object", "-t", "commit", "-w", "--stdin", "--literally", stdin=raw)


def commit_rows(path: Path, rows: bytes, *parents: str) -> str:
    """Creates a commit whose root tree consists of these bytes, whatever they are; returns its id."""
    return git(path, "commit-tree", write_tree(path, rows), *(part for parent in parents for part in ("-p", parent)), "-m", "A change")


def write_tree(path: Path, rows: bytes) -> str:
    """Stores `rows` as a tree object, whatever they are; returns its id."""
    return git(path, "hash-object", "-t", "tree", "-w", "--stdin", "--literally", stdin=rows)


def tree_row(mode: str, name: str, oid: str) -> bytes:
    """An entry of a tree object."""
    return f"{mode} {name}\0".encode() + bytes.fromhex(oid)


def commit_files(path: Path, files: dict[str | bytes, bytes | tuple[int, bytes]], *parents: str) -> str:
    """Creates a commit whose whole tree is `files`: contents, or a mode and contents (for 0o160000, the id of a commit)."""
    rows = []
    for name, content in files.items():
        mode, data = content if isinstance(content, tuple) else (0o100644, content)
        oid = data.decode() if mode == 0o160000 else git(path, "hash-object", "-w", "--stdin", stdin=data)
        rows.append(f"{mode:o} {oid}\t".encode() + (name if isinstance(name, bytes) else name.encode()) + b"\0")
    index = {"GIT_INDEX_FILE": str(path / f"index-{secrets.token_hex(4)}")}
    git(path, "read-tree", "--empty", environment=index)
    git(path, "update-index", "-z", "--index-info", stdin=b"".join(rows), environment=index)
    tree = git(path, "write-tree", environment=index)
    Path(index["GIT_INDEX_FILE"]).unlink()
    return git(path, "commit-tree", tree, *(part for parent in parents for part in ("-p", parent)), "-m", "A change")


def commit_to_branch(
    path: Path, branch: str, files: dict[str, bytes | None], *, start: str | None = None, message: str = "A change"
) -> str:
    """Adds a commit to a branch of the bare repository: `files` are written, or removed where None. Returns its id.

    A branch that does not exist starts at `start`, the name of a branch, a tag or a commit.
    """
    index = {"GIT_INDEX_FILE": str(path / f"index-{secrets.token_hex(4)}")}
    parent = git(path, "rev-parse", "--verify", "--end-of-options", f"refs/heads/{branch}" if start is None else start)
    git(path, "read-tree", parent, environment=index)
    rows = []
    for name, content in files.items():
        oid = "0" * 40 if content is None else git(path, "hash-object", "-w", "--stdin", stdin=content)
        rows.append(f"{'0' if content is None else '100644'} {oid}\t{name}\0".encode())
    git(path, "update-index", "-z", "--index-info", stdin=b"".join(rows), environment=index)
    oid = git(path, "commit-tree", git(path, "write-tree", environment=index), "-p", parent, "-m", message)
    Path(index["GIT_INDEX_FILE"]).unlink()
    git(path, "update-ref", f"refs/heads/{branch}", oid)
    return oid


class _FastImportStream:
    def __init__(self, rng: random.Random, authors: int, files: int) -> None:
        self.parts: list[bytes] = []
        self._rng = rng
        self._people = [f"Author {n} <author{n}@example.org>" for n in range(max(authors, 1))]
        self._files = files
        self._time = FIRST_COMMIT_TIME
        self._count = 0

    def write(self, commits: int, merges_every: int, tags: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Fills `parts`; returns the names of the branches and tags."""
        on_topic = 2 if commits >= 4 else 0
        end = commits - on_topic
        master = 0
        on_master: list[int] = []
        next_merge = merges_every - 1
        while self._count < end:
            if merges_every and len(on_master) >= next_merge and end - self._count >= 2:
                next_merge += merges_every
                side = master
                changes: list[bytes] = []
                for _ in range(min(self._rng.randint(1, 3), end - self._count - 1)):
                    side = self._commit("topic", side, changes=changes)
                if end - self._count >= 2 and self._rng.randrange(2):  # else the merge could have been a fast-forward
                    master = self._commit("master", master)
                    on_master.append(master)
                master = self._commit("master", master, side, changes=changes)
            else:
                master = self._commit("master", master)
            on_master.append(master)
        names = tuple(self._tags(on_master, tags))
        if not on_topic:
            self.parts.append(b"reset refs/heads/topic\nfrom 0000000000000000000000000000000000000000\n\n")
            return ("master",), names
        side = on_master[-2]
        for _ in range(on_topic):
            side = self._commit("topic", side)
        return ("master", "topic"), names

    def _commit(self, branch: str, parent: int, merged: int = 0, changes: list[bytes] | None = None) -> int:
        """Writes a commit of one changed file; `changes` collects those of a side branch, which its merge applies."""
        self._count += 1
        self._time += self._rng.randrange(600)
        number, person = self._count, self._rng.choice(self._people)
        when = f"{self._time} {self._rng.choice(('+0000', '+0200', '-0730'))}"
        subject = f"Merge commit {number}" if merged else f"Change {number}"
        message = f"{subject}\n\n" + "A line that says why.\n" * self._rng.randrange(3)
        self.parts.append(
            f"commit refs/heads/{branch}\nmark :{number}\nauthor {person} {when}\ncommitter {person} {when}\n"
            f"data {len(message)}\n{message}\n".encode()
        )
        self.parts.extend(b"%s :%d\n" % (word, mark) for word, mark in ((b"from", parent), (b"merge", merged)) if mark)
        name = f"src/part{self._rng.randrange(7)}/file{self._rng.randrange(self._files)}.txt"
        content = "".join([*self._rng.choices(_LINES, k=self._rng.randrange(1, 20)), f"written by change {number}\n"])
        change = f"M 100644 inline {name}\ndata {len(content)}\n{content}\n".encode()
        if merged and changes:
            self.parts.extend(changes)
        elif changes is not None:
            changes.append(change)
        self.parts.append(change)
        return number

    def _tags(self, on_master: list[int], count: int) -> Iterator[str]:
        for number in range(1, min(count, len(on_master)) + 1):
            mark = on_master[len(on_master) * number // count - 1]
            if number % 2:
                self.parts.append(b"reset refs/tags/v%d\nfrom :%d\n\n" % (number, mark))
            else:
                tagger = f"{self._people[0]} {self._time} +0000"
                self.parts.append(f"tag v{number}\nfrom :{mark}\ntagger {tagger}\ndata 8\nRelease\n\n".encode())
            yield f"v{number}"
