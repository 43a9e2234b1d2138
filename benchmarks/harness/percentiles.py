"""The median and the 99th percentile of times."""

import math
from collections.abc import Sequence


def summarize(seconds: Sequence[float]) -> dict[str, float]:
    """The median and the 99th percentile in milliseconds."""
    ordered = sorted(seconds)
    return {"p50_ms": round(1000 * percentile(ordered, 0.5), 1), "p99_ms": round(1000 * percentile(ordered, 0.99), 1)}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the values that at least this share does not exceed (nearest rank).

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.0
    """
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
