"""A child process with asyncio streams, started without copying this process's page tables.

uvloop starts a process by fork, which takes a process of a hundred megabytes five milliseconds each time; `subprocess` uses vfork.
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
    """A child process that leads its own process group. `returncode` is None until `wait` returns; negative after a signal."""

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
        """Waits for the end of the process and returns its exit code."""
        return await asyncio.shield(self._exit_task)

    def lower_priority(self, niceness: int) -> None:
        """Lowers the priority of the process and its children to this niceness."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.setpriority(os.PRIO_PGRP, self.pid, niceness)

    def close(self) -> None:
        """Closes the pipes, even if they contain unread data."""
        for pipe in self._pipes:
            pipe.close()


async def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    buffer_bytes: int,
    process_limits: ProcessLimits,
    descriptors: Sequence[int] = (),
) -> AsyncProcess:
    """Starts a command in `/`, which inherits the file `descriptors`. The program must not fork before it has read its input (`limits`).

    Reading from the process pauses while twice `buffer_bytes` are buffered. Raises OSError.
    """
    process = subprocess.Popen(  # noqa: S603, ASYNC220 - an argument list without a shell; returns as soon as the program is loaded
        limited_command(command, process_limits),
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd="/",
        start_new_session=True,
        pass_fds=descriptors,
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: S101 - PIPE above
    loop = asyncio.get_running_loop()
    transports: list[asyncio.BaseTransport] = []
    try:
        process_limits.apply(process.pid)
        stdout, stderr = asyncio.StreamReader(buffer_bytes), asyncio.StreamReader(buffer_bytes)
        for reader, file in ((stdout, process.stdout), (stderr, process.stderr)):
            transports.append(await connect_reader(reader, file))
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


async def connect_reader(reader: asyncio.StreamReader, file: IO[bytes]) -> asyncio.BaseTransport:
    """Makes `reader` read from a pipe, until the returned transport is closed."""
    loop = asyncio.get_running_loop()
    pipe, _ = await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader, loop=loop), _pipe_for(loop, file))
    return pipe


class _DuplicatedPipe:
    """A pipe end for uvloop, which closes the file descriptor that it received and then calls `close`.

    It receives a duplicate: closing one descriptor twice could close a file that another thread has opened under the same number meanwhile.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def fileno(self) -> int:
        return os.dup(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _pipe_for(loop: asyncio.AbstractEventLoop, file: IO[bytes]) -> Any:
    """Returns the file itself for asyncio's own loops, which close only the file."""
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
