"""Regular expressions written by users, matched by RE2.

Python's engine backtracks, so that an expression of ten characters can occupy a processor for years. RE2 takes time proportional to the
length of the string for every expression; therefore it has no look-around and no back-references.
"""

import re
from functools import lru_cache
from time import thread_time
from typing import Any

from storage.git.cancellation import check_canceled

MAX_EXPRESSION_LENGTH = 255
"""Characters of an expression."""
MAX_MEMORY_BYTES = 256 * 1024
"""Memory of one compiled expression; RE2 expands repetitions such as `x{1000}`."""
MAX_EXPRESSIONS = 100
"""Distinct expressions of a file; all of them fit into the cache of compiled ones."""
MAX_SEARCH_SECONDS = 1.0
"""Processor time for all searches of one `ExpressionSearches`. Hostile expressions are searched at some 4 MB/s, others at 500 MB/s."""
MAX_PIECE_CHARACTERS = 64 * 1024
"""Lines that are searched at once, after which the time is compared with the limit."""


LOOK_AROUND = re.compile(r"\(\?<?[=!]")


class InvalidExpression(ValueError):
    """The expression is invalid; the message is the reason."""


class TooManyExpressions(Exception):
    """A file has more different expressions than MAX_EXPRESSIONS; the message says so."""


class SearchTooLong(Exception):
    """Searches have taken longer than MAX_SEARCH_SECONDS; the message says so."""


def compile_expression(source: str, *, ignore_case: bool = False, max_length: int = MAX_EXPRESSION_LENGTH) -> Any:
    """Compile an expression, with a cache. Raises InvalidExpression."""
    if len(source) > max_length:
        raise InvalidExpression(f"it has more than {max_length} characters")
    # Imported lazily, because it takes 1.5 MB of memory.
    import re2

    try:
        return _compile_cached(source, ignore_case)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else ""
        message = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else "it is not UTF-8"
        if LOOK_AROUND.search(source):
            message = "look-around is not supported, so that matching takes linear time; list the refs, or combine `only` with `except`"
        raise InvalidExpression(message) from error


class ExpressionBudget:
    """Compiles the expressions of a file, and counts the different ones."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: set[tuple[str, bool]] = set()

    def compile(self, source: str, *, ignore_case: bool = False, max_length: int = MAX_EXPRESSION_LENGTH) -> Any:
        """As `compile_expression`. Raises TooManyExpressions before it compiles one too many."""
        self._known.add((source, ignore_case))
        if len(self._known) > MAX_EXPRESSIONS:
            raise TooManyExpressions(f"The file has more than {MAX_EXPRESSIONS} different regular expressions.")
        return compile_expression(source, ignore_case=ignore_case, max_length=max_length)


class ExpressionSearches:
    """Searches strings for expressions, each pair once, within MAX_SEARCH_SECONDS of processor time. Used by one thread."""

    __slots__ = ("_found", "_seconds")

    def __init__(self) -> None:
        self._found: dict[tuple[str, bool, str], bool] = {}
        self._seconds = 0.0

    def contains(self, value: str, source: str, *, ignore_case: bool = False) -> bool:
        """Whether the expression matches anywhere in the value. Raises SearchTooLong."""
        key = source, ignore_case, value
        if key not in self._found:
            self._found[key] = self._search(compile_expression(source, ignore_case=ignore_case), value)
        return self._found[key]

    def contains_line(self, lines: str, expression: Any) -> bool:
        """Whether a compiled expression for whole lines matches one of them. The caller caches the result. Raises SearchTooLong."""
        start = 0
        while True:
            end = lines.find("\n", start + MAX_PIECE_CHARACTERS)
            if self._search(expression, lines[start : end if end >= 0 else None]):
                return True
            if end < 0:
                return False
            start = end + 1

    def _search(self, expression: Any, value: str) -> bool:
        check_canceled()
        begun = thread_time()
        found = expression.search(value) is not None
        self._seconds += thread_time() - begun
        if self._seconds > MAX_SEARCH_SECONDS:
            raise SearchTooLong(f"searching for expressions and patterns takes more than {MAX_SEARCH_SECONDS:g} s of processor time")
        return found


@lru_cache(maxsize=128)
def _compile_cached(source: str, ignore_case: bool) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = MAX_MEMORY_BYTES
    options.log_errors = False
    options.case_sensitive = not ignore_case
    return re2.compile(source, options)
