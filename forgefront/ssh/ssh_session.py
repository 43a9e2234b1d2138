"""One command over SSH: its arguments, and the bytes in both directions with limits on what is buffered.

asyncssh's own streams do not protect against malicious clients: they store every signal and every variable that is sent.
"""

import asyncio
import re
import shlex
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import monotonic
from typing import Any

import asyncssh

from storage.git.protocol.push import ClientStream
from storage.git.protocol.transport import GitService

MAX_COMMAND_LENGTH = 2000
MAX_BUFFERED_BYTES = 256 * 1024
"""Bytes received from the client and not yet processed, beyond the window of the channel (2 MB)."""
MAX_DEFERRED_PACKETS = 64
"""Packets that may wait for the end of a key exchange."""
DEFERRED_SECONDS = 0.05
MAX_PROTOCOL_LENGTH = 100

_PROJECT_PATTERN = re.compile(r"/?([^/]+/[^/]+?)(?:\.git)?/?")


class SshClientDisconnected(Exception):
    """The client has disconnected."""


@dataclass(frozen=True, slots=True)
class GitCommand:
    """A parsed command; the project as `NAMESPACE/NAME`, whether it exists or not."""

    service: GitService
    project: str


def parse_command(command: str) -> GitCommand | None:
    """Parses a command; None for anything that is not one of git's two.

    `git-upload-pack '/ada/app.git'` and `git upload-pack ada/app` become `GitCommand(GitService.UPLOAD, "ada/app")`.
    """
    if len(command) > MAX_COMMAND_LENGTH or not command.isprintable():
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if words[:1] == ["git"] and len(words) == 3:
        words = [f"git-{words[1]}", words[2]]
    if len(words) != 2 or words[0] not in set(GitService):
        return None
    found = _PROJECT_PATTERN.fullmatch(words[1])
    return GitCommand(GitService(words[0]), found[1]) if found else None


class SshSession(asyncssh.SSHServerSession[bytes]):
    """A channel on which one command runs, which `run` serves once it is requested. `writable` is that of the connection.

    `command` None is a request for a shell. `last_transfer_at` is the time of the last byte in either direction, None before git runs.
    """

    def __init__(
        self, connection: asyncssh.SSHServerConnection, writable: asyncio.Event, run: Callable[["SshSession"], Coroutine[Any, Any, None]]
    ) -> None:
        self._connection = connection
        self._writable = writable
        self._run = run
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._blocks: deque[bytes] = deque()
        self._buffered_bytes = 0
        self._is_paused = False
        self._is_catching_up = False
        self._is_ended = False
        self._wakeup = asyncio.Event()
        self.channel: asyncssh.SSHServerChannel[bytes] = self._create_channel()
        self.command: str | None = None
        self.protocol = ""
        self.task: asyncio.Task[None] | None = None
        self.is_disconnected = False
        self.last_transfer_at: float | None = None
        self.bytes_in = 0
        self.bytes_out = 0

    def _create_channel(self) -> asyncssh.SSHServerChannel[bytes]:
        channel: asyncssh.SSHServerChannel[bytes] = self._connection.create_server_channel(encoding=None)

        def accept_environment(packet: Any) -> bool:
            name, value = packet.get_string(), packet.get_string()
            packet.check_end()
            if name != b"GIT_PROTOCOL" or len(value) > MAX_PROTOCOL_LENGTH:
                return False
            self.protocol = value.decode("ascii", "replace")
            return True

        # Replaces asyncssh's method, which stores whatever is sent.
        channel._process_env_request = accept_environment  # type: ignore[method-assign]
        return channel

    def shell_requested(self) -> bool:
        return True

    def exec_requested(self, command: str) -> bool:
        self.command = command
        return True

    def session_started(self) -> None:
        self.task = asyncio.create_task(self._run(self))

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self.bytes_in += len(data)
        self._note_transfer()
        self._blocks.append(data)
        self._buffered_bytes += len(data)
        if not self._is_catching_up:
            self._pause_if_full()
        self._wakeup.set()

    def eof_received(self) -> bool:
        self._is_ended = True
        self._wakeup.set()
        # The other direction stays open.
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_disconnected = self._is_ended = True
        self._wakeup.set()
        self._resumed.set()

    def pause_writing(self) -> None:
        self._resumed.clear()

    def resume_writing(self) -> None:
        self._resumed.set()

    def begin_transfer(self) -> None:
        """Git talks to the client from now on."""
        self.last_transfer_at = monotonic()

    async def read_incoming(self, *, accepts_disconnect: bool) -> ClientStream:
        """What the client sends, to its end. Raises SshClientDisconnected if the client is lost, unless `accepts_disconnect`."""
        self.begin_transfer()
        while True:
            while self._blocks:
                block = self._blocks.popleft()
                self._buffered_bytes -= len(block)
                self._resume_if_drained()
                yield block
            if self._is_ended:
                break
            self._wakeup.clear()
            await self._wakeup.wait()
        if self.is_disconnected and not accepts_disconnect:
            raise SshClientDisconnected

    async def write(self, block: bytes) -> None:
        """Returns when more can be written. Raises SshClientDisconnected."""
        if self.is_disconnected:
            raise SshClientDisconnected
        try:
            self.channel.write(block)
        except OSError as error:
            raise SshClientDisconnected from error
        await self._writable.wait()
        await self._resumed.wait()
        # A client may start a key exchange, and then leave it open.
        while len(self._connection._deferred_packets) > MAX_DEFERRED_PACKETS and not self.is_disconnected:  # noqa: ASYNC110 - asyncssh has no event for it
            await asyncio.sleep(DEFERRED_SECONDS)
        if self.is_disconnected:
            raise SshClientDisconnected
        self.bytes_out += len(block)
        self._note_transfer()

    def end(self, status: int, text: str = "") -> None:
        """Ends the command, after a message if there is one."""
        if self.is_disconnected or self.channel.is_closing():
            return
        if text:
            self.channel.write_stderr(f"{text}\n".encode("utf-8", "replace"))
        self.channel.exit(status)

    def abort(self) -> None:
        """Closes the channel; wakes up everything that waits for the client."""
        self.channel.abort()
        self.connection_lost(None)

    def silent_seconds(self) -> float:
        """Seconds without a byte in either direction while git talks to the client."""
        return 0.0 if self.last_transfer_at is None else monotonic() - self.last_transfer_at

    def _pause_if_full(self) -> None:
        if self._buffered_bytes > MAX_BUFFERED_BYTES and not self._is_paused:
            self._is_paused = True
            self.channel.pause_reading()

    def _resume_if_drained(self) -> None:
        """Takes everything that the channel has buffered: it opens the window again with the first block, whatever it still has."""
        if self._is_paused and self._buffered_bytes <= MAX_BUFFERED_BYTES and not self._is_ended:
            self._is_paused, self._is_catching_up = False, True
            self.channel.resume_reading()
            self._is_catching_up = False
            self._pause_if_full()

    def _note_transfer(self) -> None:
        if self.last_transfer_at is not None:
            self.last_transfer_at = monotonic()
