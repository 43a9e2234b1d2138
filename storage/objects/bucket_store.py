"""The object store in an S3 bucket, or in a bucket of a server with the S3 API.

Large objects are sent as multipart uploads. A failed upload is aborted. An upload of a killed process is left to the bucket's lifecycle
rule for incomplete uploads (AbortIncompleteMultipartUpload), because only the bucket can list them cheaply.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from storage.objects.object_store import (
    KEY_PATTERN,
    OWNER_NAME,
    READ_CHUNK_BYTES,
    ObjectNotFound,
    ObjectStore,
    ObjectStoreUnavailable,
    ObjectTooLarge,
    validate_key,
)

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult

MIN_PART_BYTES = 5 * 2**20
"""S3's minimum, in bytes; an upload has about five parts in memory."""
MAX_PARTS = 9000
"""S3's maximum is 10,000; very large objects therefore have larger parts."""
MAX_CONCURRENT_PARTS = 2
LIST_PAGE_SIZE = 500
ABORT_SECONDS = 10.0
LATE_ANSWER_SECONDS = 1.0
"""Seconds for which a canceled caller waits to learn whether a small object was stored."""
MAX_OWNER_LENGTH = 64
CLOSE_SECONDS = 0.2
STALL_SECONDS = 60.0
"""Seconds until a request fails whose server is silent. A part of an upload has to be sent within this time."""


def open_bucket(url: str, settings: Mapping[str, str]) -> S3Store:
    """Opens `s3://BUCKET/PREFIX`.

    `settings` are obstore's, such as `endpoint` and `region`; missing ones are read from AWS_* in the environment.
    """
    config: dict[str, Any] = dict(settings)
    allows_http = str(config.get("endpoint", "")).startswith("http://")
    # The timeout covers a whole object, so it is long. That of reading ends a request whose server no longer answers; it includes the time
    # to send a part.
    return S3Store.from_url(
        url,
        config=config,  # type: ignore[arg-type]
        client_options={
            "allow_http": allows_http,
            "timeout": timedelta(hours=6),
            "connect_timeout": timedelta(seconds=5),
            "read_timeout": timedelta(seconds=STALL_SECONDS),
        },
        retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=30)},
    )


