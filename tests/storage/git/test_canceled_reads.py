"""Reads of repositories that are canceled."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from storage.git.history.history_walk import walk
from storage.git.repositories import Repositories
from storage.git.repository import Repository
from storage.git.trees import TreeListing
from tests.support.git.git_history import make_history


@pytest.fixture
def repositories(tmp_path: Path) -> Repositories:
    repositories = Repositories(tmp_path, workers=1)
    make_history(repositories.path_of(1), commits=3)
    return repositories


async def seconds_until_free(repositories: Repositories) -> float:
    """How long the one thread stays busy."""
    started = time.monotonic()
    await repositories.read(1, Repository.default_branch)
    return time.monotonic() - started


class TestCanceledReads:
    async def test_end_at_the_next_object(self, repositories: Repositories) -> None:
        for reading in (lambda repository, oid: list(walk(repository, oid)), lambda repository, oid: TreeListing(repository, oid).count()):
            started = threading.Event()

            def work(repository: Repository, reading: object = reading, started: threading.Event = started) -> None:
                oid = repository.resolve("master") or ""
                until = time.monotonic() + 30
                while time.monotonic() < until:
                    started.set()
                    reading(repository, oid)  # type: ignore[operator]

            task = asyncio.create_task(repositories.read(1, work, cancellable=True))
            await asyncio.to_thread(started.wait, 10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

            assert await seconds_until_free(repositories) < 10
        repositories.close()

    async def test_do_not_begin(self, repositories: Repositories) -> None:
        ends, begun = threading.Event(), []
        first = asyncio.create_task(repositories.read(1, lambda _: ends.wait(10)))
        second = asyncio.create_task(repositories.read(1, lambda _: begun.append(2), cancellable=True))
        await asyncio.sleep(0.05)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        ends.set()

        await first
        assert await seconds_until_free(repositories) < 10
        assert begun == []
        repositories.close()

    async def test_writes_are_not_canceled(self, repositories: Repositories) -> None:
        started, ends, found = threading.Event(), threading.Event(), []

        def work(repository: Repository) -> None:
            started.set()
            ends.wait(10)
            found.append(repository.commit(repository.resolve("master") or ""))

        task = asyncio.create_task(repositories.read(1, work))
        await asyncio.to_thread(started.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ends.set()

        await seconds_until_free(repositories)
        assert len(found) == 1
        repositories.close()
