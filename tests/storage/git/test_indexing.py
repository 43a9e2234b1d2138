"""New commits are read whole, in chunks, whatever they say; and what cannot be read is said."""

import contextlib
import os
from pathlib import Path

import pytest

from storage.git import indexing
from storage.git.program import GitFailed
from storage.git.repository import DamagedRepository, Repository
from tests.history import git, grow, make_history, write_commit

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.open(make_history(tmp_path / "r.git", commits=60, merges_every=4).path)


def tips(repository: Repository) -> set[str]:
    return set(indexing.heads(repository).values())


def read(repository: Repository, wanted: set[str], known: set[str] | None = None) -> list[str]:
    return [commit.oid for chunk in indexing.new_commits(repository, wanted, known or set()) for commit in chunk]


def rev_list(repository: Repository, *arguments: str) -> list[str]:
    return git(repository.path, "rev-list", *arguments).split()


class TestNewCommits:
    def test_are_those_that_git_lists_in_its_order(self, repository: Repository) -> None:
        old = git(repository.path, "rev-parse", "master~5")
        assert read(repository, tips(repository)) == rev_list(repository, "--all")
        assert read(repository, tips(repository), {old}) == rev_list(repository, "--all", f"^{old}")
        assert read(repository, tips(repository), tips(repository)) == []

    def test_are_read_as_every_commit_is(self, repository: Repository) -> None:
        for chunk in indexing.new_commits(repository, tips(repository), set()):
            assert chunk == repository.commits([commit.oid for commit in chunk])

    def test_come_in_chunks(self, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(indexing, "CHUNK", 25)
        assert [len(chunk) for chunk in indexing.new_commits(repository, tips(repository), set())] == [25, 25, 10]
        assert [len(chunk) for chunk in indexing.new_ids(repository, tips(repository))] == [25, 25, 10]
        monkeypatch.setattr(indexing, "CHUNK_BYTES", 1)
        assert [len(chunk) for chunk in indexing.new_commits(repository, tips(repository), set())] == [1] * 60

    def test_known_ids_that_are_not_there_count_for_nothing(self, repository: Repository) -> None:
        assert len(read(repository, tips(repository), {"1" * 40})) == 60

    def test_nothing_but_ids_gets_to_git(self, repository: Repository) -> None:
        for wrong in ("--all", "HEAD", "master", "", "a" * 39, "A" * 40, f"{'a' * 40}\n--all"):
            with pytest.raises(ValueError, match="no object id"):
                read(repository, {wrong})
            with pytest.raises(ValueError, match="no object id"):
                indexing.count(repository, (), {wrong})

    def test_a_shallow_repository_ends_where_it_is_cut(self, repository: Repository, tmp_path: Path) -> None:
        git(tmp_path, "clone", "-q", "--bare", "--depth=3", f"file://{repository.path}", "shallow.git")
        shallow = Repository.open(tmp_path / "shallow.git")
        found = [commit for chunk in indexing.new_commits(shallow, tips(shallow), set()) for commit in chunk]
        assert [commit.oid for commit in found] == rev_list(shallow, "--all")
        assert found == shallow.commits([commit.oid for commit in found])
        assert found[-1].parents == ()

    def test_a_huge_commit_is_read_in_part(self, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(indexing, "LARGEST_COMMIT", 1000)
        parent = git(repository.path, "rev-parse", "master")
        git(repository.path, "hash-object", "-t", "tree", "-w", "--stdin")
        head = f"tree {EMPTY_TREE}\nparent {parent}\nauthor A <a> 1 +0000\ncommitter C <c> 2000000000 +0000\n\nHuge\n\n"
        oid = write_commit(repository.path, head.encode() + b"x" * 300_000)
        ((huge, next_one),) = [chunk[:2] for chunk in indexing.new_commits(repository, {oid}, set())]
        assert (huge.oid, huge.title, next_one.oid) == (oid, "Huge", parent)
        assert len(huge.message) < 1000

    def test_a_missing_commit_is_said(self, repository: Repository) -> None:
        wanted, gone = tips(repository), git(repository.path, "rev-parse", "master~5")
        packs = [path.read_bytes() for path in (repository.path / "objects" / "pack").glob("*.pack")]
        for path in (repository.path / "objects" / "pack").iterdir():
            path.unlink()
        for pack in packs:
            git(repository.path, "unpack-objects", "-q", stdin=pack)
        (repository.path / "objects" / gone[:2] / gone[2:]).unlink()
        for reading in (indexing.new_commits(repository, wanted, set()), indexing.new_ids(repository, wanted)):
            with pytest.raises((GitFailed, DamagedRepository)):
                list(reading)
        assert indexing.count(repository, wanted, set()) is None

    def test_no_process_is_left_by_one_who_stops(self, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(indexing, "CHUNK", 1)
        before = children()
        chunks = indexing.new_commits(repository, tips(repository), set())
        next(chunks)
        chunks.close()
        assert children() <= before


def children() -> set[str]:
    """The processes that this one started, also those that ended and were not asked after."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if stat.read_text().rpartition(")")[2].split()[1] == str(os.getpid()):
                found.add(stat.parent.name)
    return found


class TestHeads:
    def test_are_the_branches_whose_names_can_be_kept(self, repository: Repository) -> None:
        oid = git(repository.path, "rev-parse", "master")
        long = "/".join(["x" * 127] * 2)
        for name in (long, f"{long}x", "a" * 40, "ünï"):
            git(repository.path, "update-ref", f"refs/heads/{name}", oid)
        with (repository.path / "packed-refs").open("ab") as file:
            file.write(f"{oid} refs/heads/".encode() + b"bad\xff\n")
        assert indexing.heads(repository).keys() == {"master", "topic", long, "a" * 40, "ünï"} | (
            {f"{long}x"} if len(long) < 255 else set()
        )

    def test_absent_are_ids_without_an_object(self, repository: Repository) -> None:
        oid = grow(repository.path, "master", {"a": b"a"})
        assert indexing.absent(repository, [oid, "1" * 40, "no id"]) == ["1" * 40, "no id"]
