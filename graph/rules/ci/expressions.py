"""Regular expressions that users write, matched by RE2.

Python's own engine tries one way after the other, so that an expression of ten characters can keep a processor busy for years. RE2
takes time in proportion to the text, whatever the expression, and knows no look-around and no back-references for that reason.
"""

from functools import lru_cache
from typing import Any

MAX_EXPRESSION_LENGTH = 255
"""Characters of an expression."""
MAX_MEMORY_BYTES = 256 * 1024
"""Bytes that one compiled expression may take; a repetition such as `x{1000}` is written out."""


class InvalidExpression(ValueError):
    """The text says what is wrong with it."""


def compile_expression(source: str, *, ignore_case: bool = False) -> Any:
    """The expression. Raises InvalidExpression."""
    if len(source) > MAX_EXPRESSION_LENGTH:
        raise InvalidExpression(f"it has more than {MAX_EXPRESSION_LENGTH} characters")
    # Where builds are made, which takes it a megabyte and a half.
    import re2

    try:
        return _compile_cached(source, ignore_case)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else ""
        message = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else "it is not UTF-8"
        raise InvalidExpression(message) from error


@lru_cache(maxsize=64)
def _compile_cached(source: str, ignore_case: bool) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = MAX_MEMORY_BYTES
    options.log_errors = False
    options.case_sensitive = not ignore_case
    return re2.compile(source, options)
