"""Questions about a history that git processes answer."""

from pathlib import Path

import pytest

from storage.git.history import blame, history_queries
from storage.git.repository import Repository
from tests.support.git.git_history import commit_files, git


def test_find_names_that_are_not_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "-q", "--bare", str(tmp_path / "r.git"))
    repository = Repository.open(tmp_path / "r.git")
    name, shown = b"dir\xe9/caf\xe9", "dir\ufffd/caf\ufffd"
    first = commit_files(repository.path, {name: b"a\n"})
    second = commit_files(repository.path, {name: b"a\nb\n"}, first)
    third = commit_files(repository.path, {name: b"a\nb\n", "other": b""}, second)
    # What the newest commits do not answer.
    monkeypatch.setattr(history_queries, "find_last_change", lambda *_: None)

    assert history_queries.last_change(repository, third, shown) == second
    assert history_queries.last_change(repository, third, "dir\ufffd/unknown") is None
    ranges = blame.blame(repository, third, shown)
    assert [(each.start, each.count, each.oid, each.path) for each in ranges] == [(1, 1, first, shown), (2, 1, second, shown)]


def test_list_authors_with_line_separators_in_their_names(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", str(tmp_path / "r.git"))
    repository = Repository.open(tmp_path / "r.git")
    tree = git(repository.path, "mktree", stdin=b"")
    who = {"GIT_AUTHOR_NAME": "Ada\u2028L", "GIT_AUTHOR_EMAIL": "ada@example.org"}
    commit = git(repository.path, "commit-tree", "-m", "Begin", tree, environment=who)

    found = history_queries.list_contributors(repository, commit)

    assert [(each.name, each.email, each.commits) for each in found] == [("Ada\u2028L", "ada@example.org", 1)]
