"""The heap of a server process."""

import ctypes

MAX_HEAP_BLOCK_BYTES = 128 * 1024
"""Larger blocks are mapped, and go back to the system when they are freed."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's malloc.h."""


def fix_block_limit() -> bool:
    """Keeps large blocks out of the heap; returns whether the C library can (only glibc).

    glibc raises its limit to the size of the largest mapped block that was freed, up to 32 MiB. Blocks below it then come from the heap,
    where a small one behind them keeps their memory from the system: a trace streamed to 50 readers left four times as much resident.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MAX_HEAP_BLOCK_BYTES) and mallopt(_M_TRIM_THRESHOLD, MAX_HEAP_BLOCK_BYTES))
