"""The memory that objects take, to compare the estimates of caches with."""

import gc
import tracemalloc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


class MeasuredMemory:
    """What a block has left allocated, in bytes; 0 until it has ended."""

    bytes = 0


@contextmanager
def measure_memory() -> Iterator[MeasuredMemory]:
    """Measures what the block leaves allocated.

    The collection before it empties CPython's free lists too, whose objects are not traced.
    """
    measured = MeasuredMemory()
    with warnings.catch_warnings():
        # The garbage of earlier tests may warn.
        warnings.simplefilter("ignore")
        gc.collect()
    tracemalloc.start()
    try:
        yield measured
        measured.bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
