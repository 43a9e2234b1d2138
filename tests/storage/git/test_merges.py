"""Merge requests that the messages of merge commits name."""

from pathlib import Path

import pytest

from storage.git.history.merge_history import (
    MergedBranch,
    MergeMessage,
    first_parent_merges,
    highest_number,
    parse_merge_message,
    read_merges,
)
from storage.git.merge import diff_stat, diff_stats
from storage.git.repository import Repository
from tests.support.git.git_history import commit_to_branch, git, make_history


class TestMessageParsing:
    @pytest.mark.parametrize(
        ("message", "expected"),
        [
            ("Merge pull request #12 from ada/doors\n\nAdd a door\n", MergeMessage(12, "doors", "Add a door")),
            ("Merge pull request #12 from ada/feature/doors", MergeMessage(12, "feature/doors", None)),
            ("Merge pull request #3 in APP/app from doors to master", MergeMessage(3, "app", None)),
            ("Merge branch 'doors' into 'master'\n\nAdd a door\n\nSee merge request !7\n", MergeMessage(7, "doors", "Add a door")),
            ("Merge branch 'doors' into 'master'\n\nSee merge request group/app!7", MergeMessage(7, "doors", None)),
            ("Merge branch 'doors'", MergeMessage(None, "doors", None)),
            ("Merge remote-tracking branch 'origin/doors' into develop", MergeMessage(None, "doors", None)),
            ("Merged in doors (pull request #4)\n\nAdd a door", MergeMessage(4, "doors", "Add a door")),
            ("Merge #21: Add a door\n\nmore", MergeMessage(21, None, "Add a door")),
            ("Merge pull request #99999999999 from ada/doors", None),
            ("Merge branch 'master' of example.org:app", None),
            ("Merge branch 'master' of https://example.org/app into doors", None),
            ("Add a door", None),
            ("", None),
        ],
    )
    def test_is_read(self, message: str, expected: MergeMessage | None) -> None:
        assert parse_merge_message(message) == expected

    def test_is_read_in_time_in_line_with_its_length(self) -> None:
        assert parse_merge_message("Merge branch '" + "'" * 200_000) is None
        assert parse_merge_message("Merge pull request #1 from " + "a/" * 100_000) == MergeMessage(1, None, None)


class TestMerges:
    def test_are_listed_oldest_first_with_their_commits(self, tmp_path: Path) -> None:
        path = make_history(tmp_path / "app.git", commits=3, merges_every=0).path
        heads = []
        for number, name in enumerate(("doors", "walls"), 1):
            commit_to_branch(path, name, {f"{name}.txt": b"one\n"}, start="master", message=f"Begin {name}")
            heads.append(commit_to_branch(path, name, {f"{name}.txt": b"two\n"}, message=f"End {name}"))
            merge = git(
                path, "commit-tree", f"{name}^{{tree}}", "-p", "master", "-p", name, "-m", f"Merge pull request #{number} from ada/{name}"
            )
            git(path, "update-ref", "refs/heads/master", merge)
        repository = Repository.open(path)

        line = first_parent_merges(repository, git(path, "rev-parse", "master"))
        found = [each for each in read_merges(repository, line) if each is not None]

        assert highest_number(repository, line) == 2
        assert [each.head for each in found] == heads
        assert [each.message.number for each in found] == [1, 2]
        assert [len(each.oids) for each in found] == [2, 2]
        assert [each.base for each in found] == [git(path, "merge-base", f"{each.merge.oid}^1", each.head) for each in found]

    def test_a_history_without_merges_has_none(self, tmp_path: Path) -> None:
        path = make_history(tmp_path / "app.git", commits=5, merges_every=0).path
        repository = Repository.open(path)

        assert first_parent_merges(repository, git(path, "rev-parse", "master")) == []
        assert read_merges(repository, []) == []

    @pytest.mark.parametrize("size", [1, 3, 1000])
    @pytest.mark.parametrize("walked", [2, 100_000])
    def test_match_git_in_batches_of_any_size(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, walked: int) -> None:
        monkeypatch.setattr("storage.git.history.merge_history.MAX_WALKED_COMMITS", walked)
        monkeypatch.setattr("storage.git.history.merge_history.parse_merge_message", lambda message: MergeMessage(None, None, None))
        path = make_history(tmp_path / "app.git", commits=120, merges_every=4).path
        repository = Repository.open(path)
        line = first_parent_merges(repository, git(path, "rev-parse", "master"))
        assert len(line) > 8

        found: list[MergedBranch | None] = []
        for start in range(0, len(line), size):
            found += read_merges(repository, line[start : start + size])

        for oid, each in zip(line, found, strict=True):
            first, head = git(path, "rev-parse", f"{oid}^1", f"{oid}^2").split()
            assert each is not None
            assert (each.merge.oid, each.head, each.base) == (oid, head, git(path, "merge-base", first, head))
            assert list(each.oids) == git(path, "rev-list", f"^{first}", head).split()
            assert each.count == len(each.oids)
        pairs = [(each.base or "", each.head) for each in found if each is not None]
        assert diff_stats(repository, pairs) == [diff_stat(repository, *pair) for pair in pairs]
