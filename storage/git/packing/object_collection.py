"""Collections of a repository's objects: reachable ones move to one pack with a bitmap, others are deleted two weeks later.

1. The packs and loose objects that exist now are listed. Objects that pushes and merges add later stay untouched.
2. A new pack gets all objects that the tips reach: the refs, and what rows of the database name. It has a bitmap, which fetches use, and
   the commit graph is written for it.
3. Objects of the listed packs that no tip reaches move to a pack of their own, whose `.keep` file has the time; repacks leave it alone.
   An older pack may have some of them too, from before they were reachable for a while: the time counts again.
4. The listed packs are deleted. Packs of objects that are unreachable for UNREACHABLE_SECONDS leave the object store, unless a ref has
   moved meanwhile, or git found one of their objects when it had to write it again (it sets the time of the pack). Objects to which
   remaining objects refer move to the pack of step 3. Dropped packs stay in the folder `dropped` for another day: the next collection
   restores those of which a ref misses an object.

Packs are dropped in a transaction that has locked the refs of the project and gives them a new version (`ref_lock`). A push or a mutation
that found objects in the repository before notices that, and does not move its ref (`Repositories.may_lack`).

A killed process leaves more packs than needed, never fewer.
"""

import asyncio
import contextlib
import mmap
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from storage.git.packing import dropped_packs, packs, repack, unreachable_packs
from storage.git.refs.ref_lock import RefLock
from storage.git.subprocesses import background_command
from storage.git.subprocesses.git_command import GitCommandError

COLLECTION_SECONDS = 7 * 24 * 3600.0
"""A repository that has changed is collected at this interval."""
RETRY_SECONDS = 3600.0
MIN_BITMAP_OBJECTS = 5_000
"""A smaller repository is fast without a bitmap."""

_STAMP = "collected"
"""The file whose time is that of the last attempt."""
_FANOUT_OFFSET, _NAMES_OFFSET = 8, 8 + 256 * 4
"""Where an index has its table of counts by first byte, and its sorted object ids (gitformat-pack, version 2)."""


@dataclass(frozen=True, slots=True)
class CollectedObjects:
    """The result of a collection: the pack of all reachable objects, that of objects that became unreachable, the ids of deleted objects.

    A pack is None if it would be empty. An object that was written again at the last moment may be among those that are deleted. `expired`
    are the packs to drop, or that were dropped.
    """

    reachable: str | None
    unreachable: str | None
    deleted: Sequence[str] = ()
    expired: Collection[str] = ()

    def without_deletions(self) -> "CollectedObjects":
        """The same if the expired packs stay."""
        return replace(self, deleted=(), expired=())


def repositories_to_collect(root: Path) -> list[Path]:
    """Returns the repositories under `root` that a collection would improve. Reads only directories and the ends of indexes."""
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if path.suffix == ".git" and _is_due(path))


def _is_due(path: Path) -> bool:
    age = time.time() - _collected_at(path)
    if age < RETRY_SECONDS:
        return False
    names = packs.list_packs(path)
    complete = {name for name in names if (packs.folder_of(path) / f"{name}.bitmap").exists()}
    if not complete and _count_objects(path, names) >= MIN_BITMAP_OBJECTS and not (path / packs.SHALLOW).exists():
        return True
    return age >= COLLECTION_SECONDS and (bool(names - complete) or dropped_packs.has_any(path))


def _collected_at(path: Path) -> float:
    try:
        return (path / _STAMP).stat().st_mtime
    except (FileNotFoundError, NotADirectoryError):
        return 0.0


def _count_objects(path: Path, names: Collection[str]) -> int:
    total = 0
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            total += packs.count_objects(path, name)
    return total


@dataclass(frozen=True, slots=True)
class CollectionTips:
    """What a collection keeps, with all that it reaches.

    `refs` are the ids that the refs of the repository have, `named` those that other rows have, of which any may be missing. `lock` locks
    the refs, as `lock_refs` does, and yields None if one has moved since they were read.
    """

    refs: Collection[str]
    named: Collection[str]
    lock: Callable[[], AbstractAsyncContextManager[RefLock | None]]


