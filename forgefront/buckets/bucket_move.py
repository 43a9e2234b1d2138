"""Moves what the data folder has into the buckets of the configuration, at the start of the service. A start that is killed goes on at the
next one: a file is deleted after its object is stored, and a repository stays as a copy.
"""

import asyncio
from pathlib import Path
from time import monotonic

import structlog

from forgefront.backend import Backend
from storage.git.repository_cache import RepositoryCache
from storage.objects.bucket_uploads import BucketUploadStore
from storage.objects.folder_store import FolderStore
from storage.objects.object_store import ALL_SECONDS, ObjectStore, read_chunks
from storage.objects.uploads import UploadStore

PROGRESS_SECONDS = 2.0

log = structlog.get_logger("buckets")


async def move_to_buckets(backend: Backend) -> None:
    """Moves repositories, uploads and artifacts. Raises OSError; ConnectionError if a bucket cannot be reached."""
    if isinstance(backend.repositories, RepositoryCache):
        progress = _Progress("repositories")
        await backend.repositories.publish_all(progress.count)
        progress.end()
    if isinstance(backend.uploads, BucketUploadStore):
        await _move_uploads(UploadStore(backend.config.uploads), backend.uploads.objects)
    if backend.objects.is_remote:
        await _move_artifacts(FolderStore(backend.config.artifacts), backend.objects)


async def _move_uploads(folder: UploadStore, store: ObjectStore) -> None:
    progress = _Progress("uploads")
    for project_id, secret in await folder.list_old(ALL_SECONDS):
        await _move_file(folder.path_of(project_id, secret), store, secret)
        progress.count()
    progress.end()


async def _move_artifacts(folder: FolderStore, store: ObjectStore) -> None:
    progress = _Progress("artifacts")
    async for keys in folder.list_older_than(ALL_SECONDS):
        for key in keys:
            await _move_file(folder.path_of(key), store, key)
            progress.count()
    progress.end()


async def _move_file(path: Path, store: ObjectStore, key: str) -> None:
    try:
        with path.open("rb", buffering=0) as file:
            await store.put(key, read_chunks(file), (await asyncio.to_thread(path.stat)).st_size)
    except FileNotFoundError:
        # Another process of this host has moved it.
        return
    await asyncio.to_thread(path.unlink, missing_ok=True)


class _Progress:
    """Logs how many have been moved, now and then."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._done = 0
        self._reported_at = monotonic()

    def count(self) -> None:
        self._done += 1
        if monotonic() - self._reported_at >= PROGRESS_SECONDS:
            self._reported_at = monotonic()
            log.info(f"moving {self._part} to the bucket", done=self._done)

    def end(self) -> None:
        if self._done:
            log.info(f"{self._part} moved to the bucket", number=self._done)
