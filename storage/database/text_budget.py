"""Limits how much text one session reads: descriptions, notes, messages and all other columns without a maximum length.

Columns with a maximum length are not counted, because the number of rows limits them. A session without a budget reads without a limit.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Protocol

from sqlalchemy import JSON, Text

MAX_PIECE_ROWS = 24
"""Rows that are fetched before their text is counted, which is what one statement may read too much. Most pages are smaller."""
EXPECTED_TEXT_LENGTH = 2**20
"""Expected maximum of characters in one row's text; a piece after the first has only as many rows of this length as the budget has left."""


class TextLimitExceeded(Exception):
    """A session has read more text than its budget. All its further reads are rejected immediately."""


class TextBudget:
    """The number of characters of text that may still be read; a character takes up to four bytes of memory.

    `max_row_length` is the maximum of one row so far, `row_count` the number of rows read, including those without text.
    """

    row_count = 0
    max_row_length = 0

    def __init__(self, limit: int) -> None:
        self.limit = self.remaining = limit

    @property
    def is_exceeded(self) -> bool:
        return self.remaining < 0

    def consume(self, length: int, max_row_length: int) -> None:
        """Raises TextLimitExceeded."""
        self.remaining -= length
        if max_row_length > self.max_row_length:
            self.max_row_length = max_row_length
        if self.remaining < 0:
            raise TextLimitExceeded

    def check(self) -> None:
        """Raises TextLimitExceeded if the budget is exceeded."""
        if self.remaining < 0:
            raise TextLimitExceeded


class RowCursor(Protocol):
    """A DB-API cursor."""

    def fetchmany(self, size: int, /) -> list[Any]: ...


class TextColumns:
    """The columns of a statement that contain text without a maximum length."""

    __slots__ = ("_row_lengths",)

    def __init__(self, row_lengths: Callable[[Sequence[Sequence[Any]]], list[int]]) -> None:
        self._row_lengths = row_lengths

    def consume(self, rows: Sequence[Sequence[Any]], budget: TextBudget) -> None:
        """Subtracts the text of rows from the budget. Raises TextLimitExceeded."""
        if rows:
            lengths = self._row_lengths(rows)
            budget.consume(sum(lengths), max(lengths))

    def fetch(self, cursor: RowCursor, budget: TextBudget) -> list[Any]:
        """Fetches the rows of a cursor in pieces. Raises TextLimitExceeded at the first piece that exceeds the budget."""
        piece = cursor.fetchmany(MAX_PIECE_ROWS)
        self.consume(piece, budget)
        rows = piece
        size = MAX_PIECE_ROWS
        while len(piece) == size:
            size = max(1, min(MAX_PIECE_ROWS, budget.remaining // EXPECTED_TEXT_LENGTH))
            piece = cursor.fetchmany(size)
            self.consume(piece, budget)
            rows += piece
        return rows


def find_text_columns(types: Iterable[Any]) -> TextColumns | None:
    """Returns those of a statement's columns, given their types in order, that contain text without a maximum length; None if none does."""
    indexes = tuple(index for index, kind in enumerate(types) if isinstance(kind, Text | JSON))
    return _compile_text_columns(indexes) if indexes else None


@lru_cache(maxsize=256)
def _compile_text_columns(indexes: tuple[int, ...]) -> TextColumns:
    """Generates code, because it runs for each row that is read. The source contains only integers."""
    lengths = " + ".join(f"len(r[{index}] or ())" for index in indexes)
    return TextColumns(eval(f"lambda rows: [{lengths} for r in rows]"))  # noqa: S307 - see above
