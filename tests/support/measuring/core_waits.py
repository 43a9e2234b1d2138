"""Measures how long a thread waits for a core: what other processes take of a measured time."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def measure_core_waits() -> Iterator[Callable[[], float]]:
    """A function that returns how long this thread has waited for a core while it was ready, in seconds (proc(5), `schedstat`)."""
    with Path("/proc/thread-self/schedstat").open("rb") as file:
        yield lambda: int(os.pread(file.fileno(), 100, 0).split()[1]) / 1e9
