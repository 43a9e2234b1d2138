"""Collections of objects: one pack with a bitmap, unreachable objects deleted after two weeks, and nothing lost beside pushes."""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from storage.git.packing import dropped_packs, object_collection, packs, repack, unreachable_packs
from storage.git.packing.dropped_packs import DROPPED_SECONDS
from storage.git.packing.object_collection import COLLECTION_SECONDS, CollectedObjects, CollectionTips
from storage.git.packing.unreachable_packs import UNREACHABLE_SECONDS
from storage.git.refs.ref_lock import RefLock
from storage.git.repository import Repository
from storage.git.subprocesses.git_command import GitCommandError
from tests.support.git.git_history import commit_to_branch, git, make_history

NOW = 1_800_000_000.0
VERSION = 4711
"""That of the refs after packs were dropped."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_history(tmp_path / "1.git", commits=8).path


def refs_of(path: Path) -> list[str]:
    return git(path, "for-each-ref", "--format=%(objectname)").split()


def make_unreachable(path: Path, name: str) -> str:
    """A commit that no ref reaches, in a pack."""
    oid = commit_to_branch(path, name, {name: name.encode()}, start="master")
    git(path, "repack", "-d", "-q")
    git(path, "update-ref", "-d", f"refs/heads/{name}")
    return oid


class Clone:
    """A clone with the branch `mine`, which is pushed to the repository; each push makes a pack."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self.folder = path, folder
        git(path, "clone", "--quiet", str(path), str(folder))
        git(path, "config", "receive.unpackLimit", "1")
        git(folder, "checkout", "--quiet", "-b", "mine")

    def push(self, name: str) -> str:
        (self.folder / name).write_text(name)
        git(self.folder, "add", ".")
        git(self.folder, "commit", "--quiet", "--message", name)
        git(self.folder, "push", "--quiet", "origin", "mine")
        return git(self.folder, "rev-parse", "HEAD").strip()

    def delete(self) -> None:
        git(self.path, "update-ref", "-d", "refs/heads/mine")


def index_of(path: Path, name: str) -> bytes:
    return (packs.folder_of(path) / f"{name}.idx").read_bytes()


def has(path: Path, oid: str) -> bool:
    return git(path, "cat-file", "--batch-check", stdin=f"{oid}\n".encode()).split()[-1] != "missing"


def tips_of(refs: Collection[str], named: Collection[str] = (), *, are_current: bool = True) -> CollectionTips:
    @asynccontextmanager
    async def lock() -> AsyncIterator[RefLock | None]:
        yield RefLock(cast(Any, None), VERSION) if are_current else None

    return CollectionTips(refs, named, lock)


async def collect(path: Path, moment: float = NOW, named: Collection[str] = ()) -> CollectedObjects:
    collected = await object_collection.collect(path, tips_of(refs_of(path), named), moment)
    assert collected is not None
    assert git(path, "fsck", "--full", "--no-dangling") == ""
    return collected


class TestReachableObjects:
    async def test_are_in_one_pack_with_a_bitmap_and_a_commit_graph(self, path: Path) -> None:
        commit_to_branch(path, "master", {"new": b"x"})
        before = git(path, "rev-list", "--objects", "--all")

        collected = await collect(path)

        assert packs.list_packs(path) == {collected.reachable}
        assert packs.list_loose_objects(path) == []
        assert (packs.folder_of(path) / f"{collected.reachable}.bitmap").exists()
        assert git(path, "rev-list", "--objects", "--all") == before
        git(path, "commit-graph", "verify")
        assert git(path, "rev-list", "--use-bitmap-index", "--count", "--all") == git(path, "rev-list", "--count", "--all")
        assert await collect(path) == CollectedObjects(collected.reachable, None, [], [])

    async def test_are_also_those_that_rows_name(self, path: Path) -> None:
        named, other = make_unreachable(path, "named"), make_unreachable(path, "other")
        collected = await collect(path, named=[named, "0" * 40])
        assert collected.unreachable is not None
        await collect(path, NOW + UNREACHABLE_SECONDS, named=[named, "0" * 40])
        assert has(path, named)
        assert not has(path, other)

    async def test_of_a_shallow_repository_have_no_bitmap(self, path: Path, tmp_path: Path) -> None:
        shallow = tmp_path / "2.git"
        git(tmp_path, "clone", "--quiet", "--bare", "--depth=2", f"file://{path}", str(shallow))
        collected = await collect(shallow)
        assert packs.list_packs(shallow) == {collected.reachable}
        assert not list((shallow / "objects").rglob("*.bitmap"))
        assert Repository.open(shallow).resolve("master")


