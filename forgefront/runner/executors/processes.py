"""Runs a program with its output in a trace, in a process group of its own, and ends it in time."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

import structlog

from forgefront.runner.trace_buffer import TraceBuffer

TERMINATE_SECONDS = 10.0
"""Seconds between the request to end a script and its kill."""
KILL_SECONDS = 20.0
"""Seconds after its kill for which a process is waited for; one that waits for a device does not end."""
DRAIN_SECONDS = 5.0
"""Seconds for which a process that left the group may keep the output open."""
BLOCK_BYTES = 2**16
UMASK = 0o022

WATCH_COMMAND = ("/bin/sh", "-c", 'read -r _; kill -s KILL -- "-$0"')
"""Waits for the end of its input, and kills the process group that it is given."""

log = structlog.get_logger("runner")
Terminate = Callable[[int], None]


async def run_process(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    trace: TraceBuffer,
    stop: asyncio.Event,
    *,
    pass_fds: Sequence[int] = (),
    input_fd: int = subprocess.DEVNULL,
    terminate: Terminate | None = None,
    ends_with_runner: bool = False,
) -> int:
    """Runs a program, and returns its exit code; a negative one is the signal that ended it.

    When `stop` is set, `terminate` asks it to end, by default its process group, and it is killed a moment later. When the program ends,
    the rest of the group is killed too; with `ends_with_runner` also when the runner is killed.
    """
    reading, writing = os.pipe()
    reader = asyncio.StreamReader(limit=BLOCK_BYTES)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", 0))
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                cwd=folder,
                env=dict(environment),
                stdin=input_fd,
                stdout=writing,
                stderr=writing,
                start_new_session=True,
                pass_fds=pass_fds,
                umask=UMASK,
            )
        finally:
            os.close(writing)
        pump = asyncio.create_task(_copy_output(reader, trace))
        try:
            async with _watch_runner(process.pid) if ends_with_runner else contextlib.nullcontext():
                await _wait_for_exit(process, stop, terminate or terminate_group)
        finally:
            # Also for processes that the program left behind, and for all when this task is canceled.
            signal_group(process.pid, signal.SIGKILL)
            code = await _wait_for_kill(process, trace)
            await asyncio.wait({pump}, timeout=DRAIN_SECONDS)
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)
        return code
    finally:
        transport.close()


@contextlib.asynccontextmanager
async def _watch_runner(group: int) -> AsyncIterator[None]:
    """Has a process kill the group if this one ends within the block, in whatever way: the pipe between them is closed then.

    PR_SET_PDEATHSIG would end the script's shell only, and not the programs that it runs.
    """
    reading, writing = os.pipe()
    try:
        try:
            watcher = await asyncio.create_subprocess_exec(
                *WATCH_COMMAND,
                str(group),
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={},
            )
        finally:
            os.close(reading)
        try:
            yield
        finally:
            # Before the pipe is closed, and before another group may get the number.
            with contextlib.suppress(ProcessLookupError):
                watcher.kill()
            await watcher.wait()
    finally:
        os.close(writing)


async def _wait_for_exit(process: asyncio.subprocess.Process, stop: asyncio.Event, terminate: Terminate) -> None:
    ending, stopping = asyncio.create_task(process.wait()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({ending, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            terminate(process.pid)
            await asyncio.wait({ending}, timeout=TERMINATE_SECONDS)
    finally:
        for task in (ending, stopping):
            task.cancel()
        await asyncio.gather(ending, stopping, return_exceptions=True)


async def _wait_for_kill(process: asyncio.subprocess.Process, trace: TraceBuffer) -> int:
    try:
        async with asyncio.timeout(KILL_SECONDS):
            return await process.wait()
    except TimeoutError:
        log.error("process cannot be killed", pid=process.pid)
        trace.write_line("WARNING: A process of the build cannot be killed.")
        return -signal.SIGKILL


async def _copy_output(reader: asyncio.StreamReader, trace: TraceBuffer) -> None:
    while block := await reader.read(BLOCK_BYTES):
        await trace.write(block)


def signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def terminate_group(group: int) -> None:
    signal_group(group, signal.SIGTERM)


def terminate_descendants(parent: int) -> None:
    """Asks the descendants of a process to end, but not the process."""
    for pid in list_children(parent):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
        terminate_descendants(pid)


def list_children(parent: int) -> list[int]:
    """The children of all threads of a process; those of one that has ended, or ends meanwhile, are left out."""
    found: list[int] = []
    try:
        tasks = [*Path(f"/proc/{parent}/task").iterdir()]
    except OSError:
        return found
    for task in tasks:
        with contextlib.suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return found


def kill_marked(variable: str) -> int:
    """Kills this user's processes whose initial environment has `NAME=VALUE`; returns their number.

    It finds processes that left the group of their build, unless they cleared their environment.
    """
    marker, killed = variable.encode(), 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if marker in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)
                killed += 1
    return killed
