"""Commits and diffs are read once; what the repository no longer has is not found in the cache."""

from pathlib import Path

import pytest

from storage.git.diffs import diff
from storage.git.diffs.diff import FileDiff, diff_between, diff_of_commit
from storage.git.history import history_cache
from storage.git.history.history_cache import HistoryCache
from storage.git.repository import DamagedRepository, GitCommit, Repository, UnknownCommit
from tests.support.git.git_history import commit_files, git, make_history, write_commit
from tests.support.measuring.measured_memory import measure_memory


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    Repository.create(tmp_path / "r.git")
    return Repository.open(tmp_path / "r.git", history_cache=HistoryCache())


def recreate(repository: Repository) -> Repository:
    """An empty repository at the same path, with the same cache."""
    repository.path.rename(repository.path.with_name("removed.git"))
    Repository.create(repository.path)
    return Repository.open(repository.path, history_cache=repository.history_cache)


class TestDiffs:
    @pytest.mark.parametrize("is_small", [True, False])
    def test_are_computed_once(self, repository: Repository, monkeypatch: pytest.MonkeyPatch, is_small: bool):
        old = commit_files(repository.path, {"a": b"one\n", "b": b"same\n"})
        new = commit_files(repository.path, {"a": b"two\n", "b": b"same\n"}, old)
        monkeypatch.setattr(diff, "is_small", lambda *_: is_small)
        expected = [(start, diff_between(repository, start, new)) for start in (old, None)]
        assert diff_of_commit(repository, new) == expected[0][1] != expected[1][1]

        monkeypatch.setattr(diff, "is_small", lambda *_: pytest.fail("the diff was computed again"))
        for start, entries in expected:
            # A caller's list is its own.
            diff_between(repository, start, new).clear()
            assert diff_between(repository, start, new) == entries

    def test_of_commits_that_were_removed_are_not_found(self, repository: Repository):
        files: dict[str | bytes, bytes | tuple[int, bytes]] = {"a": b"one\n"}
        old = commit_files(repository.path, files)
        new = commit_files(repository.path, {"a": b"two\n"}, old)
        assert diff_between(repository, old, new)
        raw = repository.raw_commit(new)
        empty = recreate(repository)
        for start in (old, None):
            with pytest.raises(DamagedRepository):
                diff_between(empty, start, new)
        assert write_commit(empty.path, raw) == new
        with pytest.raises(DamagedRepository):
            diff_between(empty, old, new)

    def test_that_took_too_long_are_computed_again(self, repository: Repository, monkeypatch: pytest.MonkeyPatch):
        new = commit_files(repository.path, {"a": b"one\n"})
        with monkeypatch.context() as late:
            late.setattr(diff, "MAX_DIFF_SECONDS", -1.0)
            assert diff_between(repository, None, new)[0].diff == diff.DIFF_TOO_SLOW
        computed = []
        monkeypatch.setattr(diff, "read_diff", lambda *_: computed.append(1) or [])
        assert (diff_between(repository, None, new), computed) == ([], [1])

    def test_that_are_large_are_not_cached(self, repository: Repository):
        cache = HistoryCache()
        for mebibytes, is_cached in ((3, True), (5, False)):
            cache.put_diff(repository, None, "0" * 40, [FileDiff("+" * mebibytes * 2**20, "a", "a", "100644", "100644", *[False] * 3)])
            assert (cache.get_diff(repository, None, "0" * 40) is not None) is is_cached

    def test_the_estimate_is_within_a_factor_of_two(self):
        with measure_memory() as measured:
            found = [
                FileDiff("+ä" * (number % 90), f"folder/{number}", f"file/{number}", f"{number:o}", f"{number:o}", *[False] * 3)
                for number in range(100_000, 102_000)
            ]
        assert measured.bytes / 2 < history_cache._estimate_diff(found) < measured.bytes * 2


class TestCommits:
    def test_are_read_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        made = make_history(tmp_path / "made.git", commits=30, merges_every=5)
        repository = Repository.open(made.path, history_cache=HistoryCache())
        oids = git(made.path, "rev-list", "master").split()
        read = repository.commits(oids)
        assert read == Repository.open(made.path).commits(oids)
        monkeypatch.setattr(Repository, "raw_commit", lambda *_: pytest.fail("a commit was read again"))
        assert repository.commits(oids) == read

    def test_that_were_removed_are_unknown(self, repository: Repository):
        oid = commit_files(repository.path, {"a": b"one\n"})
        assert repository.commit(oid).oid == oid
        empty = recreate(repository)
        with pytest.raises(UnknownCommit):
            empty.commit(oid)
        assert empty.commits([oid]) == []

    def test_of_a_shallow_repository_have_its_parents(self, repository: Repository):
        first = commit_files(repository.path, {"a": b"one\n"})
        second = commit_files(repository.path, {"a": b"two\n"}, first)
        assert repository.commit(second).parents == (first,)
        (repository.path / "shallow").write_text(f"{second}\n")
        shallow = Repository.open(repository.path, history_cache=repository.history_cache)
        assert shallow.commit(second).parents == ()
        assert repository.commit(second).parents == (first,)

    def test_the_estimate_is_within_a_factor_of_two(self, tmp_path: Path):
        made = make_history(tmp_path / "made.git", commits=200, merges_every=5)
        repository = Repository.open(made.path)
        oids = git(made.path, "rev-list", "master").split()
        cache = HistoryCache()
        with measure_memory() as measured:
            commits: list[GitCommit] = repository.commits(oids)
            for commit in commits:
                cache.put_commit(repository, commit)
        assert measured.bytes / 2 < cache._commits.bytes < measured.bytes * 2
