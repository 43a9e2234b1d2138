"""Quantiles by nearest rank: the smallest value that at least so many per cent of the values do not exceed.

A measure is a column of whole numbers, or null where there is nothing to measure.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Subquery, case, cast, func, select

PERCENTILES = (50, 90, 95)
"""In per cent; beside them the largest value is asked."""
MILLION = 1_000_000


def rank_rows(rows: Subquery, keys: Sequence[str], measures: Sequence[str]) -> Subquery:
    """The rows with the place of each measure's value among those of the group that the columns `keys` make, and how many there are."""
    if not measures:
        return rows
    group = [rows.c[key] for key in keys]
    columns = []
    for measure in measures:
        value = rows.c[measure]
        columns.append(func.row_number().over(partition_by=group, order_by=value.asc().nulls_last()).label(f"{measure}_place"))
        columns.append(func.count(value).over(partition_by=group).label(f"{measure}_count"))
    return select(rows, *columns).subquery()


def quantile_columns(rows: Subquery, measure: str) -> list[Any]:
    """Of each group of `rank_rows` rows: how many values, the sums of their millions and of what is left, the PERCENTILES, the largest
    value.

    The sum is in two parts, since that of very long times goes beyond what either database counts.
    """
    value, position, count = (rows.c[name] for name in (measure, f"{measure}_place", f"{measure}_count"))
    sums = [cast(func.sum(part), BigInteger) for part in (value // MILLION, value % MILLION)]
    percentiles = [func.max(case((position == (count * rank + 99) // 100, value))) for rank in PERCENTILES]
    return [func.count(value), *sums, *percentiles, func.max(value)]


COLUMN_COUNT = len(PERCENTILES) + 4
"""How many columns a measure has."""
