"""The object store in a bucket of S3, or of a server that speaks as S3 does.

A long object is sent in parts, which the server puts together at the end. An upload that fails is aborted; one that a kill cut short is
left to the bucket's own rule for incomplete uploads (AbortIncompleteMultipartUpload), since nobody but the bucket can list them cheaply.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from storage.artifacts import KEY, READ_AT_ONCE, NoObject, ObjectStore, TooLong, checked

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult

PART = 5 * 2**20
"""Bytes, the least that S3 takes; what is sent holds about five parts in the memory."""
MOST_PARTS = 9000
"""S3 takes 10,000, so that of very long objects each part is longer."""
PARTS_AT_ONCE = 2
LISTED_AT_ONCE = 500
ABORT_SECONDS = 10.0
CLOSING_SECONDS = 0.2


class BucketStore(ObjectStore):
    """The objects below `s3://BUCKET/PREFIX`, as `PREFIX/KEY`."""

    def __init__(self, url: str, settings: Mapping[str, str]) -> None:
        """`settings` are obstore's, as `endpoint` and `region`; what they do not say is read from AWS_* in the environment."""
        config: dict[str, Any] = dict(settings)
        plain = str(config.get("endpoint", "")).startswith("http://")
        # Whole objects take as long as they take; what stands still is noticed by the connection itself.
        self._store = S3Store.from_url(
            url,
            config=config,  # type: ignore[arg-type]
            client_options={"allow_http": plain, "timeout": timedelta(hours=6), "connect_timeout": timedelta(seconds=5)},
            retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=30)},
        )

    async def put(self, key: str, pieces: AsyncIterable[bytes], limit: int) -> int:
        path, size, gathered = checked(key), 0, 0
        part = max(PART, -(-limit // MOST_PARTS))
        first: list[bytes] = []
        sending: _Sending | None = None
        try:
            async for piece in pieces:
                size += len(piece)
                if size > limit:
                    raise TooLong(limit)
                if sending is not None:
                    await sending.send(piece)
                    continue
                first.append(piece)
                gathered += len(piece)
                if gathered > PART:
                    sending = _Sending(self._store, path, part)
                    await sending.send(b"".join(first))
                    first = []
            if sending is not None:
                await sending.finish()
                return size
        except BaseException:
            if sending is not None:
                await asyncio.shield(asyncio.ensure_future(sending.abort()))
            raise
        with _told():
            await obstore.put_async(self._store, path, b"".join(first), use_multipart=False)
        return size

    @asynccontextmanager
    async def open(self, key: str, start: int = 0, size: int | None = None) -> AsyncIterator[AsyncIterator[bytes]]:
        path = checked(key)
        if size == 0:
            # S3 has no empty ranges.
            yield _nothing()
            return
        options: GetOptions = {}
        if size is not None:
            options["range"] = (start, start + size)
        elif start:
            options["range"] = {"offset": start}
        with _told():
            found = await obstore.get_async(self._store, path, options=options)
        yield _pieces(found)

    async def erase(self, key: str) -> None:
        with _told(), contextlib.suppress(FileNotFoundError):
            await obstore.delete_async(self._store, checked(key))

    async def older_than(self, seconds: float) -> AsyncIterator[list[str]]:
        latest = datetime.now(UTC) - timedelta(seconds=seconds)
        with _told():
            async for entries in obstore.list(self._store, chunk_size=LISTED_AT_ONCE):
                # What obstore names stands below the prefix; what is no key is somebody else's.
                yield [entry["path"] for entry in entries if KEY.fullmatch(entry["path"]) and entry["last_modified"] < latest]

    def sweep(self) -> None:
        """What is half sent is no object, and other services may be sending to the same bucket."""

    async def close(self) -> None:
        # obstore's threads let go of Python's objects a moment after their work; one that does at the very end aborts the process.
        await asyncio.sleep(CLOSING_SECONDS)


class _Sending:
    """An object that is sent in parts while it comes."""

    def __init__(self, store: S3Store, path: str, part: int) -> None:
        self._waiting: asyncio.Queue[bytes | _Aborted | None] = asyncio.Queue(1)
        self._done = asyncio.ensure_future(
            obstore.put_async(store, path, self._pieces(), use_multipart=True, chunk_size=part, max_concurrency=PARTS_AT_ONCE)
        )

    async def send(self, piece: bytes) -> None:
        await self._hand(piece)

    async def finish(self) -> None:
        await self._hand(None)
        with _told():
            await asyncio.shield(self._done)

    async def abort(self) -> None:
        """Takes back the parts that are there, and waits for that: obstore does it where its source fails, not where it is cancelled."""
        while not self._waiting.empty():
            self._waiting.get_nowait()
        self._waiting.put_nowait(_Aborted())
        await asyncio.wait({self._done}, timeout=ABORT_SECONDS)
        if self._done.done() and not self._done.cancelled():
            self._done.exception()

    async def _hand(self, item: bytes | None) -> None:
        handing = asyncio.ensure_future(self._waiting.put(item))
        try:
            await asyncio.wait({handing, self._done}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            handing.cancel()
        if self._done.done():
            with _told():
                self._done.result()

    async def _pieces(self) -> AsyncIterator[bytes]:
        while (item := await self._waiting.get()) is not None:
            if isinstance(item, _Aborted):
                raise item
            yield item


class _Aborted(Exception):
    """Makes obstore take back what it has sent."""


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """What obstore raises, as errors of a store: the caller knows neither S3 nor obstore."""
    try:
        yield
    except FileNotFoundError as error:
        raise NoObject(_brief(error)) from None
    except (BaseError, OSError) as error:
        raise ConnectionError(f"the object store cannot answer: {_brief(error)}") from None


def _brief(error: BaseException) -> str:
    """Without the pages of detail that obstore adds, which repeat the whole address."""
    return str(error).partition("\n")[0][:200]


async def _pieces(found: "GetResult") -> AsyncIterator[bytes]:
    with _told():
        async for piece in found.stream(min_chunk_size=READ_AT_ONCE):
            yield bytes(piece)


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
