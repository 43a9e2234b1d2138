"""What receive-pack answers to a push, with the reason put in where it ended because of a limit.

git's own words name a signal, or a malloc that failed; whoever pushes needs to know which limit there is and what to do.
"""

import re
from collections.abc import Awaitable, Callable

MAX_SAID = 4000
_SIZE = re.compile(rb"[0-9a-f]{4}")
_DATA = 1
_MESSAGE = 2
_FLUSH = b"0000"


class PushReport:
    """Splits the answer into packets (gitprotocol-common, pkt-line), and passes them on.

    Before a report that the objects were not taken it sends what `explain` makes of git's messages up to there, as one more message
    for the terminal. Where the client has no side band, the answer stays as it is.
    """

    def __init__(self, outgoing: Callable[[bytes], Awaitable[None]], explain: Callable[[bytes], Awaitable[str | None]]) -> None:
        self._outgoing = outgoing
        self._explain = explain
        self._rest = b""
        self._is_raw = False
        self._said = b""
        self._is_reported = False

    async def write(self, block: bytes) -> None:
        self._rest += block
        ready = b""
        while not self._is_raw and len(self._rest) >= 4:
            if not _SIZE.fullmatch(self._rest, 0, 4):
                self._is_raw = True
                break
            size = max(int(self._rest[:4], 16), len(_FLUSH))
            if len(self._rest) < size:
                break
            packet, self._rest = self._rest[:size], self._rest[size:]
            ready += await self._before(packet) + packet
        if self._is_raw:
            ready, self._rest = ready + self._rest, b""
        if ready:
            await self._outgoing(ready)

    async def end(self) -> None:
        """Passes on what is left of a packet that was cut."""
        rest, self._rest = self._rest, b""
        if rest:
            await self._outgoing(rest)

    async def _before(self, packet: bytes) -> bytes:
        band, data = packet[4:5], packet[5:]
        if band == bytes([_MESSAGE]):
            self._said = (self._said + data)[-MAX_SAID:]
        elif band == bytes([_DATA]) and not self._is_reported:
            self._is_reported = True
            if data[4:].startswith(b"unpack ") and not data[4:].startswith(b"unpack ok"):
                reason = await self._explain(self._said)
                if reason is not None:
                    text = bytes([_MESSAGE]) + f"{reason}\n".encode()
                    return f"{len(text) + 4:04x}".encode() + text
        return b""
