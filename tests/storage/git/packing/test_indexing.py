"""New commits are read completely, in chunks, whatever they contain; unreadable ones are reported."""

import contextlib
import os
from pathlib import Path

import pytest

from storage.git.history import commit_walk
from storage.git.repository import DamagedRepository, Repository
from storage.git.subprocesses.git_command import GitCommandError
from tests.support.git.git_history import commit_to_branch, git, make_history, write_commit

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.open(make_history(tmp_path / "r.git", commits=60, merges_every=4).path)


def tips(repository: Repository) -> set[str]:
    return {branch.oid for branch in repository.branches()}


def read_commits(repository: Repository, heads: set[str], known: set[str] | None = None) -> list[str]:
    return [commit.oid for chunk in commit_walk.walk_new_commits(repository, heads, known or set()) for commit in chunk]


def rev_list(repository: Repository, *arguments: str) -> list[str]:
    return git(repository.path, "rev-list", *arguments).split()


class TestNewCommits:
    def test_are_those_that_git_lists_in_its_order(self, repository: Repository) -> None:
        old = git(repository.path, "rev-parse", "master~5")
        assert read_commits(repository, tips(repository)) == rev_list(repository, "--all")
        assert read_commits(repository, tips(repository), {old}) == rev_list(repository, "--all", f"^{old}")
        assert read_commits(repository, tips(repository), tips(repository)) == []

    def test_are_read_as_every_commit_is(self, repository: Repository) -> None:
        for chunk in commit_walk.walk_new_commits(repository, tips(repository), set()):
            assert chunk == repository.commits([commit.oid for commit in chunk])

    def test_a_short_history_is_read_without_a_process(self, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        ((*expected,),) = commit_walk.walk_new_commits(repository, tips(repository), set())
        absent = "0" * 39 + "1"
        monkeypatch.setattr(commit_walk, "_start_process", None)
        assert commit_walk.read_short_history(repository, tips(repository)) == expected
        assert commit_walk.read_short_history(repository, {*tips(repository), absent}) is None
        monkeypatch.setattr(commit_walk, "MAX_CHAIN_COMMITS", len(expected) - 1)
        assert commit_walk.read_short_history(repository, tips(repository)) is None

    def test_a_short_chain_is_read_without_a_process(self, repository: Repository) -> None:
        old = git(repository.path, "rev-parse", "master")
        tree = git(repository.path, "rev-parse", "master^{tree}")
        chain = [old]
        for number in range(commit_walk.MAX_CHAIN_COMMITS + 1):
            # A parent may be younger than its child.
            head = f"tree {tree}\nparent {chain[0]}\nauthor A <a> 1 +0000\ncommitter C <c> {2_000_000_000 - number} +0000\n\n{number}\n"
            chain.insert(0, write_commit(repository.path, head.encode()))
        merge = git(repository.path, "rev-list", "--merges", "-1", "--parents", "master").split()
        before_merge = git(repository.path, "rev-parse", f"{merge[1]}~1")
        for tip, known in ((chain[1], {old}), (chain[-2], {old, merge[1]}), (old, {old})):
            chain_read = commit_walk.raw_chain(repository, tip, known)
            assert chain_read is not None
            found = commit_walk.parse_chain(repository, chain_read, known)
            assert found is not None
            assert [commit.oid for commit in found] == rev_list(repository, tip, *(f"^{oid}" for oid in known))
            assert found == repository.commits([commit.oid for commit in found])
        # It ends at its limit, and at a merge, whether that is known or not.
        for tip, end in ((chain[0], chain[commit_walk.MAX_CHAIN_COMMITS]), (merge[0], merge[0])):
            chain_read = commit_walk.raw_chain(repository, tip, {old, before_merge})
            assert chain_read is not None
            assert chain_read[-1][0] == end
            assert commit_walk.parse_chain(repository, chain_read, {before_merge}) is None
        assert commit_walk.raw_chain(repository, "1" * 40, {old}) is None

    def test_reachable_commits_are_found_within_a_bound(self, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        oids = rev_list(repository, "--all")
        for tip in (master := git(repository.path, "rev-parse", "master"), oids[20], oids[-1]):
            reachable = set(rev_list(repository, tip))
            found = {oid for oid in oids if commit_walk.is_reachable(repository, oid, {tip})}
            assert found <= reachable
            assert len(found) > len(reachable) * 0.9
        assert commit_walk.is_reachable(repository, oids[-1], set(oids[:3]))
        assert not commit_walk.is_reachable(repository, "1" * 40, {master})
        assert commit_walk.is_reachable(repository, oids[-1], {"1" * 40, master})
        monkeypatch.setattr(commit_walk, "MAX_EXAMINED_COMMITS", 10)
        assert not commit_walk.is_reachable(repository, oids[-1], {master})

    def test_come_in_chunks(self, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(commit_walk, "MAX_CHUNK_COMMITS", 25)
        assert [len(chunk) for chunk in commit_walk.walk_new_commits(repository, tips(repository), set())] == [25, 25, 10]
        assert [len(chunk) for chunk in commit_walk.walk_ids(repository, tips(repository))] == [25, 25, 10]
        monkeypatch.setattr(commit_walk, "MAX_CHUNK_BYTES", 1)
        assert [len(chunk) for chunk in commit_walk.walk_new_commits(repository, tips(repository), set())] == [1] * 60

    def test_missing_known_ids_are_ignored(self, repository: Repository) -> None:
        assert len(read_commits(repository, tips(repository), {"1" * 40})) == 60

    def test_only_object_ids_are_passed_to_git(self, repository: Repository) -> None:
        for wrong in ("--all", "HEAD", "master", "", "a" * 39, "A" * 40, f"{'a' * 40}\n--all"):
            with pytest.raises(ValueError, match="is not an object id"):
                read_commits(repository, {wrong})
            with pytest.raises(ValueError, match="is not an object id"):
                commit_walk.count_new_commits(repository, (), {wrong})

    def test_a_shallow_repository_ends_where_it_is_cut(self, repository: Repository, tmp_path: Path) -> None:
        git(tmp_path, "clone", "-q", "--bare", "--depth=3", f"file://{repository.path}", "shallow.git")
        shallow = Repository.open(tmp_path / "shallow.git")
        found = [commit for chunk in commit_walk.walk_new_commits(shallow, tips(shallow), set()) for commit in chunk]
        assert [commit.oid for commit in found] == rev_list(shallow, "--all")
        assert found == shallow.commits([commit.oid for commit in found])
        assert found == commit_walk.read_short_history(shallow, tips(shallow))
        assert found[-1].parents == ()

    def test_a_huge_commit_is_read_in_part(self, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(commit_walk, "MAX_COMMIT_BYTES", 1000)
        parent = git(repository.path, "rev-parse", "master")
        git(repository.path, "hash-object", "-t", "tree", "-w", "--stdin")
        head = f"tree {EMPTY_TREE}\nparent {parent}\nauthor A <a> 1 +0000\ncommitter C <c> 2000000000 +0000\n\nHuge\n\n"
        oid = write_commit(repository.path, head.encode() + b"x" * 300_000)
        ((huge, next_one),) = [chunk[:2] for chunk in commit_walk.walk_new_commits(repository, {oid}, set())]
        assert (huge.oid, huge.title, next_one.oid) == (oid, "Huge", parent)
        assert len(huge.message) < 1000

    def test_a_missing_commit_is_reported(self, repository: Repository) -> None:
        heads, missing = tips(repository), git(repository.path, "rev-parse", "master~5")
        packs = [path.read_bytes() for path in (repository.path / "objects" / "pack").glob("*.pack")]
        for path in (repository.path / "objects" / "pack").iterdir():
            path.unlink()
        for pack in packs:
            git(repository.path, "unpack-objects", "-q", stdin=pack)
        (repository.path / "objects" / missing[:2] / missing[2:]).unlink()
        for reading in (commit_walk.walk_new_commits(repository, heads, set()), commit_walk.walk_ids(repository, heads)):
            with pytest.raises((GitCommandError, DamagedRepository)):
                list(reading)
        assert commit_walk.count_new_commits(repository, heads, set()) is None

    def test_stopping_early_ends_the_process(self, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(commit_walk, "MAX_CHUNK_COMMITS", 1)
        before = children()
        chunks = commit_walk.walk_new_commits(repository, tips(repository), set())
        next(chunks)
        chunks.close()
        assert children() <= before


def children() -> set[str]:
    """The child processes of this one, including ended ones that were not waited for."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if stat.read_text().rpartition(")")[2].split()[1] == str(os.getpid()):
                found.add(stat.parent.name)
    return found


class TestHeads:
    def test_absent_are_ids_without_an_object(self, repository: Repository) -> None:
        oid = commit_to_branch(repository.path, "master", {"a": b"a"})
        assert commit_walk.absent_ids(repository, [oid, "1" * 40, "no id"]) == ["1" * 40, "no id"]
