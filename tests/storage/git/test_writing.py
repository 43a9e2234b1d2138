"""Commits that are written without a work tree."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from storage.git.merge import Signature
from storage.git.repository import Repository, UnknownCommit
from storage.git.writing import write_commit
from tests.history import git, make_history

ADA = Signature("Ada", "ada@example.org", datetime(2016, 1, 4, tzinfo=UTC))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.open(make_history(tmp_path / "app.git", commits=3).path)


def test_keeps_what_the_parent_holds(repository: Repository) -> None:
    parent = git(repository.path, "rev-parse", "master")

    oid = write_commit(repository, parent, {"docs/a.txt": b"one\n"}, "Add a page", ADA)

    assert git(repository.path, "diff", "--name-status", parent, oid) == "A\tdocs/a.txt"
    assert git(repository.path, "log", "-1", "--format=%an %ae %ct %s%n%P", oid) == f"Ada ada@example.org 1451865600 Add a page\n{parent}"


def test_begins_a_history(repository: Repository) -> None:
    oid = write_commit(repository, None, {"a.txt": b"one\n"}, "Begin", ADA)

    assert git(repository.path, "ls-tree", "-r", "--name-only", oid) == "a.txt"


@pytest.mark.parametrize("path", ["../a", "a//b", "/a", "a/../b", ".git/config", ""])
def test_refuses_paths_that_no_tree_holds(repository: Repository, path: str) -> None:
    with pytest.raises(ValueError, match="no path of a tree"):
        write_commit(repository, None, {path: b""}, "Odd", ADA)


def test_refuses_a_parent_that_is_not_there(repository: Repository) -> None:
    with pytest.raises(UnknownCommit):
        write_commit(repository, "1" * 40, {"a": b""}, "Odd", ADA)
