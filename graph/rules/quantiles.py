"""Summaries of numeric values: mean, maximum and nearest-rank percentiles."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage.tables.quantiles import MILLION


@dataclass(frozen=True, slots=True)
class QuantileSummary:
    """Summary of a set of values; every field except `count` is None when there are no values."""

    count: int
    mean: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    max: float | None


def build_summary(columns: Sequence[int | None]) -> QuantileSummary:
    """Build a summary from the columns of `storage.tables.quantiles`, whose values are in millionths."""
    count, wholes, remainder, *values = columns
    mean = ((wholes or 0) * MILLION + (remainder or 0)) / (count * MILLION) if count else None
    return QuantileSummary(count or 0, mean, *(None if value is None else value / MILLION for value in values))
