"""How the processor time of a function grows with its input."""

import time
from collections.abc import Callable

FACTOR = 10
MAX_LINEAR_GROWTH = 4 * FACTOR
"""Quadratic time grows by the square of FACTOR, linear time by FACTOR and some noise."""


def time_growth(work: Callable[[str], object], piece: str, *, length: int = 4_000) -> float:
    """The factor by which the processor time grows if the string of repeated pieces is FACTOR times as long."""
    return min_seconds(work, piece, length * FACTOR) / min_seconds(work, piece, length)


def min_seconds(work: Callable[[str], object], piece: str, length: int) -> float:
    """The processor time for a string of repeated pieces, the shortest of three times."""
    text, seconds = piece * (length // len(piece)), list[float]()
    for _ in range(3):
        start = time.thread_time()
        work(text)
        seconds.append(time.thread_time() - start)
    return min(seconds)
