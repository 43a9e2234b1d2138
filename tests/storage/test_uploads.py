import asyncio
import os
import time
from pathlib import Path

import pytest

from storage.uploads import WRITE_AT_ONCE, Uploads, new_secret


@pytest.fixture
def uploads(tmp_path: Path) -> Uploads:
    return Uploads(tmp_path / "uploads")


async def received(uploads: Uploads, *pieces: bytes) -> str:
    incoming = uploads.receive()
    for piece in pieces:
        await incoming.write(piece)
    await incoming.finish()
    return incoming.ticket


def files(uploads: Uploads) -> list[str]:
    return sorted(str(path.relative_to(uploads.root)) for path in uploads.root.rglob("*") if path.is_file())


class TestReceiving:
    async def test_a_kept_file_is_whole(self, uploads: Uploads) -> None:
        pieces = [os.urandom(100_000) for _ in range(7)]
        ticket = await received(uploads, *pieces)

        assert uploads.size_of(ticket) == 700_000
        uploads.keep(ticket, 42, secret := new_secret())

        with uploads.open(42, secret) as file:
            assert file.read() == b"".join(pieces)
        assert files(uploads) == [f"42/{secret}"]
        assert uploads.size_of(ticket) is None

    async def test_an_empty_file_is_a_file(self, uploads: Uploads) -> None:
        ticket = await received(uploads)

        assert uploads.size_of(ticket) == 0

    async def test_a_file_that_is_discarded_leaves_nothing(self, uploads: Uploads) -> None:
        incoming = uploads.receive()
        await incoming.write(b"x" * (WRITE_AT_ONCE + 1))
        assert len(files(uploads)) == 1

        await incoming.discard()
        await incoming.write(b"x" * (WRITE_AT_ONCE + 1))

        assert files(uploads) == []

    async def test_a_thread_that_comes_late_leaves_nothing(self, uploads: Uploads) -> None:
        incoming = uploads.receive()
        writing = asyncio.ensure_future(incoming.write(b"x" * (WRITE_AT_ONCE + 1)))
        await asyncio.sleep(0)
        writing.cancel()
        await incoming.discard()
        await asyncio.sleep(0.05)

        assert files(uploads) == []

    async def test_a_kept_file_outlives_the_discarding(self, uploads: Uploads) -> None:
        incoming = uploads.receive()
        await incoming.write(b"x")
        await incoming.finish()
        uploads.keep(incoming.ticket, 1, secret := new_secret())

        await incoming.discard()

        assert files(uploads) == [f"1/{secret}"]

    async def test_a_full_disk_raises(self, uploads: Uploads, tmp_path: Path) -> None:
        uploads.root.parent.mkdir(exist_ok=True)
        uploads.root.symlink_to("/dev/full")

        with pytest.raises(OSError):
            await received(uploads, b"x")

    @pytest.mark.parametrize("ticket", ["", "..", "../42/x", "A" * 32, "0" * 31])
    def test_no_ticket_leads_elsewhere(self, uploads: Uploads, ticket: str) -> None:
        assert uploads.size_of(ticket) is None

    @pytest.mark.parametrize("secret", ["", "..", "../x", "0" * 33])
    def test_no_secret_leads_elsewhere(self, uploads: Uploads, secret: str) -> None:
        with pytest.raises(ValueError, match="secret"):
            uploads.open(1, secret)

    def test_what_is_not_there_is_said(self, uploads: Uploads) -> None:
        with pytest.raises(FileNotFoundError):
            uploads.open(1, new_secret())
        with pytest.raises(FileNotFoundError):
            uploads.keep(new_secret(), 1, new_secret())


class TestRemoving:
    async def test_a_file_and_all_of_a_project(self, uploads: Uploads) -> None:
        secrets = [new_secret() for _ in range(3)]
        for project_id, secret in zip((1, 1, 2), secrets, strict=True):
            uploads.keep(await received(uploads, b"x"), project_id, secret)

        uploads.remove(1, secrets[0])
        uploads.remove(1, secrets[0])
        assert files(uploads) == sorted([f"1/{secrets[1]}", f"2/{secrets[2]}"])

        uploads.remove_all(1)
        uploads.remove_all(1)
        assert files(uploads) == [f"2/{secrets[2]}"]
        assert [entry.name for entry in uploads.root.iterdir()] == ["2"]

    async def test_sweeping_takes_what_a_kill_left(self, uploads: Uploads) -> None:
        uploads.sweep()
        uploads.keep(await received(uploads, b"x"), 1, secret := new_secret())
        await received(uploads, b"never kept")
        (uploads.root / ".removed-2-abcd").mkdir()
        (uploads.root / ".removed-2-abcd" / new_secret()).write_bytes(b"x")

        uploads.sweep()

        assert files(uploads) == [f"1/{secret}"]

    async def test_lists_what_has_been_there_for_long(self, uploads: Uploads, monkeypatch: pytest.MonkeyPatch) -> None:
        assert list(uploads.older_than(0)) == []
        uploads.keep(await received(uploads, b"x"), 1, secret := new_secret())
        await received(uploads, b"x")

        assert list(uploads.older_than(3600)) == []
        later = time.time() + 3601
        monkeypatch.setattr(time, "time", lambda: later)
        assert list(uploads.older_than(3600)) == [(1, secret)]
