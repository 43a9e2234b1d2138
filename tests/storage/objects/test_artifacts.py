"""The object store: the same guarantees in a folder and in a bucket of a real S3 server process."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import obstore
import pytest

from storage.objects import bucket_store
from storage.objects.folder_store import FolderStore
from storage.objects.object_store import ObjectNotFound, ObjectStore, ObjectStoreUnavailable, ObjectTooLarge, new_key, open_store
from storage.objects.uploads import INCOMING_PREFIX
from tests.support.servers.s3_server import SETTINGS

MEGABYTE = 2**20


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return open_store("", tmp_path / "artifacts")
    return open_store("s3://forge/builds", tmp_path, {**SETTINGS, "endpoint": request.getfixturevalue("s3")})


async def chunks(*pieces: bytes, error: Exception | None = None) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
    if error is not None:
        raise error


async def keys(store: ObjectStore, seconds: float = -60.0) -> list[str]:
    return sorted([key async for some in store.list_older_than(seconds) for key in some])


class TestPut:
    @pytest.mark.parametrize("pieces", [[], [b"a"], [b"ab", b"", b"cd"], [bytes(range(256)) * 4096] * 20], ids=len)
    async def test_stores_the_received_bytes(self, store: ObjectStore, pieces: list[bytes]) -> None:
        content = b"".join(pieces)
        key = new_key()

        assert await store.put(key, chunks(*pieces), len(content)) == len(content)

        assert await store.read(key) == content
        assert key in await keys(store)

    @pytest.mark.parametrize("size", [10, 20 * MEGABYTE])
    async def test_a_too_large_object_leaves_nothing(self, s3: str, store: ObjectStore, size: int) -> None:
        key = new_key()

        with pytest.raises(ObjectTooLarge) as raised:
            await store.put(key, chunks(*[b"x" * (size // 10)] * 10, b"x"), size)

        assert raised.value.limit == size
        await self.is_deleted(s3, store, key)

    @pytest.mark.parametrize("size", [10, 20 * MEGABYTE])
    async def test_leaves_nothing_when_its_source_fails(self, s3: str, store: ObjectStore, size: int) -> None:
        key = new_key()

        with pytest.raises(ZeroDivisionError):
            await store.put(key, chunks(*[b"x" * (size // 10)] * 10, error=ZeroDivisionError()), 2 * size)

        await self.is_deleted(s3, store, key)

    @pytest.mark.parametrize("size", [10, 20 * MEGABYTE])
    async def test_leaves_nothing_when_it_is_canceled(self, s3: str, store: ObjectStore, size: int) -> None:
        key, waiting = new_key(), asyncio.Event()

        async def stuck() -> AsyncIterator[bytes]:
            for _ in range(10):
                yield b"x" * (size // 10)
            waiting.set()
            await asyncio.sleep(60)

        putting = asyncio.ensure_future(store.put(key, stuck(), 2 * size))
        await asyncio.wait_for(waiting.wait(), 10)
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting

        await self.is_deleted(s3, store, key)

    @pytest.mark.parametrize("size", [10, 6 * MEGABYTE])
    async def test_leaves_nothing_when_it_is_canceled_before_the_bucket_answers(
        self, s3: str, tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, key = open_store("s3://forge/builds", tmp_path, {**SETTINGS, "endpoint": s3}), new_key()
        put, is_stored, may_answer = obstore.put_async, asyncio.Event(), asyncio.Event()

        async def put_and_wait(*arguments: Any, **settings: Any) -> Any:
            answer = await put(*arguments, **settings)
            is_stored.set()
            await may_answer.wait()
            return answer

        monkeypatch.setattr(obstore, "put_async", put_and_wait)
        putting = asyncio.ensure_future(store.put(key, chunks(b"x" * size), size))
        await is_stored.wait()
        putting.cancel()
        may_answer.set()
        with pytest.raises(asyncio.CancelledError):
            await putting

        await self.is_deleted(s3, store, key)

    async def is_deleted(self, s3: str, store: ObjectStore, key: str) -> None:
        with pytest.raises(ObjectNotFound):
            await store.read(key)
        if isinstance(store, FolderStore):
            assert not [path for path in store.root.rglob("*") if path.is_file()]
        else:
            # docs/promises.md R17: an upload in parts is aborted.
            async with httpx.AsyncClient() as client:
                assert "<Upload>" not in (await client.get(f"{s3}/forge?uploads")).text

    async def test_a_file_is_synced_before_it_is_visible(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """docs/promises.md R18."""
        seen: list[str] = []
        fsync, rename = os.fsync, Path.rename
        monkeypatch.setattr(os, "fsync", lambda handle: seen.append("fsync") or fsync(handle))
        monkeypatch.setattr(Path, "rename", lambda path, target: seen.append("rename") or rename(path, target))

        await FolderStore(tmp_path / "objects").put_bytes(new_key(), b"x")

        assert seen == ["fsync", "rename", "fsync", "fsync"]


class TestOpen:
    @pytest.mark.parametrize(
        ("start", "size", "expected"), [(0, None, b"0123456789"), (3, None, b"3456789"), (3, 4, b"3456"), (9, 1, b"9"), (0, 0, b"")]
    )
    async def test_returns_a_range(self, store: ObjectStore, start: int, size: int | None, expected: bytes) -> None:
        key = new_key()
        await store.put_bytes(key, b"0123456789")

        assert await store.read(key, start, size) == expected

    async def test_returns_a_long_object_in_pieces(self, store: ObjectStore) -> None:
        key, content = new_key(), os.urandom(MEGABYTE) * 9
        await store.put_bytes(key, content)

        async with store.open(key, 5, 8 * MEGABYTE) as pieces:
            read = [piece async for piece in pieces]

        assert b"".join(read) == content[5 : 5 + 8 * MEGABYTE]
        assert max(map(len, read)) <= MEGABYTE

    async def test_an_erased_object_is_not_found(self, store: ObjectStore) -> None:
        key, other = new_key(), new_key()
        await store.put_bytes(key, b"x")
        await store.put_bytes(other, b"y")

        await store.delete_all([key, key, new_key()])

        with pytest.raises(ObjectNotFound):
            await store.read(key)
        assert await store.read(other) == b"y"

    async def test_reads_on_when_it_is_erased(self, tmp_path: Path) -> None:
        store, key = FolderStore(tmp_path), new_key()
        await store.put_bytes(key, b"x" * MEGABYTE)

        async with store.open(key) as pieces:
            await store.delete(key)
            assert sum([len(piece) async for piece in pieces]) == MEGABYTE

    @pytest.mark.parametrize("key", ["", "..", "../secret.key", "a" * 31, "A" * 32, "a" * 31 + "/"])
    async def test_rejects_invalid_keys(self, store: ObjectStore, key: str) -> None:
        with pytest.raises(ValueError, match="32 hex digits"):
            await store.read(key)
        with pytest.raises(ValueError, match="32 hex digits"):
            await store.put_bytes(key, b"x")


class TestCleanup:
    async def test_lists_old_objects(self, store: ObjectStore) -> None:
        key = new_key()
        await store.put_bytes(key, b"x")

        assert key in await keys(store, -60.0)
        assert key not in await keys(store, 3600.0)

    async def test_removes_partial_files_of_a_killed_process(self, tmp_path: Path) -> None:
        store = FolderStore(tmp_path)
        old, young = tmp_path / f"{INCOMING_PREFIX}{new_key()}", tmp_path / f"{INCOMING_PREFIX}{new_key()}"
        for path in (old, young):
            path.write_bytes(b"half")
        os.utime(old, (1, 1))

        assert await keys(store, 3600.0) == []
        assert (old.exists(), young.exists()) == (False, True)

        store.sweep()
        assert not young.exists()


async def test_an_unreachable_bucket_is_a_connection_error(tmp_path: Path) -> None:
    store = open_store("s3://forge/builds", tmp_path, {**SETTINGS, "endpoint": "http://127.0.0.1:9"})

    with pytest.raises(ConnectionError, match="the object store is unavailable"):
        await store.put_bytes(new_key(), b"x")


class TestSilentServer:
    """A server that accepts connections and does not answer, as one whose disk blocks."""

    async def test_requests_end(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(bucket_store, "STALL_SECONDS", 0.3)
        end = asyncio.Event()

        async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await end.wait()
            writer.close()

        async with await asyncio.start_server(ignore, "127.0.0.1", 0) as server:
            endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            store = open_store("s3://forge/builds", tmp_path, {**SETTINGS, "endpoint": endpoint})
            async with asyncio.timeout(30):
                for request in (store.put(new_key(), chunks(b"a"), 1), store.read(new_key()), store.check()):
                    with pytest.raises(ObjectStoreUnavailable):
                        await request
            end.set()
