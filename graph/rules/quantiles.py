"""What many values come to, by nearest rank."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage.tables.quantiles import PART


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Without any value all but `count` is None."""

    count: int
    mean: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    max: float | None


def read(columns: Sequence[int | None]) -> Quantiles:
    """Out of the columns of `storage.tables.quantiles`, which are in millionths."""
    count, wholes, rest, *values = columns
    mean = ((wholes or 0) * PART + (rest or 0)) / (count * PART) if count else None
    return Quantiles(count or 0, mean, *(None if value is None else value / PART for value in values))
