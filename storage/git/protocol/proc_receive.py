"""The server's end of `hooks/proc-receive`: reads the ref updates of a push from git, has them made, and reports the results (githooks).

The hook is two `cat` on two pipes that receive-pack inherits. When git ends, for whatever reason, the pipe of the updates ends too.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import Awaitable, Callable, Sequence

from storage.git.protocol.packets import encode_packets
from storage.git.protocol.push import RefCommand, parse_command
from storage.git.subprocesses.async_process import connect_reader

RefMover = Callable[[list[RefCommand], bool], Awaitable[Sequence[str | None]]]
"""Moves refs, all or none if the second argument is true (`git push --atomic`).

Returns for each the reason why it was not moved, or None. It raises nothing: git has no other way to learn of a failure.
"""

MAX_REASON_LENGTH = 300
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x20\x7f]+")
_BUFFER_BYTES = 64 * 1024


class ProcReceive:
    """The conversation about one push. `environment` and `descriptors` are what receive-pack inherits for the hook."""

    def __init__(self, move: RefMover) -> None:
        self._move = move
        updates, updates_end = os.pipe()
        report_end, report = os.pipe()
        self._updates, self._report = os.fdopen(updates, "rb", buffering=0), os.fdopen(report, "wb", buffering=0)
        self.descriptors = (updates_end, report_end)
        self.environment = {"FORGEFRONT_UPDATES": f"/dev/fd/{updates_end}", "FORGEFRONT_REPORT": f"/dev/fd/{report_end}"}

    async def serve(self) -> None:
        """Answers the hook; returns when git has its answer, or has ended without asking."""
        reader = asyncio.StreamReader(_BUFFER_BYTES)
        transport = await connect_reader(reader, self._updates)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, BrokenPipeError):
                greeting = await _read_packets(reader)
                features = greeting[0].partition(b"\0")[2].split()
                await self._write([b"version=1\0atomic"])
                commands = [parse_command(line) for line in await _read_packets(reader)]
                reasons = await self._move(commands, b"atomic" in features)
                await self._write([format_result(command, reason) for command, reason in zip(commands, reasons, strict=True)])
        finally:
            transport.close()
            self.close()

    def close_inherited(self) -> None:
        """Closes the ends that receive-pack has, after it was started."""
        for descriptor in self.descriptors:
            os.close(descriptor)

    def close(self) -> None:
        """Ends the hook's input."""
        self._report.close()
        self._updates.close()

    async def _write(self, lines: list[bytes]) -> None:
        await asyncio.to_thread(_write_all, self._report.fileno(), encode_packets(lines))


async def _read_packets(reader: asyncio.StreamReader) -> list[bytes]:
    """Reads packets up to a flush packet (gitprotocol-common, pkt-line). Raises IncompleteReadError at the end of the input."""
    lines: list[bytes] = []
    while size := int(await reader.readexactly(4), 16):
        lines.append((await reader.readexactly(size - 4)).rstrip(b"\n"))
    return lines


def format_result(command: RefCommand, reason: str | None) -> bytes:
    """Returns the line that reports whether a ref was moved, without a line feed."""
    ref = command.ref.encode("utf-8", "surrogateescape")
    if reason is None:
        return b"ok " + ref
    return b"ng " + ref + b" " + _CONTROL_CHARACTERS.sub(" ", reason)[:MAX_REASON_LENGTH].encode("utf-8", "replace")


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
