"""Uploads packs to a bucket and downloads them: an object is the bytes of a pack, then those of its index."""

import asyncio
import hashlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, BinaryIO

import structlog

from storage.git.packing import packs, unreachable_packs
from storage.git.packing.pack_checksum import PackChecksum
from storage.git.repository import NotARepository
from storage.objects.object_store import READ_CHUNK_BYTES, ObjectNotFound, ObjectStore, new_key, read_chunks
from storage.tables.git.packs import Pack

DOWNLOAD_ATTEMPTS = 3
"""How often an object with a wrong checksum is read: it may have been damaged on its way."""

log = structlog.get_logger("packs")


class PacksUnavailable(NotARepository):
    """A pack of the repository cannot be read from the bucket now, or is missing or damaged there."""


class PackLost(PacksUnavailable):
    """A pack is missing in the bucket, or damaged there."""


async def upload(store: ObjectStore, repository: Path, name: str) -> dict[str, Any]:
    """Uploads a pack, and returns its columns of the table `packs`, without those of the project. Raises OSError.

    A damaged pack is uploaded too, because most of its objects can be read; the log says so.
    """
    paths = [packs.folder_of(repository) / f"{name}{suffix}" for suffix in (".pack", ".idx")]
    pack_bytes, index_bytes = [path.stat().st_size for path in paths]
    digest = hashlib.sha256()

    async def chunks() -> AsyncIterator[bytes]:
        for path in paths:
            checksum = PackChecksum()
            with path.open("rb", buffering=0) as file:
                async for chunk in read_chunks(file):
                    digest.update(chunk)
                    checksum.update(chunk)
                    yield chunk
            if not checksum.is_complete:
                log.error("damaged pack uploaded", repository=repository.name, file=path.name, remedy="restore it from a backup")

    key = new_key()
    await store.put(key, chunks(), pack_bytes + index_bytes)
    return {
        "name": name,
        "key": key,
        "pack_bytes": pack_bytes,
        "index_bytes": index_bytes,
        "objects": packs.count_objects(repository, name),
        "sha256": digest.hexdigest(),
        "shallow": _read_shallow(repository),
    }


async def download(store: ObjectStore, pack: Pack, repository: Path) -> None:
    """Downloads a pack into the repository; git sees it when it is complete and verified.

    Raises PackLost, PacksUnavailable if the bucket cannot be reached, OSError (ENOSPC).
    """
    subject = f"pack {pack.name} of project {pack.project_id} (object {pack.key})"
    for _ in range(DOWNLOAD_ATTEMPTS):
        try:
            problem = await _download_once(store, pack, repository)
        except ObjectNotFound as error:
            raise PackLost(f"{subject} is missing in the bucket") from error
        except ConnectionError as error:
            raise PacksUnavailable(f"{subject} cannot be downloaded: {error}") from error
        if problem is None:
            return
        log.error("damaged pack downloaded", project_id=pack.project_id, pack=pack.name, key=pack.key, problem=problem)
    raise PackLost(f"{subject} is damaged in the bucket: {problem}")


def has_intact(repository: Path, pack: Pack) -> bool:
    """Whether the repository has the pack, with the checksum of its object. Raises OSError."""
    size, digest = 0, hashlib.sha256()
    try:
        for suffix in (".pack", ".idx"):
            with (packs.folder_of(repository) / f"{pack.name}{suffix}").open("rb", buffering=0) as file:
                while chunk := file.read(READ_CHUNK_BYTES):
                    size += len(chunk)
                    digest.update(chunk)
    except FileNotFoundError:
        return False
    return _compare(pack, size, digest.hexdigest()) is None


async def find_problem(store: ObjectStore, pack: Pack) -> str | None:
    """Reads an object, and returns what is wrong with it; None if nothing is. Raises ObjectNotFound, OSError."""
    size, digest = 0, hashlib.sha256()
    async with store.open(pack.key) as chunks:
        async for chunk in chunks:
            size += len(chunk)
            digest.update(chunk)
    return _compare(pack, size, digest.hexdigest())


async def _download_once(store: ObjectStore, pack: Pack, repository: Path) -> str | None:
    """Installs the pack, or returns what is wrong with what was received."""
    with _TemporaryFile(repository) as content, _TemporaryFile(repository) as index:
        size, digest = 0, hashlib.sha256()
        async with store.open(pack.key) as chunks:
            async for chunk in chunks:
                digest.update(chunk)
                split = max(pack.pack_bytes - size, 0)
                size += len(chunk)
                await asyncio.to_thread(_write_parts, content.file, chunk[:split], index.file, chunk[split:])
        if problem := _compare(pack, size, digest.hexdigest()):
            return problem
        folder = packs.folder_of(repository)
        content.install(folder / f"{pack.name}.pack")
        if pack.is_reachable is False:
            unreachable_packs.mark_unreachable(repository, pack.name, pack.created_at.timestamp())
        # Last: git looks for indexes.
        index.install(folder / f"{pack.name}.idx")
        return None


def _compare(pack: Pack, size: int, sha256: str) -> str | None:
    if size != pack.pack_bytes + pack.index_bytes:
        return f"it has {size} bytes instead of {pack.pack_bytes + pack.index_bytes}"
    return None if sha256 == pack.sha256 else f"its SHA-256 is {sha256} instead of {pack.sha256}"


def _write_parts(content: BinaryIO, part: bytes, index: BinaryIO, rest: bytes) -> None:
    content.write(part)
    index.write(rest)


def _read_shallow(repository: Path) -> str | None:
    try:
        return (repository / packs.SHALLOW).read_text("ascii") or None
    except FileNotFoundError:
        return None


def merge_shallow(stored: Iterable[Pack]) -> bytes:
    """Returns the contents of the file `shallow` of a repository with these packs; empty if it has the parents of all commits."""
    lines = {line for pack in stored for line in (pack.shallow or "").splitlines()}
    return "".join(f"{line}\n" for line in sorted(lines)).encode("ascii")


class _TemporaryFile:
    """A file beside the objects, which is deleted unless it is installed."""

    def __init__(self, repository: Path) -> None:
        handle, name = tempfile.mkstemp(prefix=".tmp-", dir=repository)
        self._path = Path(name)
        self.file: BinaryIO = os.fdopen(handle, "wb")

    def __enter__(self) -> "_TemporaryFile":
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()
        self._path.unlink(missing_ok=True)

    def install(self, target: Path) -> None:
        """Renames the complete file."""
        self.file.close()
        self._path.rename(target)
