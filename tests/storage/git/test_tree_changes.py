"""Trees in which files were added, replaced or removed."""

import subprocess
from pathlib import Path

import pytest

from storage.git.diffs.tree_changes import PathTaken, TreeChange, write_tree
from storage.git.repository import Repository
from tests.support.git.git_history import git, make_history


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.open(make_history(tmp_path / "app.git", commits=3).path)


def make_tree(repository: Repository, *rows: bytes) -> str:
    """Writes a tree with rows as `git ls-tree` prints them."""
    done = subprocess.run(
        ["git", "-C", str(repository.path), "mktree", "-z", "--missing"], input=b"\0".join(rows) + b"\0", capture_output=True, check=True
    )
    return done.stdout.decode().strip()


def make_commit(repository: Repository, tree: str) -> str:
    return git(repository.path, "-c", "user.name=A", "-c", "user.email=a@b.example", "commit-tree", "-m", "Odd", tree).strip()


def list_files(repository: Repository, tree: str) -> dict[bytes, bytes]:
    """The contents of the files of a tree, by the bytes of their paths."""
    listed = subprocess.run(["git", "-C", str(repository.path), "ls-tree", "-rz", tree], capture_output=True, check=True).stdout
    rows = [row.split(b"\t", 1) for row in listed.split(b"\0") if row]
    return {path: repository.handle[facts.split()[2].decode()].data for facts, path in rows}


@pytest.fixture
def odd(repository: Repository) -> str:
    """A commit with names in Latin-1."""
    blob = str(repository.handle.create_blob(b"old")).encode()
    below = make_tree(repository, b"100755 blob %s\tr\xe9sum\xe9" % blob).encode()
    tree = make_tree(repository, b"100644 blob %s\tcaf\xe9" % blob, b"40000 tree %s\tdir\xe9" % below, b"100644 blob %s\tdir-x" % blob)
    return make_commit(repository, tree)


class TestNamesThatAreNotUtf8:
    def test_are_those_of_the_changed_files(self, repository: Repository, odd: str) -> None:
        changes = [
            TreeChange("caf\ufffd", b"new"),
            TreeChange("dir\ufffd/r\ufffdsum\ufffd", b"new", "100755"),
            TreeChange("dir\ufffd/b", b""),
        ]

        tree = write_tree(repository, odd, changes)

        assert list_files(repository, tree) == {b"caf\xe9": b"new", b"dir-x": b"old", b"dir\xe9/b": b"", b"dir\xe9/r\xe9sum\xe9": b"new"}
        assert "100755" in git(repository.path, "ls-tree", "-r", tree)
        git(repository.path, "fsck", "--strict", "--no-dangling", make_commit(repository, tree))

    def test_are_removed_with_their_directory(self, repository: Repository, odd: str) -> None:
        tree = write_tree(repository, odd, [TreeChange("caf\ufffd", None), TreeChange("dir\ufffd/r\ufffdsum\ufffd", None)])

        assert list_files(repository, tree) == {b"dir-x": b"old"}

    def test_give_way_to_an_equal_name(self, repository: Repository, odd: str) -> None:
        blob = str(repository.handle.create_blob(b"old")).encode()
        both = make_tree(repository, b"100644 blob %s\tcaf\xe9" % blob, b"100644 blob %s\tcaf\xef\xbf\xbd" % blob)

        tree = write_tree(repository, make_commit(repository, both), [TreeChange("caf\ufffd", b"new")])

        assert list_files(repository, tree) == {b"caf\xe9": b"old", "caf\ufffd".encode(): b"new"}


def test_keeps_submodules(repository: Repository) -> None:
    commit = make_commit(repository, make_tree(repository, b"160000 commit %s\tlib" % (b"1" * 40)))

    for path in ("lib", "lib/a"):
        with pytest.raises(PathTaken):
            write_tree(repository, commit, [TreeChange(path, b"")])
    assert git(repository.path, "ls-tree", write_tree(repository, commit, [TreeChange("lib.txt", b"")])).startswith("160000 commit 1111")


def test_removes_the_last_file(repository: Repository) -> None:
    tree = write_tree(repository, None, [TreeChange("a/b", b"x"), TreeChange("a/b", None)])

    assert list_files(repository, tree) == {}
