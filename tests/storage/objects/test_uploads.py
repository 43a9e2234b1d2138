import asyncio
import os
import time
from pathlib import Path

import pytest

from storage.objects.uploads import WRITE_BUFFER_BYTES, UploadStore, new_secret


@pytest.fixture
def uploads(tmp_path: Path) -> UploadStore:
    return UploadStore(tmp_path / "uploads")


async def receive_upload(uploads: UploadStore, *pieces: bytes) -> str:
    incoming = uploads.receive()
    for piece in pieces:
        await incoming.write(piece)
    await incoming.finish()
    return incoming.ticket


def files(uploads: UploadStore) -> list[str]:
    return sorted(str(path.relative_to(uploads.root)) for path in uploads.root.rglob("*") if path.is_file())


class TestReceiving:
    async def test_a_stored_file_is_complete(self, uploads: UploadStore) -> None:
        pieces = [os.urandom(100_000) for _ in range(7)]
        ticket = await receive_upload(uploads, *pieces)

        assert uploads.received_size(ticket) == 700_000
        uploads.store(ticket, 42, secret := new_secret())

        with uploads.open(42, secret) as file:
            assert file.read() == b"".join(pieces)
        assert files(uploads) == [f"42/{secret}"]
        assert uploads.received_size(ticket) is None

    async def test_an_empty_file_is_a_file(self, uploads: UploadStore) -> None:
        ticket = await receive_upload(uploads)

        assert uploads.received_size(ticket) == 0

    async def test_a_file_that_is_discarded_leaves_nothing(self, uploads: UploadStore) -> None:
        incoming = uploads.receive()
        await incoming.write(b"x" * (WRITE_BUFFER_BYTES + 1))
        assert len(files(uploads)) == 1

        await incoming.discard()
        await incoming.write(b"x" * (WRITE_BUFFER_BYTES + 1))

        assert files(uploads) == []

    async def test_a_late_thread_leaves_nothing(self, uploads: UploadStore) -> None:
        incoming = uploads.receive()
        writing = asyncio.ensure_future(incoming.write(b"x" * (WRITE_BUFFER_BYTES + 1)))
        await asyncio.sleep(0)
        writing.cancel()
        await incoming.discard()
        await asyncio.sleep(0.05)

        assert files(uploads) == []

    async def test_discarding_does_not_delete_a_stored_file(self, uploads: UploadStore) -> None:
        incoming = uploads.receive()
        await incoming.write(b"x")
        await incoming.finish()
        uploads.store(incoming.ticket, 1, secret := new_secret())

        await incoming.discard()

        assert files(uploads) == [f"1/{secret}"]

    async def test_a_full_disk_raises(self, uploads: UploadStore, tmp_path: Path) -> None:
        uploads.root.parent.mkdir(exist_ok=True)
        uploads.root.symlink_to("/dev/full")

        with pytest.raises(OSError):
            await receive_upload(uploads, b"x")

    @pytest.mark.parametrize("ticket", ["", "..", "../42/x", "A" * 32, "0" * 31])
    def test_tickets_cannot_escape_the_folder(self, uploads: UploadStore, ticket: str) -> None:
        assert uploads.received_size(ticket) is None

    @pytest.mark.parametrize("secret", ["", "..", "../x", "0" * 33])
    def test_secrets_cannot_escape_the_folder(self, uploads: UploadStore, secret: str) -> None:
        with pytest.raises(ValueError, match="secret"):
            uploads.open(1, secret)

    def test_a_missing_file_is_reported(self, uploads: UploadStore) -> None:
        with pytest.raises(FileNotFoundError):
            uploads.open(1, new_secret())
        with pytest.raises(FileNotFoundError):
            uploads.store(new_secret(), 1, new_secret())


class TestRemoving:
    async def test_a_file_and_all_of_a_project(self, uploads: UploadStore) -> None:
        secrets = [new_secret() for _ in range(3)]
        for project_id, secret in zip((1, 1, 2), secrets, strict=True):
            uploads.store(await receive_upload(uploads, b"x"), project_id, secret)

        uploads.remove(1, secrets[0])
        uploads.remove(1, secrets[0])
        assert files(uploads) == sorted([f"1/{secrets[1]}", f"2/{secrets[2]}"])

        uploads.remove_all(1)
        uploads.remove_all(1)
        assert files(uploads) == [f"2/{secrets[2]}"]
        assert [entry.name for entry in uploads.root.iterdir()] == ["2"]

    async def test_cleanup_removes_leftovers_of_a_killed_process(self, uploads: UploadStore) -> None:
        uploads.sweep()
        uploads.store(await receive_upload(uploads, b"x"), 1, secret := new_secret())
        await receive_upload(uploads, b"never kept")
        (uploads.root / ".removed-2-abcd").mkdir()
        (uploads.root / ".removed-2-abcd" / new_secret()).write_bytes(b"x")

        uploads.sweep()

        assert files(uploads) == [f"1/{secret}"]

    async def test_lists_old_objects(self, uploads: UploadStore, monkeypatch: pytest.MonkeyPatch) -> None:
        assert list(uploads.list_older_than(0)) == []
        uploads.store(await receive_upload(uploads, b"x"), 1, secret := new_secret())
        await receive_upload(uploads, b"x")

        assert list(uploads.list_older_than(3600)) == []
        later = time.time() + 3601
        monkeypatch.setattr(time, "time", lambda: later)
        assert list(uploads.list_older_than(3600)) == [(1, secret)]
