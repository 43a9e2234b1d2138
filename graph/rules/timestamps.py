"""Timestamps of rows, and the time between two of them."""

from datetime import datetime
from typing import Any

from sqlalchemy.inspection import inspect

from graph.context import Context


def touch_if_changed(context: Context, row: Any) -> None:
    """Set `updated_at` of a row that is about to be written if one of its columns has another value than in the database.

    An update with equal values changes nothing, so clients that read what has changed since some time need not read it again. Changes that
    were flushed before, as reads of the session do, are not seen.
    """
    if any(attribute.history.has_changes() for attribute in inspect(row).attrs):
        row.updated_at = context.now()


def seconds_between(start: datetime | None, end: datetime | None) -> float | None:
    """Seconds between two timestamps, None without one of them; never negative, even if a clock was set back."""
    return None if start is None or end is None else max((end - start).total_seconds(), 0.0)
