"""The commits of a merge request: within a repository, from a fork, and with every valid branch name."""

from pathlib import Path

import pytest

from storage.git import merge_preview
from storage.git.importing.repository_import import import_repository
from storage.git.repository import Repository, UnknownCommit
from storage.git.subprocesses import git_command
from tests.support.git.git_history import commit_files, commit_to_branch, git, make_history

HOSTILE = ["--output=x", "-x", "@{-1}", "HEAD", "a b", "../x", "x" * 255, "é" * 127, "\udce9", "a\0b", "", ":/x", "refs/heads/master"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_history(tmp_path / "one.git", commits=8).path


@pytest.fixture
def repository(path: Path) -> Repository:
    return Repository.open(path)


def head(repository: Repository, branch: str) -> str:
    found = Repository.open(repository.path).find_ref(f"refs/heads/{branch}")
    assert found is not None
    return found


class TestPropose:
    def test_lists_and_counts_commits_of_the_source(self, path: Path, repository: Repository) -> None:
        commit_to_branch(path, "feature", {"new.txt": b"one\n"}, start="master", message="First, for #1")
        last = commit_to_branch(path, "feature", {"new.txt": b"one\ntwo\n", "other.txt": b"x\n"}, message="Second")

        found = merge_preview.preview_merge(repository, last, head(repository, "master"))

        assert (found.base, found.count, found.mergeable) == (head(repository, "master"), 2, True)
        assert found.oids[0] == last and len(found.oids) == 2
        assert [commit.title for commit in found.newest] == ["Second", "First, for #1"]
        assert found.messages == ("First, for #1\n",)
        assert found.stat is not None and (found.stat.files, found.stat.additions, found.stat.deletions) == (2, 3, 0)

    def test_messages_that_may_mention_issues_are_found_among_few_and_among_many(
        self, path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number, message in enumerate(("For #1", "Nothing", "As\n\nhttp://forge/issues/2 says")):
            last = commit_to_branch(path, "feature", {"new.txt": b"%d\n" % number}, start=None if number else "master", message=message)
        few = merge_preview.preview_merge(repository, last, head(repository, "master"))
        monkeypatch.setattr(merge_preview, "MAX_LOADED_COMMITS", 2)
        many = merge_preview.preview_merge(repository, last, head(repository, "master"))
        assert few.messages == many.messages == ("As\n\nhttp://forge/issues/2 says\n", "For #1\n")

    def test_both_sides_changed_the_same_line(self, path: Path, repository: Repository) -> None:
        commit_to_branch(path, "mine", {"file": b"mine\n"}, start="master")
        commit_to_branch(path, "theirs", {"file": b"theirs\n"}, start="master")

        assert merge_preview.preview_merge(repository, head(repository, "mine"), head(repository, "theirs")).mergeable is False

    def test_unrelated_histories_have_no_base_and_cannot_be_merged(self, path: Path, repository: Repository) -> None:
        lonely = commit_files(path, {"file": b"alone\n"})

        found = merge_preview.preview_merge(repository, lonely, head(repository, "master"))

        assert (found.base, found.stat, found.mergeable, found.count, found.oids) == (None, None, False, 1, (lonely,))

    def test_a_merge_that_takes_too_long_is_not_known(self, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        def slow(*_: object) -> None:
            raise git_command.GitCommandError("git merge-tree took more than 20 s")

        monkeypatch.setattr(merge_preview, "try_merge", slow)
        assert merge_preview.preview_merge(repository, head(repository, "topic"), head(repository, "master")).mergeable is None

    def test_the_list_is_bounded_and_the_count_is_not(self, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(merge_preview, "MAX_COMMITS", 1)
        monkeypatch.setattr(merge_preview.ids_between, "__kwdefaults__", {"limit": 1})

        found = merge_preview.preview_merge(repository, head(repository, "topic"), head(repository, "master"))

        assert (len(found.oids), found.count) == (1, 2)

    @pytest.mark.parametrize("wrong", ["--output=x", "@{-1}", "master", "0" * 40, "HEAD"])
    def test_rejects_ids_of_other_objects(self, repository: Repository, wrong: str) -> None:
        with pytest.raises(UnknownCommit):
            merge_preview.preview_merge(repository, wrong, head(repository, "master"))
        with pytest.raises(UnknownCommit):
            merge_preview.introducing_commit(repository, wrong, head(repository, "master"))


class TestFetchFromFork:
    @pytest.fixture
    def fork(self, tmp_path: Path, path: Path) -> Path:
        import_repository(path, tmp_path / "fork.git")
        return tmp_path / "fork.git"

    def test_copies_missing_objects_and_writes_no_ref(self, path: Path, repository: Repository, fork: Path) -> None:
        refs = git(path, "for-each-ref")
        oid = commit_to_branch(fork, "feature", {"of-the-fork": b"x\n"}, start="master")
        git(fork, "tag", "in-the-fork", oid)

        merge_preview.fetch_commit(repository, fork, oid)

        assert git(path, "for-each-ref") == refs
        assert not (path / "FETCH_HEAD").exists() and not (path / "objects/info/alternates").exists()
        git(fork, "update-ref", "-d", "refs/heads/feature")
        assert git(path, "ls-tree", "--name-only", oid, "of-the-fork") == "of-the-fork"
        assert merge_preview.preview_merge(repository, oid, head(repository, "master")).mergeable is True

    def test_existing_objects_are_not_fetched(self, path: Path, repository: Repository) -> None:
        merge_preview.fetch_commit(repository, path / "nowhere", head(repository, "master"))

    def test_a_commit_that_the_fork_has_not(self, repository: Repository, fork: Path) -> None:
        with pytest.raises(git_command.GitCommandError):
            merge_preview.fetch_commit(repository, fork, "1" * 40)

    def test_runs_no_hook_of_either_side(self, path: Path, repository: Repository, fork: Path) -> None:
        for folder in (path, fork):
            for name in ("reference-transaction", "post-checkout", "pre-auto-gc"):
                hook = folder / "hooks" / name
                hook.parent.mkdir(exist_ok=True)
                hook.write_text(f"#!/bin/sh\ntouch {folder}/ran\n")
                hook.chmod(0o755)
        grow_environment = ["-c", "core.hooksPath=/dev/null"]
        oid = git(fork, *grow_environment, "commit-tree", "master^{tree}", "-p", "master", "-m", "More")

        merge_preview.fetch_commit(repository, fork, oid)

        assert not (path / "ran").exists() and not (fork / "ran").exists()

    def test_a_timeout_leaves_no_process(self, repository: Repository, fork: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        oid = commit_to_branch(fork, "feature", {"of-the-fork": b"x\n"}, start="master")
        monkeypatch.setattr(merge_preview, "FETCH_SECONDS", 0.0)

        with pytest.raises(git_command.GitCommandError, match="took more than"):
            merge_preview.fetch_commit(repository, fork, oid)


class TestKeepRef:
    def test_is_taken_by_no_clone_and_no_copy(self, tmp_path: Path, path: Path, repository: Repository) -> None:
        git(path, "update-ref", "refs/merge-requests/7/head", commit_to_branch(path, "feature", {"file": b"x\n"}, start="master"))

        git(tmp_path, "clone", "--quiet", "--bare", path.as_uri(), "clone")
        import_repository(path, tmp_path / "copy.git")

        for folder in (tmp_path / "clone", tmp_path / "copy.git"):
            assert "merge-requests" not in git(folder, "for-each-ref")
        git(tmp_path / "clone", "fetch", "--quiet", "origin", "refs/merge-requests/7/head")


class TestMergedHeads:
    def test_returns_the_heads_merged_by_a_move(self, path: Path, repository: Repository) -> None:
        before = head(repository, "master")
        topic = head(repository, "topic")
        other = commit_to_branch(path, "other", {"other": b"x\n"}, start="master")
        merged = commit_to_branch(path, "master", {"m": b"x\n"})
        after = git(path, "commit-tree", f"{merged}^{{tree}}", "-p", merged, "-p", topic, "-m", "Merge topic")

        assert merge_preview.newly_reachable(repository, before, after, {topic, other, before}) == {topic}
        assert merge_preview.newly_reachable(repository, None, after, {topic, other, before}) == {topic, before}

    def test_returns_the_merge_commit_of_a_head(self, path: Path, repository: Repository) -> None:
        topic = head(repository, "topic")
        first = commit_to_branch(path, "master", {"m": b"x\n"})
        merge = git(path, "commit-tree", f"{first}^{{tree}}", "-p", first, "-p", topic, "-m", "Merge topic")
        last = git(path, "commit-tree", f"{first}^{{tree}}", "-p", merge, "-m", "Later")

        assert merge_preview.introducing_commit(repository, topic, last) == merge
        assert merge_preview.introducing_commit(repository, topic, merge) == merge

    def test_names_the_head_where_the_branch_was_moved_to_it(self, path: Path, repository: Repository) -> None:
        topic = head(repository, "topic")
        later = git(path, "commit-tree", f"{topic}^{{tree}}", "-p", topic, "-m", "Later")

        assert merge_preview.introducing_commit(repository, topic, topic) == topic
        assert merge_preview.introducing_commit(repository, topic, later) == topic
