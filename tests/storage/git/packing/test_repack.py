"""Repacking: many packs become few, no object is lost, beside pushes and readers."""

import asyncio
import fcntl
import os
import time
from pathlib import Path

import pytest

from storage.git import merge_preview
from storage.git.packing import repack
from storage.git.repository import Repository
from storage.git.subprocesses import background_command, git_command
from tests.support.git.git_history import commit_to_branch, git, make_history


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_history(tmp_path / "1.git", commits=8).path


def create_packs(path: Path, packs: int) -> list[str]:
    """A commit on master for each pack, as pushes leave them."""
    made = []
    for number in range(packs):
        made.append(commit_to_branch(path, "master", {"file": b"%d\n" % number}))
        git(path, "repack", "-d", "-q")
    return made


def packs_of(path: Path) -> int:
    return len(list((path / "objects/pack").glob("*.pack")))


def test_finds_those_with_many_packs_or_loose_objects_or_refs(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repack, "MAX_PACKS", 2)
    make_history(tmp_path / "2.git", commits=4)
    (tmp_path / ".incoming-x").mkdir()
    (tmp_path / "3.git").mkdir()
    assert repack.repositories_to_repack(tmp_path) == repack.repositories_to_repack(tmp_path / "nowhere") == []

    create_packs(path, 3)
    assert repack.repositories_to_repack(tmp_path) == [path]
    loose = tmp_path / "2.git/objects/17"
    loose.mkdir(exist_ok=True)
    for number in range(repack.MAX_LOOSE_OBJECTS + 1):
        (loose / f"{number:038x}").touch()
    assert repack.repositories_to_repack(tmp_path) == [path, tmp_path / "2.git"]


async def test_makes_few_packs_of_many_and_loses_nothing(path: Path) -> None:
    commits = create_packs(path, 6)
    stray = commit_to_branch(path, "stray", {"stray": b"x\n"}, start="master")
    git(path, "update-ref", "-d", "refs/heads/stray")
    reader = Repository.open(path)
    reader.commit(commits[0])
    before = packs_of(path)

    assert await repack.repack(path)

    assert packs_of(path) < before
    assert merge_preview.has_commit(Repository.open(path), stray), "what no ref reaches yet is kept"
    assert [reader.commit(oid).oid for oid in (*commits, stray)] == [*commits, stray]
    assert git(path, "fsck", "--connectivity-only", "--no-dangling") == ""


async def test_pushes_and_readers_go_on_meanwhile(path: Path) -> None:
    create_packs(path, 4)
    made: list[str] = []
    done = asyncio.Event()

    def push() -> None:
        made.append(commit_to_branch(path, "busy", {"file": b"%d\n" % len(made)}, start=None if made else "master"))
        Repository.open(path).commit(made[0])

    async def pushing() -> None:
        while not done.is_set() or len(made) < 2:
            await asyncio.to_thread(push)

    async with asyncio.TaskGroup() as group:
        group.create_task(pushing())
        for _ in range(3):
            await repack.repack(path)
        done.set()

    repository = Repository.open(path)
    assert repository.resolve("busy") == made[-1]
    assert all(merge_preview.has_commit(repository, oid) for oid in made)
    assert git(path, "fsck", "--connectivity-only", "--no-dangling") == ""


async def test_one_at_a_time(path: Path) -> None:
    with (path / "packing").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not await repack.repack(path)
    assert await repack.repack(path)


async def test_removes_old_leftovers_alone(path: Path) -> None:
    folder = path / "objects/pack"
    for name in ("tmp_pack_old", ".tmp-1-pack-x.pack", "tmp_pack_new"):
        (folder / name).write_bytes(b"half")
    past = time.time() - repack.LEFTOVER_SECONDS - 1
    for name in ("tmp_pack_old", ".tmp-1-pack-x.pack"):
        os.utime(folder / name, (past, past))

    await repack.repack(path)

    assert [entry.name for entry in folder.iterdir() if "tmp" in entry.name] == ["tmp_pack_new"]


async def test_is_canceled_at_its_timeout_and_with_its_caller(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = asyncio.Event()
    # In place of git, which may end before it is canceled.
    monkeypatch.setattr(git_command, "command", lambda *_, **settings: ["sleep", "60"])
    monkeypatch.setattr(os, "setpriority", lambda *_: started.set())
    async with asyncio.timeout(10):
        task = asyncio.create_task(repack.repack(path))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        monkeypatch.setattr(background_command, "TIMEOUT_SECONDS", 0.0)
        with pytest.raises(git_command.GitCommandError, match="took more than"):
            await repack.repack(path)


async def test_a_missing_repository(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await repack.repack(tmp_path / "9.git")
