"""The order of git log; a first page costs one page."""

import random
from pathlib import Path

import pytest

from storage.git.history import log
from storage.git.history.history_cache import MIN_CACHED_COMMITS, HistoryCache
from storage.git.history.history_walk import HistoryWalk
from storage.git.history.log import CommitFilter, HistoryTooDeep, filter_history, list_history
from storage.git.repository import DamagedRepository, Repository, UnknownCommit
from tests.support.git.git_history import git, make_history, write_commit
from tests.support.measuring.measured_memory import measure_memory

TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    created = Repository.create(tmp_path / "r.git")
    assert git(created.path, "hash-object", "-t", "tree", "-w", "--stdin") == TREE
    return created


def commit(repository: Repository, time: int | str, *parents: str, author: int = 1) -> str:
    links = "".join(f"parent {parent}\n" for parent in parents)
    raw = f"tree {TREE}\n{links}author A <a> {author} +0000\ncommitter C <c> {time} +0000\n\nm{random.random()}\n"
    return write_commit(repository.path, raw.encode())


def page_of_log(repository: Repository, start: str, skip: int = 0, limit: int = 10_000) -> list[str]:
    return [found.oid for found in list_history(repository, start, skip=skip, limit=limit)]


def git_log(repository: Repository, start: str) -> list[str]:
    return git(repository.path, "log", "--format=%H", start).split()


class TestOrder:
    @pytest.mark.parametrize("seed", range(4))
    def test_is_git_logs_on_histories_with_merges(self, tmp_path: Path, seed: int):
        made = make_history(tmp_path / "made.git", commits=300, merges_every=3, seed=seed)
        repository = Repository.open(made.path)
        for name in (*made.branches, *made.tags):
            start = str(repository.resolve(name))
            assert page_of_log(repository, start) == git_log(repository, start)

    @pytest.mark.parametrize("seed", range(6))
    def test_is_git_logs_with_equal_dates_octopuses_roots_and_skewed_clocks(self, repository: Repository, seed: int):
        rng = random.Random(seed)
        made = [commit(repository, 1000)]
        for _ in range(60):
            parents = rng.sample(made[-8:], min(len(made), rng.choice((0, 1, 1, 1, 2, 2, 5))))
            made.append(commit(repository, 1000 + rng.randrange(5), *parents))
        start = commit(repository, 0, *made[-5:])

        assert page_of_log(repository, start) == git_log(repository, start)

    def test_is_git_logs_where_a_parent_is_named_twice_or_a_date_is_none(self, repository: Repository):
        root = commit(repository, "soon")
        left, right = commit(repository, 5, root), commit(repository, 2**40, root)
        start = commit(repository, 9, left, right, left)

        assert page_of_log(repository, start) == git_log(repository, start)

    def test_is_by_the_committers_date(self, repository: Repository):
        root = commit(repository, 1)
        early, late = commit(repository, 10, root, author=99), commit(repository, 20, root, author=2)
        start = commit(repository, 30, early, late)

        assert page_of_log(repository, start) == [start, late, early, root]

    def test_ends_where_a_shallow_repository_ends(self, tmp_path: Path):
        made = make_history(tmp_path / "made.git", commits=30)
        git(tmp_path, "clone", "-q", "--bare", "--depth", "4", f"file://{made.path}", "shallow.git")
        repository = Repository.open(tmp_path / "shallow.git")
        start = str(repository.resolve("master"))

        assert page_of_log(repository, start) == git_log(repository, start)
        assert list_history(repository, start, skip=0, limit=100)[-1].parents == ()


