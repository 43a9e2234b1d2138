"""The paths that commits change, and the messages of tags, as hooks report them."""

from pathlib import Path

import pytest

from storage.git.diffs import changed_paths
from storage.git.diffs.changed_paths import ChangedPaths, list_changed_paths
from storage.git.repository import DamagedRepository, Repository
from storage.git.tag_objects import read_message
from tests.support.git.git_history import commit_files, commit_rows, git, tree_row, write_tree


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "bare.git"
    git(tmp_path, "init", "-q", "--bare", str(folder))
    return folder


class TestChangedPaths:
    def test_are_those_of_git_without_renames(self, path: Path) -> None:
        before = {
            "same": b"1", "changed": b"1", "mode": b"1", "gone": b"1", "a/b/c/old": b"1", "a/same": b"1", "file": b"1", "folder/x": b"1",
            "sub": (0o160000, b"5" * 40), "Übung/é": b"1", b"\xff": b"1",
        }  # fmt: skip
        after = {
            **{name: before[name] for name in ("same", "a/same")}, "changed": b"2", "mode": (0o100755, b"1"), "a/b/c/new": b"1",
            "file/x": b"1", "folder": b"1", "sub": (0o160000, b"6" * 40), "Übung/é": b"2", b"\xff": b"2",
        }  # fmt: skip
        first = commit_files(path, before)  # type: ignore[arg-type]
        second = commit_files(path, after, first)  # type: ignore[arg-type]
        repository = Repository.open(path)

        found = list_changed_paths(repository, second, first)

        names = {"A": found.added, "M": found.modified, "D": found.removed}
        rows = git(path, "-c", "core.quotePath=false", "diff-tree", "-r", "-z", "--no-renames", "--name-status", first, second)
        fields = rows.strip("\0").split("\0")
        for status, paths in names.items():
            expected = sorted(name for kind, name in zip(fields[::2], fields[1::2], strict=True) if kind == status)
            assert [name.replace("�", "?") for name in paths] == [name.replace("�", "?").replace("\udcff", "?") for name in expected]
        assert list_changed_paths(repository, first, None).added[:3] == ["a/b/c/old", "a/same", "changed"]
        assert list_changed_paths(repository, second, second) == ChangedPaths()

    def test_in_folders_whose_mode_has_a_leading_zero_are_those_of_git(self, path: Path) -> None:
        one, two = (git(path, "hash-object", "-w", "--stdin", stdin=content) for content in (b"1", b"2"))
        old, new, renamed = (
            write_tree(path, tree_row("100644", "a", one) + tree_row(mode, "b", oid))
            for mode, oid in (("100644", one), ("100644", two), ("100664", two))
        )
        first = commit_rows(path, tree_row("040000", "folder", old))
        second = commit_rows(path, tree_row("040000", "folder", new), first)
        # Only the modes are written in another way.
        third = commit_rows(path, tree_row("40000", "folder", renamed), second)
        repository = Repository.open(path)

        assert git(path, "diff-tree", "-r", "--name-status", first, second) == "M\tfolder/b"
        assert list_changed_paths(repository, second, first) == ChangedPaths(modified=["folder/b"])
        assert git(path, "diff-tree", "-r", second, third) == ""
        assert list_changed_paths(repository, third, second) == ChangedPaths()
        assert list_changed_paths(repository, first, None) == ChangedPaths(added=["folder/a", "folder/b"])

    def test_are_bounded(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        commit = commit_files(path, {f"{n}/{n}": b"1" for n in range(10)})
        repository = Repository.open(path)
        monkeypatch.setattr(changed_paths, "MAX_LISTED_PATHS", 4)
        found = list_changed_paths(repository, commit, None)
        assert (len(found), found.is_complete) == (4, False)
        monkeypatch.setattr(changed_paths, "MAX_LISTED_PATHS", 10)
        found = list_changed_paths(repository, commit, None)
        assert (len(found), found.is_complete) == (10, True)
        monkeypatch.setattr(changed_paths, "MAX_LISTED_TREES", 3)
        found = list_changed_paths(repository, commit, None)
        assert (len(found), found.is_complete) == (2, False)
        with pytest.raises(DamagedRepository):
            list_changed_paths(repository, "1" * 40, None)


def test_only_annotated_tags_have_a_message(path: Path) -> None:
    commit = commit_files(path, {"a": b"1"})
    git(path, "tag", "-a", "-m", "Version 1\n\nNotes", "v1", commit)
    repository = Repository.open(path)

    assert read_message(repository, git(path, "rev-parse", "v1")) == "Version 1\n\nNotes"
    assert read_message(repository, commit) is None
    assert read_message(repository, "1" * 40) is None
