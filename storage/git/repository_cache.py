"""Repositories whose packs are in a bucket: the folder of a host is a cache, which any host can rebuild from the database and the bucket.

A repository's folder shows one version of the refs (`projection.py`). Before it is used, the host compares that with the version of the
database; if it is older, or the folder does not exist, the host downloads the packs that it lacks and writes the refs.

New objects are in the folder only, until `publish` uploads them. That comes before the transaction whose refs reach them, so every ref of
the database can be read on every host. Objects that no transaction made reachable are packed and uploaded with the next ones.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import structlog
from sqlalchemy import select
from sqlmodel import col

from storage.database.engine import Database, DatabaseSession
from storage.disk_sync import replace_file
from storage.git.packing import dropped_packs, object_collection, pack_transfer, packs, repack, unreachable_packs
from storage.git.packing.bucket_packs import BucketPacks, PackReplacement
from storage.git.packing.object_collection import CollectedObjects, CollectionTips
from storage.git.packing.pack_transfer import PacksUnavailable
from storage.git.refs import projection, ref_projector
from storage.git.refs.ref_names import DEFAULT_HEAD
from storage.git.repositories import Repositories, StagedRepository
from storage.git.repository import NotARepository, RefTargets, Repository
from storage.git.subprocesses.git_command import GitCommandError
from storage.objects.object_store import ObjectStore
from storage.tables.git import packs as rows
from storage.tables.git import refs
from storage.tables.projects.projects import Project

DEFAULT_MAX_BYTES = 10 * 2**30
DELETED_SECONDS = 3600.0
"""The copy of a project that does not exist is deleted after this time; that of a new project has no row yet."""
IDS_PER_STATEMENT = 500
MAX_ATTEMPTS = 3
NO_PACKS = (
    "project {} has refs, but no packs in the bucket. Start the service once on the host whose folder has its repository, which moves it to"
    " the bucket."
)
_USAGE = "usage"
"""The file that users of a repository lock (shared) against its eviction; its time is that of the last use."""

T = TypeVar("T")

log = structlog.get_logger("packs")


@dataclass(frozen=True, slots=True)
class _Copy:
    """The copy of a repository; `used_at` in seconds since 1970."""

    project_id: int
    bytes: int
    used_at: float


class RepositoryCache(Repositories):
    """Repositories in `store`, of which `root` has copies; `evict` deletes those that exceed `max_bytes`."""

    def __init__(self, root: Path, database: Database, store: ObjectStore, *, max_bytes: int = DEFAULT_MAX_BYTES, workers: int = 4) -> None:
        super().__init__(root, workers=workers)
        self.store = store
        self.max_bytes = max_bytes
        self._database = database
        self._packs = BucketPacks(database, store)

    @asynccontextmanager
    async def use(self, project_id: int) -> AsyncIterator[Path]:
        path = self.path_of(project_id)
        version = await self._read_version(project_id)
        # A project whose refs were never read into the database (version 0) has its repository in the folder of another host.
        if not version and not path.is_dir():
            yield path
            return
        usage = await self._lock_usage(project_id)
        try:
            if version is not None:
                await ref_projector.project_refs(self._database, self, project_id, version)
            yield path
        finally:
            os.close(usage)

    async def read(
        self, project_id: int, work: Callable[[Repository], T], *, refs: RefTargets | None = None, cancellable: bool = False
    ) -> T:
        async with self.use(project_id):
            return await super().read(project_id, work, refs=refs, cancellable=cancellable)

    async def prepare_folder(self, project_id: int) -> bool:
        if not (path := self.path_of(project_id)).is_dir():
            await asyncio.to_thread(self._create, path)
        return True

    async def fetch_packs(self, project_id: int, *, is_empty: bool = False) -> None:
        path = self.path_of(project_id)
        current = await self.list_packs(project_id)
        if not current and not is_empty:
            raise PacksUnavailable(NO_PACKS.format(project_id))
        local = await asyncio.to_thread(packs.list_packs, path)
        missing = [pack for pack in current if pack.name not in local]
        await self._packs.download(missing, path)
        await asyncio.to_thread(_finish_fetch, path, current, local)
        if missing:
            log.info("packs downloaded", project_id=project_id, number=len(missing), bytes=sum(pack.pack_bytes for pack in missing))

    async def fetch_new_packs(self, project_id: int) -> None:
        async with self.use(project_id) as path, projection.lock(path):
            await self.fetch_packs(project_id)

    async def list_packs(self, project_id: int) -> list[rows.Pack]:
        """The current packs of a project."""
        return await self._packs.list_current(project_id)

    async def insert_packs(self, session: DatabaseSession, project_id: int, uploaded: Sequence[dict[str, Any]]) -> None:
        await self._packs.insert(project_id, uploaded, session)

    async def may_lack(self, project_id: int, version: int) -> bool:
        # What is in no dropped pack was published before the transaction.
        async with self._database.read_session() as session:
            return bool(await session.read(rows.dropped_since(project_id, version)))

    async def publish(self, project_id: int, session: DatabaseSession | None = None) -> None:
        path = self.path_of(project_id)
        if not await asyncio.to_thread(packs.has_unpublished, path):
            return
        async with projection.lock(packs.folder_of(path)):
            await asyncio.to_thread(packs.pack_loose_objects, path)
            for attempt in range(MAX_ATTEMPTS):
                try:
                    await self._publish_packs(project_id, path, session)
                    return
                except FileNotFoundError:
                    # A pack was combined with others meanwhile; the new one has its objects.
                    if attempt == MAX_ATTEMPTS - 1:
                        raise

    async def _publish_packs(self, project_id: int, path: Path, session: DatabaseSession | None) -> None:
        names = await asyncio.to_thread(lambda: packs.list_packs(path) - packs.read_published(path))
        if not names:
            return
        # A process that was killed may have uploaded some.
        uploaded = await self._packs.upload(path, names - await self._packs.find_known(project_id, names))
        await self._packs.insert(project_id, uploaded, session)
        if session is None:
            await self.mark_published(path, names)

    async def publish_all(self, on_published: Callable[[], None]) -> None:
        """As `publish`, for all projects whose folders have something new, as when they were the only place of the repositories."""
        ids = [copy.project_id for copy in await asyncio.to_thread(self._list_copies)]
        for project_id in sorted(await self._existing_projects(ids)):
            if await asyncio.to_thread(packs.has_unpublished, self.path_of(project_id)):
                await self.publish(project_id)
                on_published()

    async def publish_staged(self, staged: Path) -> StagedRepository:
        await asyncio.to_thread(packs.pack_loose_objects, staged)
        names = packs.list_packs(staged)
        uploaded = await self._packs.upload(staged, names)
        await asyncio.to_thread(packs.write_published, staged, names)
        return StagedRepository(staged, uploaded)

    async def mark_published(self, path: Path, names: set[str]) -> None:
        """Records in the folder that these packs are in the bucket."""
        async with projection.lock(path):
            packs.write_published(path, packs.read_published(path) & packs.list_packs(path) | names)

    async def repack(self, project_id: int) -> bool:
        """Combines packs, uploads the new ones, and replaces the old ones in the database, whose objects stay for a grace period."""
        async with self._lease_packs(project_id) as path:
            if path is None:
                return False
            before = await asyncio.to_thread(packs.list_packs, path)
            if not await repack.repack(path):
                return False
            async with projection.lock(packs.folder_of(path)):
                replacement = await self._packs.upload_replacement(path, before)
                async with self._database.write_session() as session:
                    await self._packs.replace(session, project_id, replacement)
                    await session.commit()
                await self.mark_published(path, replacement.added)
            return True

    async def collect(self, project_id: int, tips: CollectionTips, moment: datetime) -> CollectedObjects | None:
        async with self._database.read_session() as session:
            [(collected_at,)] = await session.read(rows.collected_at(project_id))
        # Another host may have done it, whose bitmap this one does not have.
        if collected_at is not None and collected_at > moment - timedelta(seconds=object_collection.COLLECTION_SECONDS):
            return None
        async with self._lease_packs(project_id) as path:
            if path is None:
                return None
            try:
                return await self._collect(project_id, path, tips, moment.timestamp())
            except GitCommandError:
                if not await self._packs.restore_dropped(project_id):
                    raise
            await self.fetch_new_packs(project_id)
            return await self._collect(project_id, path, tips, moment.timestamp())

    async def _collect(self, project_id: int, path: Path, tips: CollectionTips, moment: float) -> CollectedObjects | None:
        before = await asyncio.to_thread(packs.list_packs, path)
        async with object_collection.pack_objects(path, tips, moment) as collected:
            if collected is None:
                return None
            async with projection.lock(packs.folder_of(path)):
                replacement = await self._packs.upload_replacement(path, before)
                if not await self._replace_and_drop(project_id, replacement, collected, tips):
                    collected = collected.without_deletions()
                    async with self._database.write_session() as session:
                        await self._packs.replace(session, project_id, replacement, collected)
                        await session.commit()
                await self.mark_published(path, replacement.added)
            await asyncio.to_thread(dropped_packs.drop, path, collected.expired, moment)
            return collected

    async def _replace_and_drop(
        self, project_id: int, replacement: PackReplacement, collected: CollectedObjects, tips: CollectionTips
    ) -> bool:
        """Replaces packs and drops the expired ones, unless there are none, or a ref has moved meanwhile. Returns whether it did."""
        if not collected.expired:
            return False
        async with tips.lock() as lock:
            if lock is None:
                return False
            await self._packs.replace(lock.session, project_id, replacement, collected)
            await lock.session.execute(rows.drop(project_id, collected.expired, lock.version))
            return True

    @asynccontextmanager
    async def _lease_packs(self, project_id: int) -> AsyncIterator[Path | None]:
        """Yields the folder with exactly the current packs, all published, for a repack or a collection; None if another host does one."""
        async with self._packs.lease(project_id) as is_leased:
            if not is_leased:
                yield None
                return
            async with self.use(project_id) as path:
                await self.publish(project_id)
                # Without those that another host has replaced.
                await self.fetch_new_packs(project_id)
                yield path

    async def evict(self) -> int:
        """Deletes the least recently used copies until the others fit, and those of deleted projects; returns how many.

        Copies that are in use stay. Objects that are not in the bucket yet are uploaded before; a copy for which that fails stays, and the
        log has the reason. Raises ConnectionError if the bucket cannot be reached.
        """
        copies = await asyncio.to_thread(self._list_copies)
        excess, evicted = sum(copy.bytes for copy in copies) - self.max_bytes, 0
        existing = await self._existing_projects([copy.project_id for copy in copies])
        for copy in sorted(copies, key=lambda copy: copy.used_at):
            is_deleted = copy.project_id not in existing and copy.used_at < time.time() - DELETED_SECONDS
            if not is_deleted and not (excess > 0 and copy.project_id in existing):
                continue
            try:
                if not is_deleted:
                    await self.publish(copy.project_id)
                is_evicted = await asyncio.to_thread(self._try_evict, copy.project_id, is_deleted)
            except ConnectionError:
                raise
            except (GitCommandError, NotARepository, OSError) as error:
                log.error("copy of a repository cannot be evicted", project_id=copy.project_id, error=str(error) or type(error).__name__)
                continue
            if is_evicted:
                excess -= copy.bytes
                evicted += 1
        if evicted:
            log.info("copies of repositories evicted", number=evicted)
        return evicted

    def _list_copies(self) -> list["_Copy"]:
        found = []
        for path in self.root.glob("[0-9]*.git"):
            usage = path / _USAGE
            with contextlib.suppress(FileNotFoundError):
                used_at = (usage if usage.exists() else path).stat().st_mtime
                found.append(_Copy(int(path.stem), packs.size_of(path), used_at))
        return found

    async def _existing_projects(self, ids: Sequence[int]) -> set[int]:
        found: set[int] = set()
        async with self._database.read_session() as session:
            for start in range(0, len(ids), IDS_PER_STATEMENT):
                statement = select(col(Project.id)).where(col(Project.id).in_(ids[start : start + IDS_PER_STATEMENT]))
                found |= {key for (key,) in await session.read(statement)}
        return found

    def _try_evict(self, project_id: int, is_deleted: bool) -> bool:
        """Deletes a copy, unless it is in use or has objects that are nowhere else."""
        path = self.path_of(project_id)
        try:
            descriptor = os.open(path / _USAGE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not is_deleted and packs.has_unpublished(path):
                return False
            self.remove(project_id)
            return True
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)

    async def _read_version(self, project_id: int) -> int | None:
        """The version of the refs of the database; None if there is no such project."""
        async with self._database.read_session() as session:
            found = await session.read(refs.version(project_id))
        return found[0][0] if found else None

    def _create(self, path: Path) -> None:
        """Creates an empty repository; another process may do it at the same time."""
        folder = self.root / f".incoming-{path.name}-{secrets.token_hex(4)}"
        folder.mkdir(parents=True)
        try:
            Repository.initialize(folder, DEFAULT_HEAD)
            folder.rename(path)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise

    async def _lock_usage(self, project_id: int) -> int:
        """Locks the repository's folder against eviction, and returns the file descriptor that has the lock."""
        file = self.path_of(project_id) / _USAGE
        while True:
            await self.prepare_folder(project_id)
            try:
                descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                # Otherwise the folder was evicted in between.
                if os.fstat(descriptor).st_ino == file.stat().st_ino:
                    os.utime(descriptor)
                    return descriptor
            except (BlockingIOError, FileNotFoundError):
                pass
            os.close(descriptor)
            await asyncio.sleep(projection.LOCK_POLL_SECONDS)


def _finish_fetch(path: Path, current: Sequence[rows.Pack], local: set[str]) -> None:
    """Records the packs of the bucket, and deletes those that newer ones have replaced there."""
    if shallow := pack_transfer.merge_shallow(current):
        replace_file(path / packs.SHALLOW, shallow)
    for pack in current:
        # A pack that this host wrote itself may have been found unreachable by another.
        unreachable_packs.set_mark(path, pack.name, pack.created_at.timestamp() if pack.is_reachable is False else None)
    names = {pack.name for pack in current}
    packs.remove_packs(path, packs.read_published(path) & local - names)
    packs.write_published(path, names)
