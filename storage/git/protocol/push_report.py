"""Adds the reason to receive-pack's report of a push that exceeded a limit.

git's own messages name a signal or a failed malloc; the user needs to know which limit was exceeded and what to do.
"""

import re
from collections.abc import Awaitable, Callable

from storage.git.protocol.packets import DATA_BAND, FLUSH_PACKET, PROGRESS_BAND, encode_packet

MAX_MESSAGE_BYTES = 4000
_PACKET_LENGTH = re.compile(rb"[0-9a-f]{4}")


def explain_rejection(reason: str) -> str:
    """Returns the message for the client about the limit that a push exceeded."""
    return (
        f"This push is rejected: {reason}. Push fewer commits at once and no very large files,"
        " or ask the administrator of this service to raise the limit."
    )


class PushReport:
    """Splits the response into packets (gitprotocol-common, pkt-line), and passes them on.

    Before a report that unpacking failed it inserts a message for the terminal, which `explain` returns for git's messages so far. For a
    client without side-band the response is not changed.
    """

    def __init__(self, outgoing: Callable[[bytes], Awaitable[None]], explain: Callable[[bytes], Awaitable[str | None]]) -> None:
        self._outgoing = outgoing
        self._explain = explain
        self._buffer = b""
        self._is_raw = False
        self._messages = b""
        self._is_reported = False

    async def write(self, block: bytes) -> None:
        self._buffer += block
        ready = b""
        while not self._is_raw and len(self._buffer) >= 4:
            if not _PACKET_LENGTH.fullmatch(self._buffer, 0, 4):
                self._is_raw = True
                break
            size = max(int(self._buffer[:4], 16), len(FLUSH_PACKET))
            if len(self._buffer) < size:
                break
            packet, self._buffer = self._buffer[:size], self._buffer[size:]
            ready += await self._explanation_before(packet) + packet
        if self._is_raw:
            ready, self._buffer = ready + self._buffer, b""
        if ready:
            await self._outgoing(ready)

    async def flush(self) -> None:
        """Passes on the rest of an incomplete packet."""
        remainder, self._buffer = self._buffer, b""
        if remainder:
            await self._outgoing(remainder)

    async def _explanation_before(self, packet: bytes) -> bytes:
        band, data = packet[4:5], packet[5:]
        if band == PROGRESS_BAND:
            self._messages = (self._messages + data)[-MAX_MESSAGE_BYTES:]
        elif band == DATA_BAND and data and not self._is_reported:
            # receive-pack sends empty packets of data while it is silent (receive.keepAlive).
            self._is_reported = True
            if data[4:].startswith(b"unpack ") and not data[4:].startswith(b"unpack ok"):
                reason = await self._explain(self._messages)
                if reason is not None:
                    return encode_packet(PROGRESS_BAND + f"{reason}\n".encode())
        return b""