async def collect(path: Path, tips: CollectionTips, moment: float) -> CollectedObjects | None:
    """Collects the objects of the repository; `moment` is the time in seconds since 1970.

    Returns None if another process is repacking it. Canceling the caller ends git.

    Raises GitCommandError if an object of a ref is missing, with nothing deleted, and after a time limit; OSError if the repository was
    removed meanwhile or the disk is full.
    """
    async with pack_objects(path, tips, moment) as collected:
        if collected is None:
            return None
        # Deletes what was dropped before, which may take long.
        await asyncio.to_thread(dropped_packs.drop, path, (), moment)
        if not collected.expired:
            return collected
        expired: list[str] = []
        async with tips.lock() as lock:
            if lock is not None:
                # Without those whose objects git has found again meanwhile.
                expired = await asyncio.to_thread(unreachable_packs.list_expired, path, collected.expired, moment)
                await asyncio.to_thread(dropped_packs.drop, path, expired, moment, lock.version)
        return replace(collected, expired=expired) if expired else collected.without_deletions()


@asynccontextmanager
async def pack_objects(path: Path, tips: CollectionTips, moment: float) -> AsyncIterator[CollectedObjects | None]:
    """As `collect`, but drops nothing: the caller does it within the block, for `expired` packs. No other process repacks meanwhile."""
    with repack.try_lock(path) as is_locked:
        if not is_locked:
            yield None
            return
        (path / _STAMP).touch()
        await asyncio.to_thread(repack.remove_partial_packs, packs.folder_of(path))
        try:
            collected = await _pack_once(path, tips, moment)
        except GitCommandError:
            if not await asyncio.to_thread(dropped_packs.restore, path):
                raise
            collected = await _pack_once(path, tips, moment)
        yield collected


async def _pack_once(path: Path, tips: CollectionTips, moment: float) -> CollectedObjects:
    await asyncio.to_thread(packs.pack_loose_objects, path)
    listed, unreachable = await asyncio.to_thread(unreachable_packs.list_packs, path)
    expired = set(await asyncio.to_thread(unreachable_packs.list_expired, path, unreachable, moment))
    retained = unreachable - expired
    oids = {*tips.refs, *tips.named}
    missing = await _find_missing(path, oids)
    if lost := missing.intersection(tips.refs):
        raise GitCommandError(f"{len(lost)} objects of refs are missing, as {min(lost)}")
    with _scratch_repository(path, oids - missing) as scratch:
        reachable = await _pack_reachable(path, scratch)
        complete = set() if reachable is None else {reachable}
        # Also what is in an older pack of unreachable objects, since it was written or reachable again.
        strays = await asyncio.to_thread(_list_absent, path, listed, complete)
        needed = await _list_needed(path, strays, retained, expired, complete, oids - missing)
        if needed is None:
            retained, expired = retained | expired, set()
        stray_pack = await _pack_objects(path, [*strays, *(needed or ())])
        remaining = retained | complete
        if stray_pack is not None:
            await asyncio.to_thread(unreachable_packs.mark_unreachable, path, stray_pack, moment)
            remaining.add(stray_pack)
        if not (path / packs.SHALLOW).exists():
            await _write_commit_graph(path, scratch)
    await asyncio.to_thread(packs.remove_packs, path, listed - remaining)
    expired -= remaining
    deleted = await asyncio.to_thread(_list_absent, path, expired, {*remaining, *unreachable} - expired)
    return CollectedObjects(reachable, stray_pack, deleted, sorted(expired))


async def _find_missing(path: Path, oids: Collection[str]) -> set[str]:
    stdin = "".join(f"{oid}\n" for oid in oids).encode()
    output = await background_command.run(path, "cat-file", "--batch-check", "--buffer", stdin=stdin)
    return {line.split()[0].decode() for line in output.splitlines() if line.endswith(b" missing")}


async def _list_needed(
    path: Path,
    strays: Collection[str],
    retained: Collection[str],
    expired: Collection[str],
    complete: Collection[str],
    tips: Collection[str],
) -> list[str] | None:
    """The objects that only expired packs have, and to which strays or objects of retained packs refer, directly or not.

    None if that cannot be determined, because other objects are missing.
    """
    only_expired = set(await asyncio.to_thread(_list_absent, path, expired, {*retained, *complete})).difference(strays)
    referring = [*strays, *await asyncio.to_thread(_list_absent, path, retained, complete)] if only_expired else []
    if not referring:
        return []
    stdin = "".join([*(f"{oid}\n" for oid in referring), *(f"^{oid}\n" for oid in tips)]).encode()
    try:
        output = await background_command.run(path, "rev-list", "--objects", "--no-object-names", "--stdin", stdin=stdin)
    except GitCommandError:
        return None
    return sorted(only_expired.intersection(output.decode("ascii").split()))