class TestPages:
    def test_meet_without_gap_or_overlap(self, tmp_path: Path):
        repository = Repository.open(make_history(tmp_path / "made.git", commits=100, merges_every=4).path)
        start = str(repository.resolve("master"))
        pages = [page_of_log(repository, start, skip, 7) for skip in range(0, 112, 7)]

        assert [oid for page in pages for oid in page] == git_log(repository, start)
        assert page_of_log(repository, start, 1000, 7) == []
        assert page_of_log(repository, start, 0, 0) == []
        assert page_of_log(repository, start, -5, 2) == git_log(repository, start)[:2]

    @pytest.mark.parametrize("commits", [200, 1200])
    def test_cost_what_they_show_and_not_the_history(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int):
        repository = Repository.open(make_history(tmp_path / "made.git", commits=commits, merges_every=5).path)
        start = str(repository.resolve("master"))
        read: list[str] = []
        plain = Repository.raw_commit
        monkeypatch.setattr(Repository, "raw_commit", lambda self, oid: (read.append(oid), plain(self, oid))[1])

        assert len(page_of_log(repository, start, 0, 20)) == 20
        # Twenty walked, twenty shown, and the edge: a side branch or two that are open at that point.
        assert len(read) <= 2 * 20 + 5
        read.clear()
        assert len(page_of_log(repository, start, 100, 20)) == 20
        assert len(read) <= 120 + 20 + 5


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commits that were read."""
    found: list[str] = []
    plain = Repository.raw_commit
    monkeypatch.setattr(Repository, "raw_commit", lambda self, oid: (found.append(oid), plain(self, oid))[1])
    return found


class TestCachedWalks:
    @pytest.mark.parametrize("seed", range(3))
    def test_continue_in_the_order_of_git_log(self, tmp_path: Path, seed: int):
        repository = Repository.open(
            make_history(tmp_path / "made.git", commits=500, merges_every=3, seed=seed).path, history_cache=HistoryCache()
        )
        start = str(repository.resolve("master"))
        expected = git_log(repository, start)
        starts = random.Random(seed).sample(range(len(expected)), 12)
        for skip in [*range(0, len(expected), 90), *starts]:
            assert [found.oid for found in list_history(repository, start, skip=skip, limit=30)] == expected[skip : skip + 30]
            filtered = filter_history(repository, start, CommitFilter(), first_parent=False, skip=skip, limit=30)
            assert filtered.commits == list(enumerate(expected))[skip : skip + 30]
        first_parents = git(repository.path, "log", "--first-parent", "--format=%H", start).split()
        for skip in range(0, len(first_parents), 40):
            page = filter_history(repository, start, CommitFilter(), first_parent=True, skip=skip, limit=40)
            assert [oid for _, oid in page.commits] == first_parents[skip : skip + 40]

    def test_a_later_page_reads_only_what_no_page_has_read(self, tmp_path: Path, read: list[str]):
        repository = Repository.open(make_history(tmp_path / "made.git", commits=1000, merges_every=5).path, history_cache=HistoryCache())
        start = str(repository.resolve("master"))
        list_history(repository, start, skip=800, limit=20)
        for skip in (800, 820, 300):
            read.clear()
            assert len(list_history(repository, start, skip=skip, limit=20)) == 20
            # Twenty walked, twenty shown, the edge, and the start.
            assert len(read) <= 2 * 20 + 6

    def test_a_page_that_was_too_deep_is_reached_later(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        repository = Repository.open(make_history(tmp_path / "made.git", commits=2 * MIN_CACHED_COMMITS).path, history_cache=HistoryCache())
        start = str(repository.resolve("master"))
        expected = git_log(repository, start)
        list_history(repository, start, skip=MIN_CACHED_COMMITS, limit=1)
        monkeypatch.setattr(log, "MAX_WALK_SECONDS", -1.0)
        for _ in range(2):
            with pytest.raises(HistoryTooDeep):
                list_history(repository, start, skip=MIN_CACHED_COMMITS + 3, limit=1)
        assert [found.oid for found in list_history(repository, start, skip=MIN_CACHED_COMMITS + 3, limit=1)] == [
            expected[MIN_CACHED_COMMITS + 3]
        ]

    def test_a_start_that_was_removed_is_unknown(self, tmp_path: Path):
        repository = Repository.open(make_history(tmp_path / "made.git", commits=2 * MIN_CACHED_COMMITS).path, history_cache=HistoryCache())
        start = str(repository.resolve("master"))
        list_history(repository, start, skip=MIN_CACHED_COMMITS, limit=1)
        repository.path.rename(tmp_path / "removed.git")
        Repository.create(tmp_path / "made.git")
        empty = Repository.open(tmp_path / "made.git", history_cache=repository.history_cache)

        with pytest.raises(UnknownCommit):
            list_history(empty, start, skip=0, limit=1)

    def test_the_estimate_is_within_a_factor_of_two(self, repository: Repository):
        tip = commit(repository, 1)
        for time in range(2, 2 + MIN_CACHED_COMMITS):
            tip = commit(repository, time, tip)
        walked = HistoryWalk(tip)
        while walked.advance(repository) is not None and len(walked) < MIN_CACHED_COMMITS:
            pass
        cached = walked.copy()
        with measure_memory() as measured:
            copies = [cached.copy() for _ in range(50)]
        size = measured.bytes / len(copies)
        # A copy shares the strings of the frontier; the cache's key and entry come on top.
        assert size < cached.estimated_bytes


class TestErrors:
    def test_an_unknown_start(self, repository: Repository):
        with pytest.raises(UnknownCommit):
            page_of_log(repository, "f" * 40)

    def test_a_missing_parent(self, repository: Repository):
        start = commit(repository, 1, "f" * 40)

        assert page_of_log(repository, start, limit=1) == [start]
        with pytest.raises(DamagedRepository):
            page_of_log(repository, start)


def test_a_walk_over_its_time_limit_is_reported(repository: Repository, monkeypatch: pytest.MonkeyPatch):
    root = commit(repository, 1)
    start = commit(repository, 3, commit(repository, 2, root))
    monkeypatch.setattr(log, "MAX_WALK_SECONDS", -1.0)

    assert [found.oid for found in list_history(repository, start, skip=0, limit=1)] == [start]
    with pytest.raises(HistoryTooDeep):
        list_history(repository, start, skip=1, limit=1)
