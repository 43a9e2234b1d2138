"""Merges in a bare repository: the same result as git's, the same conflicts, and the commits between two."""

import threading
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from storage.git import merge
from storage.git.commit_writer import CommitSignature
from storage.git.diffs.diff import diff_between
from storage.git.merge import DiffTotals, MergeConflict, MergeTrial, UnrelatedHistories
from storage.git.repository import Repository, UnknownCommit
from storage.git.subprocesses.git_command import GitCommandError
from tests.support.git.git_history import commit_files, git, make_history
from tests.support.measuring.core_waits import measure_core_waits

AT = datetime(2026, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=-3, minutes=-30)))
AUTHOR = CommitSignature("A U Thor", "author@example.org", AT)
COMMITTER = CommitSignature("Forge", "forge@example.org", AT.astimezone(UTC))
TEXT = b"".join(b"line %d\n" % number for number in range(30))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Repository.create(tmp_path / "r.git").handle.free()
    return tmp_path / "r.git"


def objects(path: Path) -> set[str]:
    return {str(file) for file in (path / "objects").rglob("*") if file.is_file()}


def write(path: Path, ours: str, theirs: str, message: str = "Merge") -> str:
    return merge.write_merge(Repository.open(path), ours, theirs, message, AUTHOR, COMMITTER)


