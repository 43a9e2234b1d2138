"""SQL statements and expressions that differ between SQLite and PostgreSQL and have equal results on both.

SQLite stores a timestamp as `2016-03-27 01:00:00.000000`. Its functions round the fraction, so the whole seconds and the fraction are
extracted separately.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Boolean, ColumnElement, Integer, Select, String, TextClause, bindparam, func, literal, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.visitors import InternalTraversal
from sqlmodel import col

from storage.database.column_types import Timestamp

_PATTERN_CHARACTER = re.compile("[%_/]")
"""Characters that a pattern of LIKE escapes with a slash."""


class _Seconds(FunctionElement[int]):
    name = "seconds"
    type = BigInteger()
    inherit_cache = True


class _Microseconds(FunctionElement[int]):
    name = "microseconds"
    type = BigInteger()
    inherit_cache = True


class _StepFunction(FunctionElement[int]):
    """`first` until the first of `steps`, which are in order; from each of them on its number."""

    name = "step_function"
    type = BigInteger()
    inherit_cache = True
    _traverse_internals = [
        *FunctionElement._traverse_internals,
        ("first", InternalTraversal.dp_plain_obj),
        ("steps", InternalTraversal.dp_plain_obj),
    ]

    def __init__(self, moment: Any, first: int, steps: tuple[tuple[str, int], ...]) -> None:
        super().__init__(moment)
        self.first = first
        self.steps = steps


class _Month(FunctionElement[int]):
    name = "month"
    type = Integer()
    inherit_cache = True


class _Millionths(FunctionElement[int]):
    name = "millionths"
    type = BigInteger()
    inherit_cache = True


class _ByCodePoint(FunctionElement[str]):
    name = "by_code_point"
    type = String()
    inherit_cache = True


class _IgnoringCase(FunctionElement[bool]):
    """A column, the LIKE pattern of a string in lower case, and the GLOB pattern of both cases of its letters."""

    name = "ignoring_case"
    type = Boolean()
    inherit_cache = True


class _ByDialect(FunctionElement[bool]):
    """A condition for SQLite and one for PostgreSQL."""

    name = "by_dialect"
    type = Boolean()
    inherit_cache = True

    def self_group(self, against: Any = None) -> Any:
        # Otherwise SQLAlchemy would compare it with 1 on SQLite, which then uses no index.
        return self


def by_dialect(*, sqlite: Any, postgresql: Any) -> ColumnElement[bool]:
    """A condition that is written differently for the databases, each of which uses an index only for its own expression."""
    return _ByDialect(sqlite, postgresql)


def insert_into(dialect: str, table: Any) -> Any:
    """An INSERT that can have ON CONFLICT."""
    return (sqlite.insert if dialect == "sqlite" else postgresql.insert)(table)


def timestamp_literal(moment: datetime) -> Any:
    """A timestamp as a parameter of a statement."""
    return literal(moment, Timestamp)


def epoch_seconds(moment: Any) -> Any:
    """Whole seconds from 1970 to a timestamp, rounded down."""
    return _Seconds(moment)


def microseconds_between(start: Any, end: Any) -> Any:
    """Microseconds from one timestamp to another; negative if `end` is earlier."""
    return _Microseconds(start, end)


def number_at(moment: Any, first: int, steps: Sequence[tuple[datetime, int]]) -> Any:
    """The number that applies at a timestamp: `first`, and from each of the steps on, which are in order, that of the step.

    The numbers are part of the SQL string. As expressions of SQLAlchemy, the steps of a time zone would take 50 ms at each use.
    """
    return _StepFunction(moment, first, tuple((f"{begins:%Y-%m-%d %H:%M:%S}", number) for begins, number in steps))


def month(clock: Any) -> Any:
    """The month of a local time, as a number counted from the year 0; `clock` is the local time in seconds since 1970."""
    return _Month(clock)


def millionths(number: Any) -> Any:
    """A non-negative number in millionths, rounded."""
    return _Millionths(number)


def by_code_point(string: Any) -> Any:
    """A string that is compared by code points, whatever the collation of the database."""
    return _ByCodePoint(string)


def is_plain_text(string: str) -> bool:
    """Whether the string is ASCII and has no character that a pattern of LIKE would have to escape."""
    return string.isascii() and _PATTERN_CHARACTER.search(string) is None


def contains_ignoring_case(column: Any, string: str) -> ColumnElement[bool]:
    """The condition that a column contains the string, whatever the case of its letters.

    A plain text is bound as it is: in a compiled statement another one can take its place.
    """
    if is_plain_text(string):
        return col(column).icontains(string, escape="/")
    if string.isascii():
        return col(column).icontains(string, autoescape=True)
    return _IgnoringCase(col(column), literal(f"%{_escape_like(string)}%"), literal(f"*{_glob_of_both_cases(string)}*"))


def equals_ignoring_case(column: Any, string: str) -> ColumnElement[bool]:
    """The condition that a column has this value, whatever the case of its letters."""
    if string.isascii():
        return func.lower(col(column)) == string.lower()
    return _IgnoringCase(col(column), literal(_escape_like(string)), literal(_glob_of_both_cases(string)))


def _escape_like(string: str) -> str:
    return _PATTERN_CHARACTER.sub(r"/\g<0>", string)


def _glob_of_both_cases(string: str) -> str:
    """A pattern of GLOB, which compares code points: `[Üü]ber[*]`. Characters whose other case has several code points match themselves."""
    return "".join(map(_glob_of_character, string))


def _glob_of_character(character: str) -> str:
    lower = character.lower()
    variants = {character} | {each for each in (lower, lower.upper(), lower.title()) if len(each) == 1 and each.lower() == lower}
    return f"[{''.join(sorted(variants))}]" if len(variants) > 1 or character in "*?[" else character


def _compile_clauses(element: Any, compiler: Any, settings: dict[str, Any]) -> list[str]:
    return [compiler.process(each, **settings) for each in element.clauses]


@compiles(_ByDialect, "sqlite")
def _(element: Any, compiler: Any, **settings: Any) -> str:
    condition, _ = element.clauses
    return f"({compiler.process(condition, **settings)})"


@compiles(_ByDialect, "postgresql")
def _(element: Any, compiler: Any, **settings: Any) -> str:
    _, condition = element.clauses
    return f"({compiler.process(condition, **settings)})"


@compiles(_Seconds, "sqlite")
def _(element: Any, compiler: Any, **settings: Any) -> str:
    (moment,) = _compile_clauses(element, compiler, settings)
    return _sqlite_epoch(moment)


@compiles(_Seconds, "postgresql")
def _(element: Any, compiler: Any, **settings: Any) -> str:
    (moment,) = _compile_clauses(element, compiler, settings)
    return f"CAST(floor(extract(epoch FROM {_replace_infinity(moment)})) AS BIGINT)"


@compiles(_Microseconds, "sqlite")
def _(element: Any, compiler: Any, **settings: Any) -> str:
    start, end = _compile_clauses(element, compiler, settings)
    return f"(({_sqlite_epoch(end)} - {_sqlite_epoch(start)}) * 1000000 + substr({end}, 21, 6) - substr({start}, 21, 6))"


@compiles(_Microseconds, "postgresql")
def _(element: Any, compiler: Any, **settings: Any) -> str:
    start, end = _compile_clauses(element, compiler, settings)
    return f"CAST(extract(epoch FROM ({_replace_infinity(end)} - {_replace_infinity(start)})) * 1000000 AS BIGINT)"


@compiles(_StepFunction, "sqlite")
def _(element: Any, compiler: Any, **settings: Any) -> str:
    (moment,) = _compile_clauses(element, compiler, settings)
    return _compile_steps(moment, element.first, element.steps, "'{}.000000'")


@compiles(_StepFunction, "postgresql")
def _(element: Any, compiler: Any, **settings: Any) -> str:
    (moment,) = _compile_clauses(element, compiler, settings)
    return _compile_steps(moment, element.first, element.steps, "TIMESTAMPTZ '{}+00'")


@compiles(_Month, "sqlite")
def _(element: Any, compiler: Any, **settings: Any) -> str:
    (clock,) = _compile_clauses(element, compiler, settings)
    return f"(strftime('%Y', {clock}, 'unixepoch') * 12 + strftime('%m', {clock}, 'unixepoch') - 1)"


@compiles(_Month, "postgresql")
def _(element: Any, compiler: Any, **settings: Any) -> str:
    (clock,) = _compile_clauses(element, compiler, settings)
    shown = f"(to_timestamp({clock}) AT TIME ZONE 'UTC')"
    return f"CAST(extract(year FROM {shown}) * 12 + extract(month FROM {shown}) - 1 AS INTEGER)"


@compiles(_Millionths, "sqlite")
def _(element: Any, compiler: Any, **settings: Any) -> str:
    (number,) = _compile_clauses(element, compiler, settings)
    return f"CAST({number} * 1000000 + 0.5 AS INTEGER)"


@compiles(_Millionths, "postgresql")
def _(element: Any, compiler: Any, **settings: Any) -> str:
    (number,) = _compile_clauses(element, compiler, settings)
    return f"CAST(floor({number} * 1000000 + 0.5) AS BIGINT)"


@compiles(_ByCodePoint, "sqlite")
def _(element: Any, compiler: Any, **settings: Any) -> str:
    (string,) = _compile_clauses(element, compiler, settings)
    return f"({string} COLLATE BINARY)"


@compiles(_ByCodePoint, "postgresql")
def _(element: Any, compiler: Any, **settings: Any) -> str:
    (string,) = _compile_clauses(element, compiler, settings)
    return f'({string} COLLATE "C")'


@compiles(_IgnoringCase, "sqlite")
def _(element: Any, compiler: Any, **settings: Any) -> str:
    # Its lower() leaves all letters but those of ASCII as they are.
    column, _, pattern = element.clauses
    return f"({compiler.process(column, **settings)} GLOB {compiler.process(pattern, **settings)})"


@compiles(_IgnoringCase, "postgresql")
def _(element: Any, compiler: Any, **settings: Any) -> str:
    column, pattern, _ = element.clauses
    return f"(lower({compiler.process(column, **settings)}) LIKE lower({compiler.process(pattern, **settings)}) ESCAPE '/')"


def _compile_steps(moment: str, first: int, steps: Sequence[tuple[str, int]], timestamp: str) -> str:
    """SQL that finds the number with as many comparisons as a binary search. `timestamp` is the format of a literal."""
    if not steps:
        return str(first)
    middle = len(steps) // 2
    begins, number = steps[middle]
    earlier = _compile_steps(moment, first, steps[:middle], timestamp)
    later = _compile_steps(moment, number, steps[middle + 1 :], timestamp)
    return f"CASE WHEN {moment} < {timestamp.format(begins)} THEN {earlier} ELSE {later} END"


def _sqlite_epoch(moment: str) -> str:
    return f"CAST(strftime('%s', substr({moment}, 1, 19)) AS INTEGER)"


def _replace_infinity(moment: str) -> str:
    """Replaces infinite timestamps: asyncpg stores `datetime.min` and `datetime.max` as PostgreSQL's infinities."""
    last, first = "9999-12-31 23:59:59.999999+00", "0001-01-01 00:00:00+00"
    cases = f"WHEN 'infinity' THEN TIMESTAMPTZ '{last}' WHEN '-infinity' THEN TIMESTAMPTZ '{first}'"
    return f"(CASE {moment} {cases} ELSE {moment} END)"


def advisory_lock(dialect: str, lock_class: int, key: ColumnElement[int]) -> Select[Any]:
    """The statement that waits for other transactions with this class and key, and locks both until the transaction ends.

    Run it by the session's `execute`. On SQLite it only begins the transaction, of which there is one at a time: reads do not begin it.
    """
    if dialect == "sqlite":
        return select(literal(1))
    return select(func.pg_advisory_xact_lock(bindparam("class", lock_class, Integer), key))


def limit_lock_waits(dialect: str, milliseconds: int) -> TextClause | None:
    """The statement after which the transaction waits for each lock so long at most; None on SQLite, which locks no rows."""
    return None if dialect == "sqlite" else text(f"SET LOCAL lock_timeout = {milliseconds:d}")
