"""Creates git histories of any size in seconds, for tests and benchmarks: a seeded stream for `git fast-import`.

It also creates single commits of an exact form.
"""

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, cast

import pygit2
from pygit2.enums import FileMode, ObjectType

from storage.git.object_writes import write_object
from tests.support.process_folders import create_process_folder

T = TypeVar("T")

FIRST_COMMIT_TIME = 1_400_000_000
"""Commit time of the first commit, in seconds since 1970; each later one is 0 to 10 minutes younger."""

MAX_COPIED_COMMITS = 300
"""Longer histories are built where they are needed, since few tests need the same."""
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
    if commits > MAX_COPIED_COMMITS:
        return _build_history(path, commits, authors, seed, merges_every, tags, files)
    original = _original_history(commits, authors, seed, merges_every, tags, files)
    # With the times of new files, which tests of packing compare.
    shutil.copytree(original.path, path, copy_function=shutil.copy, dirs_exist_ok=True)
    return replace(original, path=path)


@cache
def _originals_folder() -> Path:
    return create_process_folder("histories")


@cache
def _original_history(*arguments: int) -> GitHistory:
    """The history with these arguments, to be copied: git takes ten times as long to make a small one as it takes to copy it."""
    return _build_history(_originals_folder() / "-".join(map(str, arguments)), *arguments)


def _build_history(path: Path, commits: int, authors: int, seed: int, merges_every: int, tags: int, files: int) -> GitHistory:
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


@contextmanager
def open_objects(path: Path) -> Iterator[pygit2.Odb]:
    """The objects of a repository. Tests write thousands of them, and a process for each takes fifty times as long as writing it."""
    repository = pygit2.Repository(str(path))
    try:
        yield repository.odb
    finally:
        repository.free()


def write_commit(path: Path, raw: bytes) -> str:
    """Stores `raw` as a commit object, whatever it contains; returns its id."""
    with open_objects(path) as objects:
        return str(objects.write(ObjectType.COMMIT, raw))


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
    rows: dict[bytes, tuple[int, str]] = {}
    with open_objects(path) as objects:
        for name, content in files.items():
            mode, data = content if isinstance(content, tuple) else (0o100644, content)
            oid = data.decode() if mode == 0o160000 else str(objects.write(ObjectType.BLOB, data))
            rows[name if isinstance(name, bytes) else name.encode()] = mode, oid
        return _write_change(objects, _write_tree(objects, rows), parents)


def _write_tree(objects: pygit2.Odb, rows: dict[bytes, tuple[int, str]]) -> str:
    """Stores the tree of files, by their paths, and those of its folders; returns its id."""
    folders: dict[bytes, dict[bytes, tuple[int, str]]] = {}
    entries: list[tuple[bytes, bytes]] = []
    for name, (mode, oid) in rows.items():
        folder, slash, rest = name.partition(b"/")
        if slash:
            folders.setdefault(folder, {})[rest] = mode, oid
        else:
            entries.append((name, b"%o %s\0%s" % (mode, name, bytes.fromhex(oid))))
    # git sorts folders as if their names ended with a slash.
    entries += [(name + b"/", b"40000 %s\0%s" % (name, bytes.fromhex(_write_tree(objects, inner)))) for name, inner in folders.items()]
    content = b"".join(entry for _, entry in sorted(entries))
    return str(write_object(partial(objects.write, ObjectType.TREE, content)))


def _write_change(objects: pygit2.Odb, tree: str, parents: Iterable[str], message: str = "A change") -> str:
    """Stores the commit that `git commit-tree` makes with the environment of the tests; returns its id."""
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in dict.fromkeys(parents))]
    lines += [
        f"{kind} {GIT_ENVIRONMENT[f'GIT_{kind.upper()}_NAME']} <{GIT_ENVIRONMENT[f'GIT_{kind.upper()}_EMAIL']}> {int(time.time())} +0000"
        for kind in ("author", "committer")
    ]
    content = "\n".join([*lines, "", message.removesuffix("\n"), ""]).encode()
    return str(write_object(partial(objects.write, ObjectType.COMMIT, content)))


def commit_to_branch(
    path: Path, branch: str, files: dict[str, bytes | None], *, start: str | None = None, message: str = "A change"
) -> str:
    """Adds a commit to a branch of the bare repository: `files` are written, or removed where None. Returns its id.

    A branch that does not exist starts at `start`, the name of a branch, a tag or a commit.
    """
    repository = pygit2.Repository(str(path))
    try:
        parent = repository.revparse_single(f"refs/heads/{branch}" if start is None else start).peel(pygit2.Commit)
        index = pygit2.Index()
        index.read_tree(parent.tree)
        for name, content in files.items():
            if content is not None:
                index.add(pygit2.IndexEntry(name, write_object(partial(repository.create_blob, content)), FileMode.BLOB))
            elif name in index:
                index.remove(name)
        oid = _write_change(repository.odb, str(write_object(partial(index.write_tree, repository))), [str(parent.id)], message)
        repository.references.create(f"refs/heads/{branch}", oid, force=True)
    finally:
        repository.free()
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