class TestTrialMerge:
    def test_leaves_nothing_behind(self, path: Path) -> None:
        base = commit_files(path, {"a": TEXT, "b": b"b\n"})
        ours = commit_files(path, {"a": TEXT.replace(b"line 2\n", b"ours\n"), "b": b"b\n"}, base)
        theirs = commit_files(path, {"a": TEXT.replace(b"line 25\n", b"theirs\n"), "b": b"b\n"}, base)
        before = objects(path)

        assert merge.try_merge(Repository.open(path), ours, theirs) == MergeTrial(True)
        assert objects(path) == before

    def test_names_the_conflicting_files(self, path: Path) -> None:
        base = commit_files(path, {"a": b"a\n", "deep/b": b"b\n", "c": b"c\n"})
        ours = commit_files(path, {"a": b"1\n", "deep/b": b"1\n", "c": b"1\n"}, base)
        theirs = commit_files(path, {"a": b"2\n", "deep/b": b"2\n", "c": b"c\n"}, base)

        assert merge.try_merge(Repository.open(path), ours, theirs) == MergeTrial(False, ("a", "deep/b"))

    def test_changed_here_and_deleted_there(self, path: Path) -> None:
        base = commit_files(path, {"a": TEXT, "b": b"b\n"})
        ours = commit_files(path, {"a": TEXT + b"more\n", "b": b"b\n"}, base)
        theirs = commit_files(path, {"b": b"b\n"}, base)

        assert merge.try_merge(Repository.open(path), ours, theirs) == MergeTrial(False, ("a",))

    def test_hostile_file_names_are_data(self, path: Path) -> None:
        names: list[str | bytes] = ["--output=x", "new\nline", "tab\there", b"not\xffutf8", "x" * 255, "@{-1}", " "]
        base = commit_files(path, dict.fromkeys(names, b"a\n"))
        ours = commit_files(path, dict.fromkeys(names, b"b\n"), base)
        theirs = commit_files(path, dict.fromkeys(names, b"c\n"), base)

        found = merge.try_merge(Repository.open(path), ours, theirs).conflicts

        assert set(found) == {"--output=x", "new\nline", "tab\there", "not\ufffdutf8", "x" * 255, "@{-1}", " "}

    def test_unrelated(self, path: Path) -> None:
        one, other = commit_files(path, {"a": b"1"}), commit_files(path, {"a": b"2"})

        assert merge.try_merge(Repository.open(path), one, other) == MergeTrial(False, unrelated=True)
        with pytest.raises(UnrelatedHistories):
            write(path, one, other)

    def test_a_timeout_ends_the_merge(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        base = commit_files(path, {"a": b"1"})
        ours, theirs = (commit_files(path, {"a": b"1", name: b"2"}, base) for name in "bc")
        monkeypatch.setattr(merge, "MERGE_SECONDS", -1.0)

        with pytest.raises(GitCommandError, match="took more than"):
            merge.try_merge(Repository.open(path), ours, theirs)
        # If only one side has changed anything, nothing has to be merged.
        assert merge.try_merge(Repository.open(path), base, theirs) == MergeTrial(True)
        assert git(path, "rev-parse", f"{write(path, base, theirs)}^{{tree}}") == git(path, "rev-parse", f"{theirs}^{{tree}}")

    @pytest.mark.parametrize("name", ["", "master", "HEAD", "--all", "f" * 40, "0" * 40, "-h"])
    def test_takes_only_ids_of_commits_that_are_there(self, name: str, path: Path) -> None:
        one = commit_files(path, {"a": b"1"})
        repository = Repository.open(path)
        for work in (merge.is_ancestor, merge.merge_base, merge.try_merge, merge.diff_stat, merge.count_between):
            for pair in ((one, name), (name, one)):
                if name == "" and work is merge.count_between:
                    continue
                with pytest.raises(UnknownCommit):
                    work(repository, *pair)


class TestWriteMerge:
    def test_the_commit_has_the_given_fields(self, path: Path) -> None:
        base = commit_files(path, {"a": TEXT})
        ours, theirs = commit_files(path, {"a": TEXT, "b": b"b"}, base), commit_files(path, {"a": TEXT, "c": b"c"}, base)

        oid = write(path, ours, theirs, "Merge branch 'c' into 'b'\n\nBecause: ü 🐙")

        raw = git(path, "cat-file", "commit", oid)
        assert raw.split("\n")[1:] == [
            f"parent {ours}",
            f"parent {theirs}",
            f"author A U Thor <author@example.org> {int(AT.timestamp())} -0330",
            f"committer Forge <forge@example.org> {int(AT.timestamp())} +0000",
            "",
            "Merge branch 'c' into 'b'",
            "",
            "Because: ü 🐙",
        ]
        assert git(path, "ls-tree", "--name-only", oid).split() == ["a", "b", "c"]
        git(path, "fsck", "--strict", "--no-dangling")

    def test_hostile_names_and_messages_stay_one_commit(self, path: Path) -> None:
        base = commit_files(path, {"a": b"a"})
        ours, theirs = commit_files(path, {"a": b"a", "b": b"b"}, base), commit_files(path, {"a": b"a", "c": b"c"}, base)
        evil = CommitSignature("Eve> <x\ncommitter Mallory", "a<b>\0@\nx", AT)

        oid = merge.write_merge(Repository.open(path), ours, theirs, "a\0b\udc80\r\n", evil, CommitSignature("", "", AT))

        commit = Repository.open(path).commit(oid)
        assert (commit.author_name, commit.author_email) == ("Eve   x committer Mallory", "ab@x")
        assert (commit.committer_name, commit.committer_email, commit.parents) == ("Unknown", "", (ours, theirs))
        git(path, "fsck", "--strict", "--no-dangling")

    def test_a_fast_forward_is_a_merge_commit_too(self, path: Path) -> None:
        ours = commit_files(path, {"a": b"a"})
        theirs = commit_files(path, {"a": b"b"}, ours)

        oid = write(path, ours, theirs)

        assert Repository.open(path).commit(oid).parents == (ours, theirs)
        assert git(path, "rev-parse", f"{oid}^{{tree}}") == git(path, "rev-parse", f"{theirs}^{{tree}}")

    def test_a_change_follows_a_rename(self, path: Path) -> None:
        base = commit_files(path, {"old": TEXT})
        ours = commit_files(path, {"deep/new": TEXT}, base)
        theirs = commit_files(path, {"old": TEXT.replace(b"line 7\n", b"changed\n")}, base)

        oid = write(path, ours, theirs)

        assert git(path, "ls-tree", "-r", "--name-only", oid) == "deep/new"
        assert "changed" in git(path, "cat-file", "blob", f"{oid}:deep/new")

    def test_criss_cross(self, path: Path) -> None:
        base = commit_files(path, {"a": TEXT})
        one = commit_files(path, {"a": TEXT.replace(b"line 1\n", b"one\n")}, base)
        two = commit_files(path, {"a": TEXT.replace(b"line 28\n", b"two\n")}, base)
        left, right = write(path, one, two), write(path, two, one)

        assert merge.try_merge(Repository.open(path), left, right).mergeable

    def test_a_conflict_writes_no_commit(self, path: Path) -> None:
        base = commit_files(path, {"a": b"a\n"})
        ours, theirs = commit_files(path, {"a": b"1\n"}, base), commit_files(path, {"a": b"2\n"}, base)

        with pytest.raises(MergeConflict) as raised:
            write(path, ours, theirs)
        assert raised.value.paths == ("a",)

    def test_moves_no_ref(self, path: Path) -> None:
        base = commit_files(path, {"a": b"a"})
        git(path, "update-ref", "refs/heads/master", base)
        write(path, base, commit_files(path, {"b": b"b"}, base))

        assert git(path, "for-each-ref", "--format=%(refname) %(objectname)") == f"refs/heads/master {base}"

    def test_an_offset_is_needed(self) -> None:
        with pytest.raises(ValueError, match="offset"):
            CommitSignature("x", "y", datetime(2026, 1, 1)).format()


class TestCommitsBetween:
    def test_ancestors(self, path: Path) -> None:
        base = commit_files(path, {"a": b"a"})
        left, right = commit_files(path, {"b": b"b"}, base), commit_files(path, {"c": b"c"}, base)
        repository = Repository.open(path)

        assert merge.is_ancestor(repository, base, left)
        assert merge.is_ancestor(repository, left, left)
        assert not merge.is_ancestor(repository, left, base)
        assert merge.merge_base(repository, left, right) == base
        assert merge.merge_base(repository, left, commit_files(path, {"z": b"z"})) is None

    def test_commits(self, tmp_path: Path) -> None:
        made = make_history(tmp_path / "m.git", commits=60)
        repository = Repository.open(made.path)
        master, topic = git(made.path, "rev-parse", "master"), git(made.path, "rev-parse", "topic")

        found = merge.commits_between(repository, master, topic, limit=100)

        assert [commit.oid for commit in found] == git(made.path, "rev-list", "master..topic").split()
        assert merge.count_between(repository, master, topic) == len(found) == 2
        assert merge.commits_between(repository, topic, topic, limit=5) == []
        assert merge.ahead_behind(repository, master, topic) == (2, int(git(made.path, "rev-list", "--count", "topic..master")))
        everything = git(made.path, "rev-list", "master").split()
        assert [commit.oid for commit in merge.commits_between(repository, None, master, limit=7, skip=3)] == everything[3:10]
        assert merge.count_between(repository, None, master) == len(everything)

    def test_changes_count_from_where_the_branch_left(self, path: Path) -> None:
        base = commit_files(path, {"a": TEXT, "b": b"b\n"})
        target = commit_files(path, {"a": TEXT, "b": b"later\n"}, base)
        source = commit_files(path, {"moved": TEXT, "b": b"b\n", "new": b"1\n2\n"}, base)
        repository = Repository.open(path)

        entries = diff_between(repository, merge.merge_base(repository, target, source), source)

        assert [(entry.old_path, entry.new_path, entry.renamed_file) for entry in entries] == [("a", "moved", True), ("new", "new", False)]
        assert merge.diff_stat(repository, base, source) == DiffTotals(2, 2, 0)
        assert merge.diff_stat(repository, base, base) == DiffTotals(0, 0, 0)
        assert merge.diff_stat(repository, base, target) == DiffTotals(1, 1, 1)

    def test_changes_of_an_unrelated_history_are_all_of_it(self, path: Path) -> None:
        one, other = commit_files(path, {"a": b"a\n"}), commit_files(path, {"b": b"b\n"})

        assert merge.merge_base(Repository.open(path), one, other) is None
        assert merge.diff_stat(Repository.open(path), None, other) == DiffTotals(1, 1, 0)
        assert merge.ahead_behind(Repository.open(path), one, other) == (1, 1)

    def test_a_long_walk_releases_the_gil(self, tmp_path: Path) -> None:
        made = make_history(tmp_path / "m.git", commits=1500, files=5)
        repository = Repository.open(made.path)
        first, master = git(made.path, "rev-list", "--max-parents=0", "master"), git(made.path, "rev-parse", "master")
        worst, done = 0.0, threading.Event()

        def work() -> None:
            for _ in range(5):
                merge.is_ancestor(repository, master, first)
            done.set()

        thread = threading.Thread(target=work)
        with measure_core_waits() as seconds_without_core:
            thread.start()
            while not done.is_set():
                before, waited = time.perf_counter(), seconds_without_core()
                time.sleep(0.001)
                worst = max(worst, time.perf_counter() - before - (seconds_without_core() - waited))
        thread.join()
        assert worst < 0.1