class TestUnreachableObjects:
    async def test_are_deleted_two_weeks_after_they_were_noticed(self, path: Path) -> None:
        first = make_unreachable(path, "first")
        collected = await collect(path)
        assert collected.unreachable is not None and not collected.deleted
        second = make_unreachable(path, "second")
        await collect(path, NOW + UNREACHABLE_SECONDS - 1)
        assert has(path, first) and has(path, second)

        collected = await collect(path, NOW + UNREACHABLE_SECONDS)

        assert not has(path, first) and has(path, second)
        assert first in collected.deleted and second not in collected.deleted
        assert (path / "dropped").exists()
        await collect(path, NOW + UNREACHABLE_SECONDS + DROPPED_SECONDS)
        assert not (path / "dropped").exists()

    async def test_stay_if_a_ref_reaches_them_again(self, path: Path) -> None:
        oid = make_unreachable(path, "back")
        await collect(path)
        git(path, "branch", "back", oid)
        collected = await collect(path, NOW + UNREACHABLE_SECONDS)
        assert has(path, oid)
        assert oid not in collected.deleted

    async def test_come_back_for_a_ref_that_was_set_while_they_were_dropped(self, path: Path) -> None:
        oid = make_unreachable(path, "late")
        await collect(path)
        before = refs_of(path)
        assert await object_collection.collect(path, tips_of(before), NOW + UNREACHABLE_SECONDS)
        assert not has(path, oid)

        assert await object_collection.collect(path, tips_of([*before, oid]), NOW + UNREACHABLE_SECONDS + COLLECTION_SECONDS)

        assert has(path, oid)
        git(path, "branch", "late", oid)
        assert git(path, "fsck", "--full", "--no-dangling") == ""

    async def test_stay_if_they_were_written_again(self, path: Path) -> None:
        first, second = make_unreachable(path, "first"), make_unreachable(path, "second")
        unreachable = (await collect(path)).unreachable
        moment = NOW + UNREACHABLE_SECONDS
        # A push whose pack has one of them.
        git(path, "pack-objects", "-q", str(packs.folder_of(path) / "pack"), stdin=f"{first}\n".encode())
        await collect(path, moment)
        assert has(path, first) and not has(path, second)
        for file in (path / "dropped").iterdir():
            file.rename(packs.folder_of(path) / file.name)
        # Git found it, and wrote nothing but the time of its pack.
        os.utime(packs.folder_of(path) / f"{unreachable}.pack", (moment, moment))
        await collect(path, moment + 1)
        assert has(path, second)

    async def test_stay_for_two_weeks_after_they_were_reachable_again(self, path: Path, tmp_path: Path) -> None:
        clone = Clone(path, tmp_path / "clone")
        parent = clone.push("parent")
        clone.delete()
        assert (await collect(path)).unreachable is not None
        # The branch exists again, with another commit, until just before the next collection.
        child = clone.push("child")
        clone.delete()
        again = await collect(path, NOW + COLLECTION_SECONDS)
        assert again.unreachable is not None

        assert not (await collect(path, NOW + UNREACHABLE_SECONDS)).deleted
        assert has(path, child) and has(path, parent)
        collected = await collect(path, NOW + COLLECTION_SECONDS + UNREACHABLE_SECONDS)
        assert {child, parent} <= set(collected.deleted)

    async def test_stay_while_newer_ones_refer_to_them(self, path: Path, tmp_path: Path) -> None:
        clone = Clone(path, tmp_path / "clone")
        parent, other = clone.push("parent"), make_unreachable(path, "other")
        clone.delete()
        await collect(path)
        # A branch is created at the commit, without writing it, and the child is pushed alone.
        git(path, "branch", "mine", parent)
        child = clone.push("child")
        clone.delete()
        await collect(path, NOW + COLLECTION_SECONDS)

        collected = await collect(path, NOW + UNREACHABLE_SECONDS)

        assert has(path, child) and has(path, parent) and not has(path, other)
        assert other in collected.deleted and parent not in collected.deleted
        git(path, "branch", "again", child)
        assert git(path, "rev-list", "--count", "--objects", "master..again") == "6"
        git(path, "branch", "-D", "again")
        collected = await collect(path, NOW + 2 * UNREACHABLE_SECONDS)
        assert {child, parent} <= set(collected.deleted)
        assert len(packs.list_packs(path)) == 1

    async def test_stay_if_others_that_are_retained_are_incomplete(self, path: Path, tmp_path: Path) -> None:
        clone = Clone(path, tmp_path / "clone")
        old = make_unreachable(path, "old")
        await collect(path)
        parent, child = clone.push("parent"), clone.push("child")
        clone.delete()
        git(path, "pack-objects", "-q", str(packs.folder_of(path) / "pack"), stdin=f"{child}\n".encode())
        packs.remove_packs(path, [name for name in packs.list_packs(path) if parent in git(path, "show-index", stdin=index_of(path, name))])
        tips = tips_of(refs_of(path))
        await object_collection.collect(path, tips, NOW + COLLECTION_SECONDS)
        await object_collection.collect(path, tips, NOW + UNREACHABLE_SECONDS)
        assert has(path, old)
        await collect(path, NOW + COLLECTION_SECONDS + UNREACHABLE_SECONDS)
        assert not has(path, old) and not has(path, child)

    async def test_that_are_known_are_not_packed_again(self, path: Path) -> None:
        make_unreachable(path, "stray")
        name = (await collect(path)).unreachable
        collected = await collect(path, NOW + COLLECTION_SECONDS)
        assert collected.unreachable is None
        assert packs.list_packs(path) == {collected.reachable, name}

    def test_are_unreachable_since_the_newest_mark_of_their_pack(self, path: Path) -> None:
        mark = packs.folder_of(path) / "pack-1.keep"
        for moment, expected in ((NOW, NOW), (NOW + 1, NOW + 1), (NOW, NOW + 1)):
            unreachable_packs.set_mark(path, "pack-1", moment)
            assert mark.read_text() == f"unreachable since {expected:.0f}\n"
        unreachable_packs.set_mark(path, "pack-1", None)
        assert not mark.exists()

    async def test_stay_for_now_if_a_ref_has_moved_meanwhile(self, path: Path) -> None:
        oid = make_unreachable(path, "stray")
        await collect(path)
        collected = await object_collection.collect(path, tips_of(refs_of(path), are_current=False), NOW + UNREACHABLE_SECONDS)
        assert collected is not None and not collected.deleted
        assert has(path, oid)

    async def test_stay_if_they_were_written_again_at_the_last_moment(self, path: Path) -> None:
        first, second = make_unreachable(path, "first"), make_unreachable(path, "second")
        name = (await collect(path)).unreachable

        @asynccontextmanager
        async def lock() -> AsyncIterator[RefLock | None]:
            # Git found one of its objects, as the collection waited.
            os.utime(packs.folder_of(path) / f"{name}.pack", (NOW + 1, NOW + 1))
            yield RefLock(cast(Any, None), VERSION)

        collected = await object_collection.collect(path, CollectionTips(refs_of(path), [], lock), NOW + UNREACHABLE_SECONDS)
        assert collected is not None and not collected.deleted
        assert has(path, first) and has(path, second)
        assert not dropped_packs.has_dropped(path, 0)

    async def test_that_were_dropped_since_a_version_of_the_refs_are_noticed(self, path: Path) -> None:
        make_unreachable(path, "stray")
        await collect(path)
        assert not dropped_packs.has_dropped(path, 0)
        await collect(path, NOW + UNREACHABLE_SECONDS)
        assert [dropped_packs.has_dropped(path, version) for version in (VERSION - 1, VERSION)] == [True, False]

    async def test_are_not_mixed_with_others_by_a_repack(self, path: Path) -> None:
        make_unreachable(path, "stray")
        collected = await collect(path)
        for number in range(3):
            commit_to_branch(path, "master", {"file": b"%d" % number})
            git(path, "repack", "-d", "-q")
        assert await repack.repack(path)
        assert collected.unreachable in packs.list_packs(path)


