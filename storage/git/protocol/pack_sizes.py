"""The unpacked sizes of the objects of a small pack, read before git has the pack (gitformat-pack)."""

import zlib

MAX_READ_BYTES = 256 * 1024
"""Larger packs are not read here."""
_HEADER_BYTES, _TRAILER_BYTES = 12, 20
_OFFSET_DELTA, _REFERENCE_DELTA = 6, 7
_BASE_ID_BYTES = 20
_MIN_STREAM_BYTES = 64
_MAX_SHIFT = 56


def has_only_small_objects(pack: bytes, max_bytes: int) -> bool:
    """Whether the pack is complete and all its objects, with the bases of its deltas, have at most `max_bytes`; False in doubt.

    It unpacks at most `max_bytes` in total. The sizes are those that the pack declares: git refuses one whose objects have others.
    """
    if len(pack) > MAX_READ_BYTES:
        return False
    try:
        return _has_only_small_objects(pack, max_bytes)
    except (IndexError, ValueError, zlib.error):
        return False


def _has_only_small_objects(pack: bytes, max_bytes: int) -> bool:
    view, offset, total = memoryview(pack), _HEADER_BYTES, 0
    for _ in range(int.from_bytes(pack[8:_HEADER_BYTES])):
        first = pack[offset]
        kind, (size, offset) = first >> 4 & 7, _read_size(pack, offset, first & 15, 4)
        if kind == _OFFSET_DELTA:
            while pack[offset] & 128:
                offset += 1
            offset += 1
        elif kind == _REFERENCE_DELTA:
            offset += _BASE_ID_BYTES
        total += size
        if total > max_bytes:
            return False
        # A stream is hardly longer than its contents, and copying the rest of the pack for each object would take long.
        chunk = view[offset : offset + size + size // 64 + _MIN_STREAM_BYTES]
        stream = zlib.decompressobj()
        contents = stream.decompress(chunk, size + 1)
        if not stream.eof or len(contents) != size:
            return False
        offset += len(chunk) - len(stream.unused_data)
        if kind in (_OFFSET_DELTA, _REFERENCE_DELTA):
            base_size, end = _read_size(contents, 0, contents[0] & 127, 7)
            if max(base_size, _read_size(contents, end, contents[end] & 127, 7)[0]) > max_bytes:
                return False
    return offset == len(pack) - _TRAILER_BYTES


def _read_size(data: bytes, offset: int, size: int, shift: int) -> tuple[int, int]:
    """Continues a size of seven bits in each byte, whose first byte at `offset` gave `size`. Returns it and the offset after it.

    Raises IndexError, ValueError.
    """
    while data[offset] & 128:
        if shift > _MAX_SHIFT:
            raise ValueError("the size has too many digits")
        offset += 1
        size |= (data[offset] & 127) << shift
        shift += 7
    return size, offset + 1
