"""The heap of a server process."""

import ctypes

MAX_HEAP_BLOCK_BYTES = 128 * 1024
"""Larger blocks are mapped, and go back to the system when they are freed."""
MAX_HEAPS = 2
"""glibc gives each thread a heap of its own, up to eight for each core, and what one has freed no other uses. The threads of a server
allocate one after another anyway, since most of it happens while they hold the interpreter."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Numbers of glibc's malloc.h."""


def limit_heap() -> bool:
    """Keeps large blocks out of the heap, and threads from having heaps of their own; returns whether the C library can (only glibc).

    glibc raises its limit to the size of the largest mapped block that was freed, up to 32 MiB. Blocks below it then come from the heap,
    where a small one behind them keeps their memory from the system: a trace streamed to 50 readers left four times as much resident.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    limits = ((_M_MMAP_THRESHOLD, MAX_HEAP_BLOCK_BYTES), (_M_TRIM_THRESHOLD, MAX_HEAP_BLOCK_BYTES), (_M_ARENA_MAX, MAX_HEAPS))
    # Each is set, also after one that cannot be.
    results = [mallopt(*each) for each in limits]
    return all(results)
