"""What one branch would bring to another: within a repository, from a fork, and with every name that a branch can have."""

from pathlib import Path

import pytest

from storage.git import program, proposals
from storage.git.importing import import_history
from storage.git.repository import Repository, UnknownCommit
from tests.history import commit_files, git, grow, make_history

HOSTILE = ["--output=x", "-x", "@{-1}", "HEAD", "a b", "../x", "x" * 255, "é" * 127, "\udce9", "a\0b", "", ":/x", "refs/heads/master"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_history(tmp_path / "one.git", commits=8).path


@pytest.fixture
def repository(path: Path) -> Repository:
    return Repository.open(path)


def head(repository: Repository, branch: str) -> str:
    found = proposals.head_of(repository.path, branch)
    assert found is not None
    return found


class TestPropose:
    def test_lists_counts_and_measures_what_the_source_brings(self, path: Path, repository: Repository) -> None:
        grow(path, "feature", {"new.txt": b"one\n"}, start="master", message="First, for #1")
        last = grow(path, "feature", {"new.txt": b"one\ntwo\n", "other.txt": b"x\n"}, message="Second")

        found = proposals.propose(repository, last, head(repository, "master"))

        assert (found.base, found.count, found.mergeable) == (head(repository, "master"), 2, True)
        assert found.oids[0] == last and len(found.oids) == 2
        assert [commit.title for commit in found.newest] == ["Second", "First, for #1"]
        assert found.messages == ("First, for #1\n",)
        assert found.stat is not None and (found.stat.files, found.stat.additions, found.stat.deletions) == (2, 3, 0)

    def test_both_sides_changed_the_same_line(self, path: Path, repository: Repository) -> None:
        grow(path, "mine", {"file": b"mine\n"}, start="master")
        grow(path, "theirs", {"file": b"theirs\n"}, start="master")

        assert proposals.propose(repository, head(repository, "mine"), head(repository, "theirs")).mergeable is False

    def test_unrelated_histories_have_no_base_and_cannot_be_merged(self, path: Path, repository: Repository) -> None:
        lonely = commit_files(path, {"file": b"alone\n"})

        found = proposals.propose(repository, lonely, head(repository, "master"))

        assert (found.base, found.stat, found.mergeable, found.count, found.oids) == (None, None, False, 1, (lonely,))

    def test_a_merge_that_takes_too_long_is_not_known(self, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        def slow(*_: object) -> None:
            raise program.GitFailed("git merge-tree took more than 20 s")

        monkeypatch.setattr(proposals, "try_merge", slow)
        assert proposals.propose(repository, head(repository, "topic"), head(repository, "master")).mergeable is None

    def test_lists_so_many_and_counts_all(self, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(proposals, "MOST_COMMITS", 1)
        monkeypatch.setattr(proposals.ids_between, "__kwdefaults__", {"limit": 1})

        found = proposals.propose(repository, head(repository, "topic"), head(repository, "master"))

        assert (len(found.oids), found.count) == (1, 2)

    @pytest.mark.parametrize("wrong", ["--output=x", "@{-1}", "master", "0" * 40, "HEAD"])
    def test_takes_ids_of_commits_alone(self, repository: Repository, wrong: str) -> None:
        with pytest.raises(UnknownCommit):
            proposals.propose(repository, wrong, head(repository, "master"))
        with pytest.raises(UnknownCommit):
            proposals.bringer(repository, wrong, head(repository, "master"))


class TestHeadOf:
    @pytest.mark.parametrize("name", HOSTILE)
    def test_a_name_is_looked_up_as_it_is(self, path: Path, name: str) -> None:
        assert proposals.head_of(path, name) is None

    def test_a_name_like_an_option_is_a_branch_where_one_is_called_so(self, path: Path, repository: Repository) -> None:
        master = head(repository, "master")
        git(path, "update-ref", "refs/heads/--output=x", master)

        assert proposals.head_of(path, "--output=x") == master


class TestBring:
    @pytest.fixture
    def fork(self, tmp_path: Path, path: Path) -> Path:
        import_history(path, tmp_path / "fork.git")
        return tmp_path / "fork.git"

    def test_copies_what_is_missing_and_writes_no_ref(self, path: Path, repository: Repository, fork: Path) -> None:
        refs = git(path, "for-each-ref")
        oid = grow(fork, "feature", {"of-the-fork": b"x\n"}, start="master")
        git(fork, "tag", "in-the-fork", oid)

        proposals.bring(repository, fork, oid)

        assert git(path, "for-each-ref") == refs
        assert not (path / "FETCH_HEAD").exists() and not (path / "objects/info/alternates").exists()
        git(fork, "update-ref", "-d", "refs/heads/feature")
        assert git(path, "ls-tree", "--name-only", oid, "of-the-fork") == "of-the-fork"
        assert proposals.propose(repository, oid, head(repository, "master")).mergeable is True

    def test_what_is_here_is_not_asked_for(self, path: Path, repository: Repository) -> None:
        proposals.bring(repository, path / "nowhere", head(repository, "master"))

    def test_a_commit_that_the_fork_has_not(self, repository: Repository, fork: Path) -> None:
        with pytest.raises(program.GitFailed):
            proposals.bring(repository, fork, "1" * 40)

    def test_runs_no_hook_of_either_side(self, path: Path, repository: Repository, fork: Path) -> None:
        for folder in (path, fork):
            for name in ("reference-transaction", "post-checkout", "pre-auto-gc"):
                hook = folder / "hooks" / name
                hook.parent.mkdir(exist_ok=True)
                hook.write_text(f"#!/bin/sh\ntouch {folder}/ran\n")
                hook.chmod(0o755)
        grow_environment = ["-c", "core.hooksPath=/dev/null"]
        oid = git(fork, *grow_environment, "commit-tree", "master^{tree}", "-p", "master", "-m", "More")

        proposals.bring(repository, fork, oid)
        proposals.keep(repository, 1, oid)

        assert not (path / "ran").exists() and not (fork / "ran").exists()

    def test_gives_up_in_time_and_leaves_no_process(self, repository: Repository, fork: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        oid = grow(fork, "feature", {"of-the-fork": b"x\n"}, start="master")
        monkeypatch.setattr(proposals, "FETCH_SECONDS", 0.0)

        with pytest.raises(program.GitFailed, match="took more than"):
            proposals.bring(repository, fork, oid)


class TestKeep:
    def test_the_commit_outlives_its_branch(self, path: Path, repository: Repository) -> None:
        oid = grow(path, "feature", {"file": b"x\n"}, start="master")

        proposals.keep(repository, 7, oid)
        proposals.keep(repository, 7, oid)
        git(path, "update-ref", "-d", "refs/heads/feature")
        git(path, "gc", "--quiet", "--prune=now")

        assert repository.find("refs/merge-requests/7/head") == oid
        assert proposals.has_commit(Repository.open(path), oid)

    def test_follows_the_head_wherever_it_goes(self, path: Path, repository: Repository) -> None:
        for branch in ("topic", "master"):
            proposals.keep(repository, 7, head(repository, branch))
            assert repository.find(proposals.ref_of(7)) == head(repository, branch)

    def test_is_taken_by_no_clone_and_no_copy(self, tmp_path: Path, path: Path, repository: Repository) -> None:
        proposals.keep(repository, 7, grow(path, "feature", {"file": b"x\n"}, start="master"))

        git(tmp_path, "clone", "--quiet", "--bare", path.as_uri(), "clone")
        import_history(path, tmp_path / "copy.git")

        for folder in (tmp_path / "clone", tmp_path / "copy.git"):
            assert "merge-requests" not in git(folder, "for-each-ref")
        git(tmp_path / "clone", "fetch", "--quiet", "origin", "refs/merge-requests/7/head")


class TestBrought:
    def test_tells_which_heads_a_move_brought(self, path: Path, repository: Repository) -> None:
        before = head(repository, "master")
        topic = head(repository, "topic")
        other = grow(path, "other", {"other": b"x\n"}, start="master")
        merged = grow(path, "master", {"m": b"x\n"})
        after = git(path, "commit-tree", f"{merged}^{{tree}}", "-p", merged, "-p", topic, "-m", "Merge topic")

        assert proposals.brought(repository, before, after, {topic, other, before}) == {topic}
        assert proposals.brought(repository, None, after, {topic, other, before}) == {topic, before}

    def test_names_the_merge_commit_that_brought_a_head(self, path: Path, repository: Repository) -> None:
        topic = head(repository, "topic")
        first = grow(path, "master", {"m": b"x\n"})
        merge = git(path, "commit-tree", f"{first}^{{tree}}", "-p", first, "-p", topic, "-m", "Merge topic")
        last = git(path, "commit-tree", f"{first}^{{tree}}", "-p", merge, "-m", "Later")

        assert proposals.bringer(repository, topic, last) == merge
        assert proposals.bringer(repository, topic, merge) == merge

    def test_names_the_head_where_the_branch_was_moved_to_it(self, path: Path, repository: Repository) -> None:
        topic = head(repository, "topic")
        later = git(path, "commit-tree", f"{topic}^{{tree}}", "-p", topic, "-m", "Later")

        assert proposals.bringer(repository, topic, topic) == topic
        assert proposals.bringer(repository, topic, later) == topic