@contextmanager
def _scratch_repository(path: Path, tips: Collection[str]) -> Iterator[Path]:
    """Yields a folder that git takes for a repository whose refs are the tips; its objects are those of GIT_OBJECT_DIRECTORY.

    A bitmap can be written for all refs only, and those of the database are not all.
    """
    with tempfile.TemporaryDirectory(prefix="forgefront-collection-") as folder:
        scratch = Path(folder)
        (scratch / "refs").mkdir()
        (scratch / "HEAD").write_text("ref: refs/heads/none\n", "ascii")
        lines = "".join(f"{oid} refs/tips/{oid}\n" for oid in sorted(tips))
        (scratch / "packed-refs").write_text(f"# pack-refs with: sorted \n{lines}", "ascii")
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(path / packs.SHALLOW, scratch / packs.SHALLOW)
        yield scratch


def _objects_of(path: Path) -> dict[str, str]:
    return {"GIT_OBJECT_DIRECTORY": os.fspath(path.absolute() / "objects")}


async def _pack_reachable(path: Path, scratch: Path) -> str | None:
    bitmap = () if (path / packs.SHALLOW).exists() else ("--write-bitmap-index",)
    arguments = ("--all", "--keep-true-parents", "--delta-base-offset", "--non-empty", "--quiet", *bitmap, _pack_target(path))
    return _pack_name(await background_command.run(scratch, "pack-objects", *arguments, extra_environment=_objects_of(path)))


async def _pack_objects(path: Path, oids: Sequence[str]) -> str | None:
    if not oids:
        return None
    stdin = "".join(f"{oid}\n" for oid in oids).encode()
    arguments = ("--delta-base-offset", "--non-empty", "--quiet", _pack_target(path))
    return _pack_name(await background_command.run(path, "pack-objects", *arguments, stdin=stdin))


def _pack_target(path: Path) -> str:
    return str(packs.folder_of(path.absolute()) / "pack")


def _pack_name(output: bytes) -> str | None:
    checksum = output.decode("ascii").strip()
    return f"pack-{checksum}" if checksum else None


async def _write_commit_graph(path: Path, scratch: Path) -> None:
    """Writes the commit graph of all tips, with the paths that each commit changed, by which histories of paths are found."""
    await background_command.run(
        scratch, "commit-graph", "write", "--reachable", "--changed-paths", "--no-progress", extra_environment=_objects_of(path)
    )


def _list_absent(path: Path, names: Collection[str], others: Collection[str]) -> list[str]:
    """The ids of objects of these packs that the other ones do not have."""
    if not names:
        return []
    with contextlib.ExitStack() as stack:
        indexes = [stack.enter_context(_map_index(path, name)) for name in names]
        other_indexes = [stack.enter_context(_map_index(path, name)) for name in others]
        absent: list[str] = []
        # By their first byte, so that neither memory nor one step grows with the repository.
        for shard in range(256):
            found = {oid for index in indexes for oid in _list_shard(index, shard)}
            found.difference_update(*(_list_shard(index, shard) for index in other_indexes))
            absent += sorted(oid.hex() for oid in found)
        return absent


@contextmanager
def _map_index(path: Path, name: str) -> Iterator[mmap.mmap]:
    with (
        (packs.folder_of(path) / f"{name}.idx").open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as index,
    ):
        yield index


def _list_shard(index: mmap.mmap, shard: int) -> list[bytes]:
    """The ids in an index that begin with this byte."""
    start = _read_count(index, shard - 1) if shard else 0
    first = _NAMES_OFFSET + start * packs.ID_BYTES
    content = index[first : _NAMES_OFFSET + _read_count(index, shard) * packs.ID_BYTES]
    return [content[at : at + packs.ID_BYTES] for at in range(0, len(content), packs.ID_BYTES)]


def _read_count(index: mmap.mmap, shard: int) -> int:
    """The number of objects up to this first byte."""
    at = _FANOUT_OFFSET + shard * 4
    return int.from_bytes(index[at : at + 4])
