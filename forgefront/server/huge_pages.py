"""Huge pages for the heap of a server process.

Answering a request touches objects all over the heap. With pages of 4 KiB the processor has to look up where most of them are, which takes
it some tenth of the time of a small request, more in a virtual machine. Pages of 2 MiB need no such lookups (Linux,
Documentation/admin-guide/mm/transhuge.rst). Neither Python nor the C library asks for them.
"""

import ctypes
import mmap
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

HUGE_PAGE_BYTES = 2 * 1024 * 1024
MIN_RESIDENT = 0.75
"""The share of a range that must be in memory already: the rest is allocated."""
MIN_MOVE_SECONDS = 0.0002
"""Moving memory that was moved before takes less."""
_MADV_COLLAPSE = 25
_ANONYMOUS_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p 00000000 00:00 0 *(?:\[heap\])?")


def use_huge_pages(pause: float = 0.0) -> int:
    """Moves the memory of this process to huge pages where most of it is in use; returns the number of bytes in the ranges that were moved.

    Each 2 MiB that are moved for the first time take some milliseconds, in which other threads cannot allocate memory; `pause` is how many
    seconds they are then left alone. Returns 0 where the system cannot (before Linux 6.1).
    """
    if sys.platform != "linux":
        return 0
    library = ctypes.CDLL(None)
    library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    library.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    page_count = HUGE_PAGE_BYTES // mmap.PAGESIZE
    residence = ctypes.create_string_buffer(page_count)
    moved = 0
    for address in _list_ranges():
        if library.mincore(address, HUGE_PAGE_BYTES, residence) != 0 or residence.raw.count(1) < MIN_RESIDENT * page_count:
            continue
        before = time.monotonic()
        if library.madvise(address, HUGE_PAGE_BYTES, _MADV_COLLAPSE) == 0:
            moved += HUGE_PAGE_BYTES
        if pause and time.monotonic() - before > MIN_MOVE_SECONDS:
            time.sleep(pause)
    return moved


def _list_ranges() -> Iterator[int]:
    """The addresses of the aligned ranges of HUGE_PAGE_BYTES in private memory without a file."""
    try:
        # Names of files, which need not be UTF-8, stand behind what is read here.
        mappings = Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return
    for line in mappings.splitlines():
        if found := _ANONYMOUS_MAPPING.fullmatch(line):
            start, end = (int(each, 16) for each in found.groups())
            yield from range(-(-start // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES, end - HUGE_PAGE_BYTES + 1, HUGE_PAGE_BYTES)