class TestCollection:
    async def test_of_a_repository_that_lacks_an_object_of_a_ref_deletes_nothing(self, path: Path) -> None:
        oid = make_unreachable(path, "stray")
        before = packs.list_packs(path)
        with pytest.raises(GitCommandError, match="1 objects of refs are missing, as 1111"):
            await object_collection.collect(path, tips_of([*refs_of(path), "1" * 40]), NOW)
        assert before <= packs.list_packs(path)
        assert has(path, oid)

    async def test_leaves_packs_of_running_pushes(self, path: Path) -> None:
        make_unreachable(path, "pushed")
        (name, *_) = sorted(packs.list_packs(path))
        (packs.folder_of(path) / f"{name}.keep").write_text("receive-pack 4711 on host")
        await collect(path)
        assert name in packs.list_packs(path)

    async def test_runs_beside_pushes_and_readers(self, path: Path) -> None:
        made: list[str] = []
        done = asyncio.Event()

        def push() -> None:
            made.append(commit_to_branch(path, "busy", {"file": b"%d\n" % len(made)}, start=None if made else "master"))
            Repository.open(path).commit(made[0])

        async def push_on() -> None:
            while not done.is_set() or len(made) < 2:
                await asyncio.to_thread(push)

        async with asyncio.TaskGroup() as group:
            group.create_task(push_on())
            for turn in range(4):
                assert await object_collection.collect(path, tips_of(refs_of(path)), NOW + turn * UNREACHABLE_SECONDS)
            done.set()

        assert git(path, "fsck", "--full", "--no-dangling") == ""
        assert all(has(path, oid) for oid in made)

    async def test_is_one_at_a_time(self, path: Path) -> None:
        with (path / "packing").open("a") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            assert await object_collection.collect(path, tips_of(refs_of(path)), NOW) is None

    async def test_is_due_without_a_bitmap_and_once_a_week_after_changes(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        root = path.parent

        def set_age(seconds: float) -> None:
            moment = time.time() - seconds
            os.utime(path / "collected", (moment, moment))

        git(path, "repack", "-d", "-q")
        await collect(path)
        assert object_collection.repositories_to_collect(root) == []
        set_age(COLLECTION_SECONDS + 1)
        assert object_collection.repositories_to_collect(root) == [], "nothing has changed"
        commit_to_branch(path, "master", {"new": b"x"})
        git(path, "repack", "-d", "-q")
        assert object_collection.repositories_to_collect(root) == [path]
        set_age(COLLECTION_SECONDS - 60)
        assert object_collection.repositories_to_collect(root) == []
        monkeypatch.setattr(object_collection, "MIN_BITMAP_OBJECTS", 10)
        assert object_collection.repositories_to_collect(root) == []
        for bitmap in packs.folder_of(path).glob("*.bitmap"):
            bitmap.unlink()
        assert object_collection.repositories_to_collect(root) == [path]
        assert object_collection.repositories_to_collect(root / "nowhere") == []
