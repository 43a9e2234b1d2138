"""Commits written without a work tree."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from storage.git.commit_writer import CommitSignature, write_commit
from storage.git.repository import Repository, UnknownCommit
from tests.support.git.git_history import git, make_history

ADA = CommitSignature("Ada", "ada@example.org", datetime(2016, 1, 4, tzinfo=UTC))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.open(make_history(tmp_path / "app.git", commits=3).path)


def test_preserves_files_of_the_parent(repository: Repository) -> None:
    parent = git(repository.path, "rev-parse", "master")

    oid = write_commit(repository, parent, {"docs/a.txt": b"one\n"}, "Add a page", ADA)

    assert git(repository.path, "diff", "--name-status", parent, oid) == "A\tdocs/a.txt"
    assert git(repository.path, "log", "-1", "--format=%an %ae %ct %s%n%P", oid) == f"Ada ada@example.org 1451865600 Add a page\n{parent}"


def test_begins_a_history(repository: Repository) -> None:
    oid = write_commit(repository, None, {"a.txt": b"one\n"}, "Begin", ADA)

    assert git(repository.path, "ls-tree", "-r", "--name-only", oid) == "a.txt"


@pytest.mark.parametrize("path", ["../a", "a//b", "/a", "a/../b", ".git/config", ""])
def test_rejects_invalid_paths(repository: Repository, path: str) -> None:
    with pytest.raises(ValueError, match="invalid path in a tree"):
        write_commit(repository, None, {path: b""}, "Odd", ADA)


def test_rejects_a_missing_parent(repository: Repository) -> None:
    with pytest.raises(UnknownCommit):
        write_commit(repository, "1" * 40, {"a": b""}, "Odd", ADA)
