"""Regular expressions written by users, matched by RE2.

Python's engine backtracks, so that an expression of ten characters can occupy a processor for years. RE2 takes time proportional to the
length of the string for every expression; therefore it has no look-around and no back-references.
"""

import re
from functools import lru_cache
from typing import Any

MAX_EXPRESSION_LENGTH = 255
"""Characters of an expression."""
MAX_MEMORY_BYTES = 256 * 1024
"""Memory of one compiled expression; RE2 expands repetitions such as `x{1000}`."""


LOOK_AROUND = re.compile(r"\(\?<?[=!]")


class InvalidExpression(ValueError):
    """The expression is invalid; the message is the reason."""


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


@lru_cache(maxsize=64)
def _compile_cached(source: str, ignore_case: bool) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = MAX_MEMORY_BYTES
    options.log_errors = False
    options.case_sensitive = not ignore_case
    return re2.compile(source, options)
