"""The packs of repositories in a bucket, and their rows: uploads, downloads, replacements, and the lease of who replaces them."""

import asyncio
from collections.abc import AsyncIterator, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import structlog
from sqlalchemy.exc import IntegrityError

from storage.database.clock import now
from storage.database.engine import Database, DatabaseSession
from storage.database.errors import describe_error
from storage.git.packing import pack_transfer, packs
from storage.git.packing.object_collection import CollectedObjects
from storage.git.repository import NotARepository
from storage.objects.object_store import ObjectStore
from storage.tables.git import packs as rows
from storage.tables.git import refs

MAX_TRANSFERS = 8
"""Packs that one process uploads or downloads at once."""

LEASE_TIME = timedelta(minutes=10)
"""How long another host waits for one that was killed."""
RENEW_SECONDS = LEASE_TIME.total_seconds() / 3

T = TypeVar("T")

log = structlog.get_logger("packs")


@dataclass(frozen=True, slots=True)
class PackReplacement:
    """Names of packs that others replace, names of these, and the columns of their uploaded objects."""

    removed: set[str]
    added: set[str]
    uploaded: Sequence[dict[str, Any]]


class BucketPacks:
    """The packs in `store`, which the rows in `database` name."""

    def __init__(self, database: Database, store: ObjectStore) -> None:
        self._database = database
        self._store = store
        self._transfers = asyncio.Semaphore(MAX_TRANSFERS)

    async def list_current(self, project_id: int) -> list[rows.Pack]:
        async with self._database.read_session() as session:
            return [row[0] for row in await session.read(rows.current(project_id))]

    async def find_known(self, project_id: int, names: Collection[str]) -> set[str]:
        """Those of the names that have a row."""
        async with self._database.read_session() as session:
            return {name for (name,) in await session.read(rows.named(project_id, names))}

    async def download(self, missing: Sequence[rows.Pack], repository: Path) -> None:
        """Raises PacksUnavailable."""

        async def download_pack(pack: rows.Pack) -> None:
            async with self._transfers:
                await pack_transfer.download(self._store, pack, repository)

        await _run_all([download_pack(pack) for pack in missing])

    async def upload(self, repository: Path, names: Collection[str]) -> list[dict[str, Any]]:
        """Uploads packs of a folder, and returns the columns of their rows, without those of the project. Raises OSError."""

        async def upload_pack(name: str) -> dict[str, Any]:
            async with self._transfers:
                return await pack_transfer.upload(self._store, repository, name)

        return await _run_all([upload_pack(name) for name in sorted(names)])

    async def insert(self, project_id: int, uploaded: Sequence[dict[str, Any]], session: DatabaseSession | None) -> None:
        """Inserts the rows in the given transaction, or in one of its own. Raises NotARepository."""
        if session is not None:
            for columns in uploaded:
                await session.execute(rows.upsert(self._database.dialect, {"project_id": project_id, **columns}))
        elif uploaded:
            try:
                async with self._database.write_session() as writer:
                    await self.insert(project_id, uploaded, writer)
                    await writer.commit()
            except IntegrityError as error:
                raise NotARepository(f"project {project_id} was deleted") from error

    # Replacing packs.

    @asynccontextmanager
    async def lease(self, project_id: int) -> AsyncIterator[bool]:
        """Yields whether this host may replace the packs of a project; False if another host does. The lease is renewed until the end."""
        expires_at = await self._acquire_lease(project_id)
        if expires_at is None:
            yield False
            return
        has_ended = asyncio.Event()
        renewing = asyncio.create_task(self._renew_lease(project_id, expires_at, has_ended))
        try:
            yield True
        finally:
            # Not canceled, because it has to know whether a renewal was committed.
            has_ended.set()
            await self._release_lease(project_id, await renewing)

    async def _acquire_lease(self, project_id: int) -> datetime | None:
        moment = now()
        expires_at = moment + LEASE_TIME
        async with self._database.write_session() as session:
            result = await session.execute(rows.acquire_lease(self._database.dialect, project_id, moment, expires_at))
            await session.commit()
        return expires_at if result.rowcount else None

    async def _renew_lease(self, project_id: int, expires_at: datetime, has_ended: asyncio.Event) -> datetime:
        """Renews a lease until the event, and returns when it expires.

        A lease that was lost is not renewed; what two hosts replace at the same time stays complete.
        """
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEW_SECONDS):
                    await has_ended.wait()
                return expires_at
            renewed = now() + LEASE_TIME
            try:
                async with self._database.write_session() as session:
                    result = await session.execute(rows.renew_lease(project_id, expires_at, renewed))
                    await session.commit()
            except Exception as error:
                log.warning("lease of a repack not renewed", project_id=project_id, error=describe_error(error))
                continue
            if not result.rowcount:
                log.warning("lease of a repack lost", project_id=project_id)
                await has_ended.wait()
                return expires_at
            expires_at = renewed

    async def _release_lease(self, project_id: int, expires_at: datetime) -> None:
        """Gives up a lease, unless it has ended and another host has it."""
        async with self._database.write_session() as session:
            await session.execute(rows.release_lease(project_id, expires_at))
            await session.commit()

    async def upload_replacement(self, path: Path, before: set[str]) -> PackReplacement:
        """Uploads the packs that were added since there were those of `before`. The caller has locked them."""
        after = await asyncio.to_thread(packs.list_packs, path)
        return PackReplacement(before - after, after - before, await self.upload(path, after - before))

    async def replace(
        self, session: DatabaseSession, project_id: int, replacement: PackReplacement, collected: CollectedObjects | None = None
    ) -> None:
        """Replaces current packs in one transaction. A pack that is not current any more changes nothing: its objects are in another."""
        await self.insert(project_id, replacement.uploaded, session)
        await session.execute(rows.remove(project_id, replacement.removed, now()))
        if collected is not None:
            for name, is_reachable in ((collected.reachable, True), (collected.unreachable, False)):
                if name is not None:
                    await session.execute(rows.mark_collected(project_id, name, is_reachable, now()))

    async def restore_dropped(self, project_id: int) -> bool:
        """Makes packs current again that were dropped lately. Returns whether there were any.

        A host of an older version does not notice that a pack was dropped, and may have moved a ref to its objects.
        """
        async with self._database.write_session() as session:
            restored = await session.execute(rows.restore_dropped(project_id))
            await session.execute(refs.advance_version([project_id], now()))
            await session.commit()
        return bool(restored.rowcount)


async def _run_all(transfers: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Runs transfers together; the first error ends the others."""
    tasks = [asyncio.ensure_future(transfer) for transfer in transfers]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
