"""Packets of git's protocols (gitprotocol-common, pkt-line), and the bands of side-band-64k (gitprotocol-pack)."""

from collections.abc import Iterable, Iterator

FLUSH_PACKET = b"0000"
DATA_BAND, PROGRESS_BAND = b"\1", b"\2"
"""The first byte of a packet for the client's git, and of one for the user's terminal."""


class MalformedPacket(ValueError):
    """The bytes are not a sequence of packets."""


def encode_packet(data: bytes) -> bytes:
    """Returns the packet with these bytes, which are at most 65,516."""
    return b"%04x" % (len(data) + 4) + data


def encode_packets(lines: Iterable[bytes]) -> bytes:
    """Returns a packet for each line, and a flush packet."""
    return b"".join(map(encode_packet, lines)) + FLUSH_PACKET


def decode_packets(data: bytes) -> Iterator[bytes | None]:
    """The bytes of each packet, None for a flush packet. Raises MalformedPacket, also for the other packets without bytes of version 2.

    >>> list(decode_packets(b"0006a\\n0000"))
    [b'a\\n', None]
    """
    start = 0
    while start < len(data):
        try:
            size = int(data[start : start + 4].decode("ascii"), 16)
        except ValueError:
            raise MalformedPacket("a packet has no length") from None
        if size == 0:
            yield None
            size = len(FLUSH_PACKET)
        elif size < len(FLUSH_PACKET) or start + size > len(data):
            raise MalformedPacket("the length of a packet is wrong")
        else:
            yield data[start + 4 : start + size]
        start += size
