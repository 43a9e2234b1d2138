"""Answers that are found without a git process are those of git."""

import random
from pathlib import Path

import pytest

from storage.git import merge_preview
from storage.git.history import commit_walk, short_histories
from storage.git.history.history_cache import HistoryCache
from storage.git.history.short_histories import CommitRange, find_last_change, find_range
from storage.git.merge import is_ancestor
from storage.git.merge_preview import ids_between, introducing_commit
from storage.git.repository import Repository
from tests.support.git.git_history import git, write_commit


class RandomHistory:
    """Commits of a seeded random shape. Of ten commits, some have the same date; trees have one of few contents at each path."""

    PATHS = ("a", "d/b", "d/e/c")

    def __init__(self, path: Path, *, commits: int) -> None:
        rng = random.Random(11)
        git(path.parent, "init", "-q", "--bare", str(path))
        self.path = path
        self.oids: list[str] = []
        self._trees: dict[tuple[int, ...], str] = {}
        contents: list[tuple[int, ...]] = []
        for number in range(commits):
            parents = rng.sample(range(max(0, number - 5), number), min(number, rng.choice((0, 1, 1, 1, 1, 1, 2, 2, 3)) or int(number > 1)))
            values = list(contents[parents[0]]) if parents else [0, 0, 0]
            if rng.random() < 0.5:
                values[rng.randrange(3)] = rng.randrange(3)
            contents.append(tuple(values))
            lines = [f"tree {self._tree(contents[-1])}", *(f"parent {self.oids[parent]}" for parent in parents)]
            who = f"A <a@example.org> {1_400_000_000 + number // 3} +0000"
            self.oids.append(write_commit(path, "\n".join([*lines, f"author {who}", f"committer {who}", "", f"{number}\n"]).encode()))

    def _tree(self, values: tuple[int, ...]) -> str:
        """The file of the value 0 is absent."""
        if values not in self._trees:
            blobs = [git(self.path, "hash-object", "-w", "--stdin", stdin=b"%d" % value) for value in values]
            inner = self._write_tree(f"100644 blob {blobs[2]}\tc" if values[2] else "")
            folder = self._write_tree("\n".join([*([f"100644 blob {blobs[1]}\tb"] if values[1] else []), f"040000 tree {inner}\te"]))
            rows = [*([f"100644 blob {blobs[0]}\ta"] if values[0] else []), f"040000 tree {folder}\td"]
            self._trees[values] = self._write_tree("\n".join(rows))
        return self._trees[values]

    def _write_tree(self, rows: str) -> str:
        return git(self.path, "mktree", stdin=(rows + "\n").encode() if rows else b"")


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> RandomHistory:
    return RandomHistory(tmp_path_factory.mktemp("short") / "r.git", commits=60)


class TestRanges:
    def test_are_those_of_git(self, history: RandomHistory) -> None:
        repository, rng, decided = Repository.open(history.path), random.Random(3), 0
        for _ in range(40):
            start, end = rng.choices(history.oids, k=2)
            found = find_range(repository, start, end)
            bases = git(history.path, "merge-base", "--all", start, end).split() if found else []
            if found is not None:
                decided += 1
                assert [found.merge_base] == bases
                assert found.ahead == git(history.path, "rev-list", f"^{start}", end).split()
                assert found.behind == git(history.path, "rev-list", f"^{end}", start).split()
        assert decided > 20

    def test_answer_the_questions_about_merges(self, history: RandomHistory, monkeypatch: pytest.MonkeyPatch) -> None:
        """The commits of a range, and which of them brought a head into a branch, are the same with and without a process."""
        repository, rng, decided = Repository.open(history.path), random.Random(5), 0
        pairs = [rng.choices(history.oids, k=2) for _ in range(40)]
        found = [
            (
                ids_between(repository, head, target),
                introducing_commit(repository, head, target) if is_ancestor(repository, head, target) else None,
                commit_walk.read_range(repository, target, head),
            )
            for head, target in pairs
        ]
        monkeypatch.setattr(merge_preview, "find_range", lambda *_: None)
        for (head, target), (oids, introduced_by, commits) in zip(pairs, found, strict=True):
            assert oids == ids_between(repository, head, target)
            if introduced_by is not None:
                assert introduced_by == introducing_commit(repository, head, target)
            if commits is not None:
                decided += 1
                assert commits == repository.commits(oids)
        assert decided > 20
        assert sum(each is not None for _, each, _ in found) > 5

    def test_whole_histories_are_those_of_git(self, history: RandomHistory) -> None:
        repository = Repository.open(history.path)
        for tip in history.oids:
            found = commit_walk.read_short_history(repository, [tip])
            assert found is not None
            assert [commit.oid for commit in found] == git(history.path, "rev-list", tip).split()

    def test_of_a_commit_with_itself_are_empty(self, history: RandomHistory) -> None:
        newest = history.oids[-1]

        assert find_range(Repository.open(history.path), newest, newest) == CommitRange(newest, [], [])

    def test_are_found_once_where_there_is_a_cache(self, history: RandomHistory, monkeypatch: pytest.MonkeyPatch) -> None:
        repository = Repository.open(history.path, history_cache=HistoryCache())
        start, end = history.oids[-4], history.oids[-1]
        found = find_range(repository, start, end)
        assert found is not None
        reverse = find_range(repository, end, start)
        monkeypatch.setattr(Repository, "raw_commit", lambda *_: pytest.fail("a commit was read again"))
        assert find_range(repository, start, end) == found
        assert find_range(repository, end, start) == reverse == CommitRange(found.merge_base, found.behind, found.ahead)

    def test_that_are_long_are_left_to_git(self, history: RandomHistory, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(short_histories, "MAX_EXAMINED_COMMITS", 5)

        assert find_range(Repository.open(history.path), history.oids[0], history.oids[-1]) is None

    def test_with_a_commit_newer_than_its_child_are_left_to_git(self, tmp_path: Path) -> None:
        git(tmp_path, "init", "-q", "--bare", str(tmp_path / "r.git"))
        tree = git(tmp_path / "r.git", "mktree", stdin=b"")
        oids: list[str] = []
        for seconds in (2_000, 1_000, 1_001):
            lines = [f"tree {tree}", *(f"parent {oid}" for oid in oids[-1:]), f"author A <a@b> {seconds} +0000"]
            oids.append(write_commit(tmp_path / "r.git", "\n".join([*lines, f"committer A <a@b> {seconds} +0000", "", "x"]).encode()))

        assert find_range(Repository.open(tmp_path / "r.git"), oids[0], oids[2]) is None


class TestLastChanges:
    def test_are_those_of_git(self, history: RandomHistory) -> None:
        repository = Repository.open(history.path)
        for start in history.oids[-1::-4]:
            for path in history.PATHS:
                assert (find_last_change(repository, start, path) or "") == git(history.path, "rev-list", "-1", start, "--", path)

    def test_that_are_far_are_left_to_git(self, history: RandomHistory, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(short_histories, "MAX_EXAMINED_COMMITS", 0)

        assert find_last_change(Repository.open(history.path), history.oids[-1], "a") is None
