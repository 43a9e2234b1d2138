"""What accompanies one git process: its input, the end of its stderr, the time limit of indexing, and its termination."""

import asyncio
import contextlib
import os
import signal

from storage.git.protocol.push import ClientStream
from storage.git.protocol.push_gate import PushGate
from storage.git.subprocesses.async_process import AsyncProcess
from storage.git.subprocesses.limits import git_children

BLOCK_BYTES = 64 * 1024
TERMINATION_SECONDS = 3.0
"""Time for a process to remove its locks and temporary files before it is killed."""
MAX_STDERR_BYTES = 4000
PUSH_NICENESS = 5
SHORT_PUSH_SECONDS = 1.0
"""After this time a push has a lower priority than the server itself and its fetches. Most pushes take a tenth of it."""
INDEXING_SECONDS = 60.0
"""Time for git to index a push that has been received completely, plus a second for each INDEXING_BYTES of it."""
INDEXING_BYTES = 1_000_000


def indexing_seconds(pack_bytes: int) -> float:
    """The time limit of indexing a pack of this size."""
    return INDEXING_SECONDS + pack_bytes / INDEXING_BYTES


def too_slow_reason(seconds: float) -> str:
    """What is wrong with a push for which git takes more than these `indexing_seconds`."""
    return f"reading it takes more than the {seconds:.0f} seconds that a push of its size may take"


class InputFeed:
    """Feeds the client's data to a process, and closes its stdin at the end. If the client fails, `error` is set and the process is ended.

    `is_push`: first by closing stdin early, so that receive-pack deletes the received objects. (A signal would leave the quarantine
    behind.) Before a push has been received completely, git moves no ref.
    """

    def __init__(self, process: AsyncProcess, incoming: ClientStream, *, is_push: bool) -> None:
        self._process = process
        self._stdin = process.stdin
        self._incoming = incoming
        self._is_push = is_push
        self.error: Exception | None = None

    async def run(self) -> None:
        try:
            async for block in self._incoming:
                # A process that has finished its output reads no more; further input is dropped.
                if self._stdin.is_closing():
                    continue
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self._stdin.write(block)
                    await self._stdin.drain()
        except Exception as error:
            self.error = error
            self._stdin.close()
            if self._is_push:
                await asyncio.sleep(TERMINATION_SECONDS)
            _signal_group(self._process, signal.SIGTERM)
        else:
            self._stdin.close()


class StderrTail:
    """Keeps the last bytes of a process's stderr."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self._has_output = asyncio.Event()
        self.tail = b""

    async def read(self) -> None:
        while block := await self._stream.read(BLOCK_BYTES):
            self.tail = (self.tail + block)[-MAX_STDERR_BYTES:]
            self._has_output.set()

    async def wait_for_output(self, seconds: float) -> None:
        """Waits until there is output, at most `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._has_output.wait()


class IndexingWatchdog:
    """Limits the time that git takes to index a received push. It ends git's children, so that receive-pack reports the failure."""

    def __init__(self, process: AsyncProcess, gate: PushGate) -> None:
        self._process = process
        self._gate = gate
        self.is_too_slow = False

    @property
    def seconds(self) -> float:
        return indexing_seconds(self._gate.received_bytes)

    @property
    def reason(self) -> str:
        """What is wrong with a push that is too slow."""
        return too_slow_reason(self.seconds)

    async def watch(self) -> None:
        await self._gate.is_complete.wait()
        await asyncio.sleep(self.seconds)
        self.is_too_slow = True
        while self._process.returncode is None:
            # Only the children: receive-pack then reports that unpacking failed, and removes the objects. The hook that records
            # moved refs is not a git process.
            children = await asyncio.to_thread(git_children, self._process.pid)
            if children is None:
                _signal_group(self._process, signal.SIGTERM)
            for child in children or ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            await asyncio.sleep(TERMINATION_SECONDS / 10)


async def terminate(process: AsyncProcess, *, is_push: bool) -> None:
    """Ends the process and its children: first by SIGTERM, so that git removes its temporary files, then by SIGKILL."""
    process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL) if is_push else (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        if number is not None:
            _signal_group(process, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TERMINATION_SECONDS):
                await _drain(process)


async def _drain(process: AsyncProcess) -> None:
    # `wait` alone never ends while the pipe is full and paused.
    while await process.stdout.read(BLOCK_BYTES):
        pass
    await process.wait()


def _signal_group(process: AsyncProcess, number: signal.Signals) -> None:
    """Signals the whole group, because git's children do the work. A process that was waited for has no group."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
