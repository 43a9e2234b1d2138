"""Child processes on the event loop."""

import os

import pytest
import uvloop

from storage.git import processes, program
from storage.git.limits import ProcessLimits


def test_uvloop_closes_no_number_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second close would hit a file that a thread has opened since, under the number that the first one made free."""
    open_still = []
    close = processes._Own.close

    def watched(own: processes._Own) -> None:
        open_still.append(bool(os.fstat(own._file.fileno())))
        close(own)

    monkeypatch.setattr(processes._Own, "close", watched)

    async def talk() -> tuple[bytes, int]:
        process = await processes.start(["cat"], program.environment(), limit=65536, process_limits=ProcessLimits())
        process.stdin.write(b"words")
        process.stdin.close()
        said, code = await process.stdout.read(), await process.wait()
        process.close()
        return said, code

    assert uvloop.run(talk()) == (b"words", 0)
    assert open_still == [True] * 3
