"""The ref advertisement of a push, which is git's own without a git process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage.git.protocol.transport import GitService, Transport
from storage.git.refs import projection
from storage.git.refs.projection import RefProjection
from storage.git.repository import Repository
from storage.git.subprocesses import async_process
from tests.support.git.git_history import git, make_history

ABSENT_ID = "1234567890" * 4


class AdvertisementReader:
    """Reads advertisements; `git_runs` is how many of them git made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.git_runs = 0
        start: Callable[..., Any] = async_process.start

        async def count(*arguments: Any, **settings: Any) -> Any:
            self.git_runs += 1
            return await start(*arguments, **settings)

        monkeypatch.setattr(async_process, "start", count)

    async def read(self, transport: Transport, path: Path) -> tuple[bytes, int]:
        """The advertisement, and whether git made it."""
        received, before = bytearray(), self.git_runs

        async def collect(block: bytes) -> None:
            received.extend(block)

        await transport.advertise(GitService.RECEIVE, path, collect)
        return bytes(received), self.git_runs - before


@pytest.fixture
def advertisements(monkeypatch: pytest.MonkeyPatch) -> AdvertisementReader:
    return AdvertisementReader(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A repository with branches, an annotated tag, the head of a merge request, and a ref whose object is absent."""
    path = make_history(tmp_path / "made.git", commits=6).path
    git(path, "-c", "user.name=C", "-c", "user.email=c@example.org", "tag", "-a", "-m", "First", "signed", "master")
    git(path, "update-ref", "refs/merge-requests/1/head", "master")
    refs = Repository.open(path).stored_refs()
    projection.write(
        path, RefProjection(7, "master", [*refs, ("refs/heads/Ünder/way", refs[0][1], None), ("refs/heads/x", ABSENT_ID, None)])
    )
    return path


class TestAdvertisementOfPushes:
    async def test_has_the_bytes_of_git_and_starts_it_once(self, advertisements: AdvertisementReader, path: Path, tmp_path: Path) -> None:
        transport, empty = Transport(), Repository.create(tmp_path / "empty.git").path
        projection.write(empty, RefProjection(1, "main", []))
        expected, runs = await advertisements.read(transport, path)
        assert runs == 1
        assert b"refs/tags/signed\n" in expected and ABSENT_ID.encode() in expected and b"refs/merge-requests/1/head" in expected
        assert await advertisements.read(transport, path) == (expected, 0)
        made, runs = await advertisements.read(transport, empty)
        assert runs == 0
        assert (made, 1) == await advertisements.read(Transport(), empty)

    async def test_git_advertises_what_the_service_has_not_written(self, advertisements: AdvertisementReader, path: Path) -> None:
        transport = Transport()
        await advertisements.read(transport, path)
        git(path, "update-ref", "refs/heads/loose", "master")
        assert (loose := await advertisements.read(transport, path))[1] == 1
        assert b"refs/heads/loose" in loose[0]
        git(path, "update-ref", "-d", "refs/heads/loose")
        git(path, "config", "transfer.hideRefs", "refs/merge-requests")
        assert (hidden := await advertisements.read(transport, path))[1] == 1
        assert b"refs/merge-requests" not in hidden[0]
        git(path, "config", "--remove-section", "transfer")
        git(path, "pack-refs", "--all")
        (path / "packed-refs").write_bytes((path / "packed-refs").read_bytes().replace(b"forgefront-version", b"version"))
        assert (await advertisements.read(transport, path))[1] == 1

    async def test_capabilities_of_an_unusual_repository_are_not_repeated(self, advertisements: AdvertisementReader, path: Path) -> None:
        transport = Transport()
        git(path, "config", "repack.useDeltaBaseOffset", "false")
        assert b"ofs-delta" not in (await advertisements.read(transport, path))[0]
        git(path, "config", "--remove-section", "repack")
        assert b"ofs-delta" in (await advertisements.read(transport, path))[0]
        advertised, runs = await advertisements.read(transport, path)
        assert runs == 0 and b"ofs-delta" in advertised
