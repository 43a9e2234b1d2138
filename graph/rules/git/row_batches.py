"""Batches of rows for statements, whose number of parameters is limited."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

ROWS_PER_STATEMENT = 500

T = TypeVar("T")


def split_rows(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """The rows in their order, at most ROWS_PER_STATEMENT at a time."""
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        yield rows[start : start + ROWS_PER_STATEMENT]
