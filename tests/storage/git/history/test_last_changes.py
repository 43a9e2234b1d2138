"""The newest commits that changed the entries of a directory are those that the history of each entry begins with."""

import random
from pathlib import Path

import pytest

from storage.git.history import last_changes
from storage.git.history.log import CommitFilter, filter_history
from storage.git.repository import Repository
from storage.git.trees import ListingPage, TreeListing
from tests.support.git.git_history import commit_files, git

Files = dict[str | bytes, bytes | tuple[int, bytes]]


def test_are_those_of_each_entrys_own_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(7)
    git(tmp_path, "init", "-q", "--bare", str(tmp_path / "r.git"))
    repository = Repository.open(tmp_path / "r.git")
    paths: list[str | bytes] = ["top", "a/one", "a/two", "a/b/three", "a.txt", b"a/wrong\xff", "c/only"]
    made: list[tuple[str, Files]] = []
    for number in range(40):
        parents = rng.sample(made[-4:], min(len(made), rng.choice((0, 1, 1, 1, 2))))
        # Most files are as in one of the parents, so that most merges change only some of the files.
        kept: Files = {path: files[path] for path in paths if parents and path in (files := rng.choice(parents)[1])}
        changed: Files = {path: b"%d" % number for path in paths if rng.random() < 0.15}
        contents = {"always": b"", "a/always": b""} | kept | changed
        made.append((commit_files(repository.path, contents, *(oid for oid, _ in parents)), contents))
    every: Files = dict.fromkeys(paths, b"1")
    start = commit_files(repository.path, every | made[-1][1], *(oid for oid, _ in made[-3:]))

    def of_directory(path: str, seconds: float = 60) -> dict[str, str]:
        entries = TreeListing(repository, start, path).page(ListingPage(100))
        names = {entry.key.rstrip(b"/").rpartition(b"/")[2]: entry.path for entry in entries}
        return {names[name]: oid for name, oid in last_changes.last_changes(repository, start, path, names, seconds).items()}

    for directory, count in (("", 5), ("a", 5), ("a/b", 1), ("c", 1)):
        found = of_directory(directory)
        assert len(found) == count
        for path, oid in found.items():
            history = filter_history(repository, start, CommitFilter(path), first_parent=False, skip=0, limit=1)
            assert oid == history.commits[0][1], path
    monkeypatch.setattr(last_changes, "MAX_EXAMINED_COMMITS", 0)
    assert of_directory("") == {}
    monkeypatch.undo()
    assert of_directory("", seconds=-1) == {}
