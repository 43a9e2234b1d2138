"""Files that builds of a project keep for later ones, in a folder of the runner or in a bucket.

A cache helps, and is never needed: what goes wrong with one is a warning in the trace. Builds of one project that name the same key share a
cache, so one of them can put files into the working folder of the others; projects share none.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from forgefront.runner import archive
from forgefront.runner.executors.executor import Workspace
from forgefront.runner.forge_client import CacheRules, ClaimedBuild
from forgefront.runner.scripts import expand_string
from forgefront.runner.trace_buffer import TraceBuffer
from storage.objects.object_store import ObjectNotFound, ObjectStore, ObjectTooLarge, read_chunks

MAX_CACHE_BYTES = 2**31
"""Maximum size of the archive of a cache."""
MAX_EXTRACTED_BYTES = 2**33
MAX_AGE_SECONDS = 30 * 86400.0
"""A cache that no build has written for this time is removed."""
PARTIAL_AGE_SECONDS = 86400.0
REMOVAL_INTERVAL_SECONDS = 6 * 3600.0

log = structlog.get_logger("runner")


class BuildCache:
    """The caches in a store."""

    def __init__(self, store: ObjectStore, *, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._store = store
        self._max_bytes = max_bytes
        # Two builds may write the same key.
        self._lock = asyncio.Lock()

    async def remove_old(self) -> None:
        """Removes old caches, and what a killed runner did not finish. Raises OSError."""
        async for _ in self._store.list_older_than(PARTIAL_AGE_SECONDS):
            pass
        async for keys in self._store.list_older_than(MAX_AGE_SECONDS):
            await self._store.delete_all(keys)

    @asynccontextmanager
    async def remove_old_regularly(self) -> AsyncIterator[None]:
        """Within the context, removes old caches every REMOVAL_INTERVAL_SECONDS."""
        task = asyncio.create_task(self._remove_old_forever())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _remove_old_forever(self) -> None:
        while True:
            try:
                await self.remove_old()
            except OSError as error:
                log.warning("old caches could not be removed", why=str(error))
            await asyncio.sleep(REMOVAL_INTERVAL_SECONDS)

    async def close(self) -> None:
        await self._store.close()

    async def restore(
        self,
        job: ClaimedBuild,
        rules: CacheRules,
        variables: Mapping[str, str],
        workspace: Workspace,
        trace: TraceBuffer,
        stop: asyncio.Event,
    ) -> None:
        """Unzips the cache of a build into its working folder, if there is one. A thread that does it ends when `stop` is set."""
        name = cache_name(job, rules, variables)
        target = workspace.root / "cache"
        try:
            async with self._store.open(object_key(job, name)) as chunks:
                with target.open("wb") as file:
                    async for chunk in chunks:
                        await asyncio.to_thread(file.write, chunk)
            count = await asyncio.to_thread(
                archive.extract_archive, target, workspace.code, max_bytes=MAX_EXTRACTED_BYTES, is_stopped=stop.is_set
            )
            trace.write_line(f"Restored {count} files of the cache {name!r}.")
        except ObjectNotFound:
            trace.write_line(f"There is no cache {name!r} yet.")
        except (OSError, archive.ArchiveRejected) as error:
            trace.write_line(f"WARNING: The cache {name!r} cannot be restored: {error}")
        finally:
            await asyncio.to_thread(target.unlink, missing_ok=True)

    async def save(
        self,
        job: ClaimedBuild,
        rules: CacheRules,
        variables: Mapping[str, str],
        workspace: Workspace,
        untracked: list[str],
        trace: TraceBuffer,
        stop: asyncio.Event,
    ) -> None:
        """Zips the files of the cache, which replace those of an earlier build. A thread that does it ends when `stop` is set."""
        name = cache_name(job, rules, variables)
        target = workspace.root / "cache"
        paths = [expand_string(path, variables) for path in rules.paths]
        try:
            count, missing = await asyncio.to_thread(
                archive.write_archive, workspace.code, paths, untracked, target, keeps_links=True, is_stopped=stop.is_set
            )
            for pattern in missing:
                trace.write_line(f"WARNING: cache: {pattern}: no matching files.")
            if not count:
                return
            with target.open("rb", buffering=0) as file:
                async with self._lock:
                    await self._store.put(object_key(job, name), read_chunks(file), self._max_bytes)
            trace.write_line(f"Saved {count} files as the cache {name!r}.")
        except ObjectTooLarge:
            trace.write_line(f"WARNING: The cache {name!r} is larger than {self._max_bytes} bytes and was not saved.")
        except OSError as error:
            trace.write_line(f"WARNING: The cache {name!r} cannot be saved: {error}")
        finally:
            await asyncio.to_thread(target.unlink, missing_ok=True)


def cache_name(job: ClaimedBuild, rules: CacheRules, variables: Mapping[str, str]) -> str:
    """The key of a cache, with variables replaced; without one, the job and the ref."""
    if not rules.key:
        return f"{job.name}/{job.ref}"
    return expand_string(rules.key, variables)


def object_key(job: ClaimedBuild, name: str) -> str:
    """The key of the object with a cache: no project finds the cache of another one."""
    return hashlib.sha256(f"{job.repository_url}\0{name}".encode()).hexdigest()[:32]


def list_untracked(code: Path, tracked: frozenset[str]) -> list[str]:
    """The files that were not checked out."""
    return sorted(archive.list_files(code) - tracked)
