"""Quantiles by nearest rank: the smallest value such that at least this percentage of the values do not exceed it.

A measure is a column of integers; null means no value.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Subquery, case, cast, func, select

PERCENTILES = (50, 90, 95)
"""In per cent; the maximum is selected too."""
MILLION = 1_000_000


def rank_rows(rows: Subquery, keys: Sequence[str], measures: Sequence[str]) -> Subquery:
    """Adds to each row the rank of each measure's value in its group, and the number of values; `keys` are the group's columns."""
    if not measures:
        return rows
    group = [rows.c[key] for key in keys]
    columns = []
    for measure in measures:
        value = rows.c[measure]
        columns.append(func.row_number().over(partition_by=group, order_by=value.asc().nulls_last()).label(f"{measure}_rank"))
        columns.append(func.count(value).over(partition_by=group).label(f"{measure}_count"))
    return select(rows, *columns).subquery()


def quantile_columns(rows: Subquery, measure: str) -> list[Any]:
    """The columns of a group of `rank_rows`: number of values, sums of their millions and of their rests, PERCENTILES, maximum.

    The sum is in two parts, because the sum of very long times exceeds the integers of both databases.
    """
    value, position, count = (rows.c[name] for name in (measure, f"{measure}_rank", f"{measure}_count"))
    sums = [cast(func.sum(part), BigInteger) for part in (value // MILLION, value % MILLION)]
    percentiles = [func.max(case((position == (count * rank + 99) // 100, value))) for rank in PERCENTILES]
    return [func.count(value), *sums, *percentiles, func.max(value)]


COLUMN_COUNT = len(PERCENTILES) + 4
"""Number of columns of a measure."""
