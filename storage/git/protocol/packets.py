"""Packets of git's protocols (gitprotocol-common, pkt-line), and the bands of side-band-64k (gitprotocol-pack)."""

from collections.abc import Iterable

FLUSH_PACKET = b"0000"
DATA_BAND, PROGRESS_BAND = b"\1", b"\2"
"""The first byte of a packet for the client's git, and of one for the user's terminal."""


def encode_packet(data: bytes) -> bytes:
    """Returns the packet with these bytes, which are at most 65,516."""
    return b"%04x" % (len(data) + 4) + data


def encode_packets(lines: Iterable[bytes]) -> bytes:
    """Returns a packet for each line, and a flush packet."""
    return b"".join(map(encode_packet, lines)) + FLUSH_PACKET