class BucketStore(ObjectStore):
    """The objects below `s3://BUCKET/PREFIX`, as `PREFIX/KEY`."""

    def __init__(self, url: str, settings: Mapping[str, str]) -> None:
        """`settings` are those of `open_bucket`."""
        self._store = open_bucket(url, settings)

    is_remote = True

    async def check(self) -> None:
        with translate_errors():
            # A list of nothing: unlike a read, it fails if there is no bucket, and unlike one of all objects, it is small.
            async for _ in obstore.list(self._store, prefix="none"):
                return

    async def put(self, key: str, chunks: AsyncIterable[bytes], limit: int) -> int:
        path, size, buffered_bytes = validate_key(key), 0, 0
        part_bytes = max(MIN_PART_BYTES, -(-limit // MAX_PARTS))
        buffered: list[bytes] = []
        upload: _MultipartUpload | None = None
        try:
            async for chunk in chunks:
                size += len(chunk)
                if size > limit:
                    raise ObjectTooLarge(limit)
                if upload is not None:
                    await upload.write(chunk)
                    continue
                buffered.append(chunk)
                buffered_bytes += len(chunk)
                if buffered_bytes > MIN_PART_BYTES:
                    upload = _MultipartUpload(self._store, path, part_bytes)
                    await upload.write(b"".join(buffered))
                    buffered = []
            if upload is not None:
                await upload.finish()
                return size
        except BaseException:
            if upload is not None:
                await asyncio.shield(asyncio.ensure_future(self._abort(path, upload)))
            raise
        putting = asyncio.ensure_future(obstore.put_async(self._store, path, b"".join(buffered), use_multipart=False))
        try:
            with translate_errors():
                await asyncio.shield(putting)
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(self._take_back(path, putting)))
            raise
        return size

    async def _abort(self, path: str, upload: "_MultipartUpload") -> None:
        await upload.abort()
        await self._delete_stored(path, upload.task)

    async def _take_back(self, path: str, putting: "asyncio.Future[Any]") -> None:
        """Ends a request that the bucket may have fulfilled already, without an answer so far."""
        await asyncio.wait({putting}, timeout=LATE_ANSWER_SECONDS)
        putting.cancel()
        await self._delete_stored(path, putting)

    async def _delete_stored(self, path: str, uploading: "asyncio.Future[Any]") -> None:
        """Deletes the object of an upload that has succeeded. One that cannot be deleted now is an orphan."""
        if uploading.done() and not uploading.cancelled() and uploading.exception() is None:
            with contextlib.suppress(OSError):
                await self.delete(path)

    @asynccontextmanager
    async def open(self, key: str, start: int = 0, size: int | None = None) -> AsyncIterator[AsyncIterator[bytes]]:
        path = validate_key(key)
        if size == 0:
            # S3 has no empty ranges.
            yield _no_chunks()
            return
        options: GetOptions = {}
        if size is not None:
            options["range"] = (start, start + size)
        elif start:
            options["range"] = {"offset": start}
        try:
            with translate_errors():
                result = await obstore.get_async(self._store, path, options=options)
        except ObjectStoreUnavailable:
            # S3 refuses a range that begins at the end of the object, or behind it, as an archive may declare one.
            if not options or not await self._ends_before(path, start):
                raise
            yield _no_chunks()
            return
        yield _stream_chunks(result)

    async def _ends_before(self, path: str, start: int) -> bool:
        with translate_errors():
            return int((await obstore.head_async(self._store, path))["size"]) <= start

    async def delete(self, key: str) -> None:
        with translate_errors(), contextlib.suppress(FileNotFoundError):
            await obstore.delete_async(self._store, validate_key(key))

    async def list_older_than(self, seconds: float) -> AsyncIterator[list[str]]:
        cutoff = datetime.now(UTC) - timedelta(seconds=seconds)
        with translate_errors():
            async for entries in obstore.list(self._store, chunk_size=LIST_PAGE_SIZE):
                # Paths are relative to the prefix; other names than keys belong to other services.
                yield [entry["path"] for entry in entries if KEY_PATTERN.fullmatch(entry["path"]) and entry["last_modified"] < cutoff]

    async def claim(self, owner: str) -> str:
        # Read first: a server that ignores the condition of the write would replace the owner.
        if (found := await self.read_owner()) is not None:
            return found
        with translate_errors(), contextlib.suppress(AlreadyExistsError):
            await obstore.put_async(self._store, OWNER_NAME, owner.encode(), mode="create", use_multipart=False)
        found = await self.read_owner()
        if found is None:
            raise ObjectStoreUnavailable(f"the object store has lost the object {OWNER_NAME}, which was just written")
        return found

    async def read_owner(self) -> str | None:
        try:
            with translate_errors():
                result = await obstore.get_async(self._store, OWNER_NAME)
                return bytes(await result.bytes_async()).decode("ascii", "replace").strip()[:MAX_OWNER_LENGTH]
        except ObjectNotFound:
            return None

    def sweep(self) -> None:
        """Does nothing: incomplete uploads are not objects, and other services may be uploading to the same bucket."""

    async def close(self) -> None:
        # obstore's threads release Python objects shortly after their work; a release during interpreter shutdown aborts the process.
        await asyncio.sleep(CLOSE_SECONDS)


class _MultipartUpload:
    """A multipart upload of an object that is sent while it is received; `task` ends with it."""

    def __init__(self, store: S3Store, path: str, part_bytes: int) -> None:
        self._queue: asyncio.Queue[bytes | _UploadAborted | None] = asyncio.Queue(1)
        self.task = asyncio.ensure_future(
            obstore.put_async(store, path, self._chunks(), use_multipart=True, chunk_size=part_bytes, max_concurrency=MAX_CONCURRENT_PARTS)
        )

    async def write(self, chunk: bytes) -> None:
        await self._enqueue(chunk)

    async def finish(self) -> None:
        await self._enqueue(None)
        with translate_errors():
            await asyncio.shield(self.task)

    async def abort(self) -> None:
        """Aborts the upload, unless its source has ended, and waits for that: obstore aborts if the source fails, not when canceled."""
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(_UploadAborted())
        await asyncio.wait({self.task}, timeout=ABORT_SECONDS)
        if self.task.done() and not self.task.cancelled():
            self.task.exception()

    async def _enqueue(self, item: bytes | None) -> None:
        putting = asyncio.ensure_future(self._queue.put(item))
        try:
            await asyncio.wait({putting, self.task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            putting.cancel()
        if self.task.done():
            with translate_errors():
                self.task.result()

    async def _chunks(self) -> AsyncIterator[bytes]:
        while (item := await self._queue.get()) is not None:
            if isinstance(item, _UploadAborted):
                raise item
            yield item


class _UploadAborted(Exception):
    """Raised by the source of an upload to make obstore abort it."""


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Raises obstore's errors as those of an object store."""
    try:
        yield
    except FileNotFoundError as error:
        raise ObjectNotFound(_first_line(error)) from None
    except (BaseError, OSError) as error:
        raise ObjectStoreUnavailable(f"the object store is unavailable: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    """Returns the first line of a message, because obstore adds pages of detail that contain the whole URL."""
    return str(error).partition("\n")[0][:200]


async def _stream_chunks(result: "GetResult") -> AsyncIterator[bytes]:
    with translate_errors():
        async for chunk in result.stream(min_chunk_size=READ_CHUNK_BYTES):
            yield bytes(chunk)


async def _no_chunks() -> AsyncIterator[bytes]:
    return
    yield b""
