"""The ref advertisement of receive-pack, made without a git process (gitprotocol-pack, Reference Discovery).

It has the bytes of git's own: git names its capabilities once, and advertises a repository whose files are not as the service writes them.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

from storage.git.protocol.packets import FLUSH_PACKET, encode_packet
from storage.git.protocol.process_supervision import BLOCK_BYTES
from storage.git.refs import projection
from storage.git.refs.ref_names import NULL_ID

SendBlock = Callable[[bytes], Awaitable[None]]
"""Sends a block to the client; returns when the next block can be sent."""

_NO_REFS = NULL_ID.encode(), b"capabilities^{}"
_OTHER_SECTION = re.compile(rb"^\s*\[(?!core\])", re.MULTILINE)
"""Configuration that may change the advertisement; the service writes only the section `core`."""
_REF = re.compile(rb"^([0-9a-f]{40}) (.+)$", re.MULTILINE)


class PushAdvertiser:
    """Makes the advertisements of this process for pushes."""

    def __init__(self) -> None:
        self._capabilities: bytes | None = None

    async def advertise(self, path: Path, outgoing: SendBlock, run_git: Callable[[SendBlock], Awaitable[None]]) -> None:
        """Sends the advertisement of the repository at `path`. `run_git` sends git's own. Raises the errors of both."""

        async def read_capabilities_and_send(block: bytes) -> None:
            # The first packet is at most 1000 bytes, which a pipe never splits.
            capabilities, end, _ = block.partition(b"\0")[2].partition(b"\n")
            if end and self._capabilities is None:
                self._capabilities = capabilities
            await outgoing(block)

        refs = await asyncio.to_thread(read_refs, path)
        if refs is None or self._capabilities is None:
            await run_git(outgoing if refs is None else read_capabilities_and_send)
            return
        first, *others = refs or [_NO_REFS]
        advertisement = b"".join([_packet(first, b"\0" + self._capabilities), *map(_packet, others), FLUSH_PACKET])
        for start in range(0, len(advertisement), BLOCK_BYTES):
            await outgoing(advertisement[start : start + BLOCK_BYTES])


def read_refs(path: Path) -> list[tuple[bytes, bytes]] | None:
    """Returns the object ids and names of the refs of a repository, sorted by name.

    None if git considers more than the files that the service writes, or if it has to report an error.
    """
    try:
        if projection.read_version(path) is None or (path / "shallow").exists() or _OTHER_SECTION.search((path / "config").read_bytes()):
            return None
        if any(files for _, _, files in os.walk(path / "refs")):
            return None
        return _REF.findall((path / "packed-refs").read_bytes())
    except OSError:
        return None


def _packet(ref: tuple[bytes, bytes], suffix: bytes = b"") -> bytes:
    return encode_packet(b" ".join(ref) + suffix + b"\n")
