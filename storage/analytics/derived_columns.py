"""The columns that the copy has beside those of `build_source`: computed once when the file is written, so that answers need not.

Quarters and days are numbers of quarters of an hour and of days since the beginning of the year 1 in UTC, day 1, as `Buckets` numbers days.
"""

from storage.tables.buckets import DAY_SECONDS, EPOCH_DAY
from storage.tables.builds.commit_statuses import CheckStatus
from storage.tables.quantiles import MILLION

SHIFT_SECONDS = EPOCH_DAY * DAY_SECONDS
"""Added to seconds since 1970 to have none below zero, because DuckDB's division truncates."""
QUARTER_SECONDS = 900


def derived_columns(now: int | None = None) -> dict[str, str]:
    """The columns and their expressions over those of `build_source`. Unfinished builds are measured up to `now`, in microseconds."""
    ended = "finished_at" if now is None else f"coalesce(finished_at, {int(now)})"
    return {
        "is_check": f"status <> '{CheckStatus.MANUAL.value}'",
        "created_quarter": _number("created_at", QUARTER_SECONDS),
        "created_day": _number("created_at", DAY_SECONDS),
        "finished_quarter": _number("finished_at", QUARTER_SECONDS),
        "duration": _difference("started_at", ended),
        "queued": _difference("created_at", f"coalesce(started_at, {ended})"),
    }


def with_derived_columns(table: str, now: int | None = None) -> str:
    """A SELECT of a table of builds that adds the derived columns, and leaves out what answers need only for these."""
    columns = ", ".join(f"{expression} AS {name}" for name, expression in derived_columns(now).items())
    return f"SELECT * EXCLUDE (started_at), {columns} FROM {table}"  # noqa: S608 - constants


def _number(column: str, seconds: int) -> str:
    return f"(({column} + {SHIFT_SECONDS * MILLION}) // {seconds * MILLION})::INTEGER"


def _difference(start: str, end: str) -> str:
    """Microseconds; 0 for a clock that was set back, null if an end is missing."""
    return f"CASE WHEN {end} >= {start} THEN {end} - {start} WHEN {end} < {start} THEN 0 END"
