"""Child processes on the event loop."""

import asyncio
import gc
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from storage.git.subprocesses import async_process, git_command
from storage.git.subprocesses.limits import ProcessLimits


def test_uvloop_closes_no_number_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second close would hit a file that a thread has opened since, under the number that the first one made free."""
    open_still = []
    close = async_process._DuplicatedPipe.close

    def watched(own: async_process._DuplicatedPipe) -> None:
        open_still.append(bool(os.fstat(own._file.fileno())))
        close(own)

    monkeypatch.setattr(async_process._DuplicatedPipe, "close", watched)

    async def talk() -> tuple[bytes, int]:
        process = await async_process.start(["cat"], git_command.environment(), buffer_bytes=65536, process_limits=ProcessLimits())
        process.stdin.write(b"words")
        process.stdin.close()
        output, code = await process.stdout.read(), await process.wait()
        process.close()
        return output, code

    assert uvloop.run(talk()) == (b"words", 0)
    assert open_still == [True] * 3


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_start_that_is_canceled_leaves_no_pipe_open(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    async def cancel() -> None:
        for steps in range(6):
            task = asyncio.create_task(
                async_process.start(["cat"], git_command.environment(), buffer_bytes=65536, process_limits=ProcessLimits())
            )
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            try:
                process = await task
            except asyncio.CancelledError:
                continue
            process.stdin.close()
            await process.wait()
            process.close()
        await asyncio.sleep(0.05)

    def files() -> set[str]:
        gc.collect()
        return {each.name for each in Path("/proc/self/fd").iterdir()}

    run(asyncio.sleep(0))
    before = len(files())
    run(cancel())
    assert len(files()) == before


class TestAuthorities:
    def test_are_those_of_python_unless_git_has_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("SSL_CERT_FILE", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH"):
            monkeypatch.delenv(name, raising=False)
        assert git_command.authorities() == {}
        monkeypatch.setenv("SSL_CERT_FILE", "/ca.pem")
        assert git_command.authorities() == {"GIT_SSL_CAINFO": "/ca.pem"}
        monkeypatch.setenv("GIT_SSL_CAINFO", "/git.pem")
        assert git_command.authorities() == {"GIT_SSL_CAINFO": "/git.pem"}
