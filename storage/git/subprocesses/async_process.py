"""A child process with streams on the event loop, started without a copy of this process's memory tables.

uvloop starts a process by fork, which costs a service of a hundred megabytes five milliseconds each time; `subprocess` uses vfork.
"""

import asyncio
import contextlib
import os
import subprocess
from asyncio.streams import FlowControlMixin
from collections.abc import Mapping, Sequence
from functools import partial
from typing import IO, Any

from storage.git.subprocesses.limits import ProcessLimits, limited_command


class AsyncProcess:
    """A process that leads a group of its own. `returncode` is known once it was waited for; of one that a signal ended it is negative."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        stdin: asyncio.StreamWriter,
        stdout: asyncio.StreamReader,
        stderr: asyncio.StreamReader,
        pipes: Sequence[asyncio.BaseTransport],
    ) -> None:
        self.pid = process.pid
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self._process = process
        self._pipes = pipes
        self._exit_task = asyncio.create_task(_wait_for_exit(process))

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        return await asyncio.shield(self._exit_task)

    def close(self) -> None:
        """Lets go of its pipes, whatever is still in them."""
        for pipe in self._pipes:
            pipe.close()


async def start(
    command: Sequence[str], environment: Mapping[str, str], *, buffer_bytes: int, process_limits: ProcessLimits, niceness: int = 0
) -> AsyncProcess:
    """Starts the command in `/`, for a program that starts no other before it has read its input.

    Reading pauses while `buffer_bytes` bytes twice over wait to be taken. Raises OSError.
    """
    process = subprocess.Popen(  # noqa: S603, ASYNC220 - a list of arguments, no shell that reads them; returns when the program has been loaded
        limited_command(command, process_limits),
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd="/",
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: S101 - asked for above
    loop = asyncio.get_running_loop()
    transports: list[asyncio.BaseTransport] = []
    try:
        process_limits.apply(process.pid)
        if niceness:
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, process.pid, niceness)
        stdout, stderr = asyncio.StreamReader(buffer_bytes, loop), asyncio.StreamReader(buffer_bytes, loop)
        for reader, file in ((stdout, process.stdout), (stderr, process.stderr)):
            pipe, _ = await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader, loop=loop), _pipe_for(loop, file))
            transports.append(pipe)
        stdin_transport, protocol = await loop.connect_write_pipe(partial(FlowControlMixin, loop), _pipe_for(loop, process.stdin))
        transports.append(stdin_transport)
    except BaseException:
        for transport in transports:
            transport.close()
        for file in (process.stdin, process.stdout, process.stderr):
            file.close()
        process.kill()
        process.wait()
        raise
    return AsyncProcess(process, asyncio.StreamWriter(stdin_transport, protocol, None, loop), stdout, stderr, transports)


class _DuplicatedPipe:
    """An end of a pipe for uvloop, which closes the number that it was given and then calls `close`.

    So it is given a number of its own: closed twice, the second would hit whatever a thread has opened in between under the same one.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def fileno(self) -> int:
        return os.dup(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _pipe_for(loop: asyncio.AbstractEventLoop, file: IO[bytes]) -> Any:
    """asyncio's own loops close the file alone."""
    return file if isinstance(loop, asyncio.BaseEventLoop) else _DuplicatedPipe(file)


async def _wait_for_exit(process: subprocess.Popen[bytes]) -> int:
    if not hasattr(os, "pidfd_open"):
        return await asyncio.to_thread(process.wait)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    pidfd = os.pidfd_open(process.pid)
    loop.add_reader(pidfd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
    return process.wait()
