"""Summaries of numeric values: mean, maximum and nearest-rank percentiles."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from storage.tables.quantiles import MILLION


@dataclass(slots=True)
class QuantileSummary:
    """Summary of a set of values; every field except `count` is None when there are no values."""

    count: int
    mean: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    max: float | None


def build_summaries(columns: Sequence[Sequence[Any]]) -> list[QuantileSummary | None]:
    """Build the summaries of many groups from the columns of `storage.tables.quantiles`; None for a group without values."""
    counts, wholes, rests, *values = columns
    means = [
        (whole * MILLION + rest) / (count * MILLION) if count and whole is not None else None
        for count, whole, rest in zip(counts, wholes, rests, strict=True)
    ]
    numbers = [[None if value is None else value / MILLION for value in column] for column in values]
    found: list[QuantileSummary | None] = list(map(QuantileSummary, counts, means, *numbers))
    return found if all(counts) else [each if count else None for each, count in zip(found, counts, strict=True)]


def build_summary(columns: Sequence[int | None]) -> QuantileSummary:
    """Build a summary from the columns of `storage.tables.quantiles`, whose values are in millionths."""
    count, wholes, remainder, p50, p90, p95, highest = columns
    if not count or p50 is None or p90 is None or p95 is None or highest is None:
        return QuantileSummary(0, None, None, None, None, None)
    mean = ((wholes or 0) * MILLION + (remainder or 0)) / (count * MILLION)
    return QuantileSummary(count, mean, p50 / MILLION, p90 / MILLION, p95 / MILLION, highest / MILLION)
