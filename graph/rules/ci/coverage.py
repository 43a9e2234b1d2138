"""The coverage that a job's trace tells."""

import math
import re
from collections.abc import Mapping
from time import monotonic
from typing import Any

from graph.rules.ci.expressions import BadExpression, compiled

TAIL = 64 * 1024
"""Characters at the end of a trace that are looked through."""
LONGEST_LINE = 2_000
SECONDS = 0.5
"""The longest that is looked."""

_NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")


def coverage_of(options: Mapping[str, Any], tail: str) -> float | None:
    """Per cent, by the last line of the trace's end that the job's expression (`coverage`) matches: the first number in its last group,
    or in all that it matches where it has no group (wire facts 5.1). None without an expression, a match, or a number up to 100."""
    source = options.get("coverage")
    if not isinstance(source, str):
        return None
    try:
        expression = compiled(source)
    except BadExpression:
        return None
    deadline = monotonic() + SECONDS
    cleaned = tail[-TAIL:].encode("utf-8", "replace").decode()
    for line in reversed(cleaned.splitlines()):
        last = None
        for match in expression.finditer(_COLOUR.sub("", line[:LONGEST_LINE])):
            last = match
            if monotonic() > deadline:
                return None
        if last is not None:
            return _number(last.groups()[-1] if last.groups() else last.group())
        if monotonic() > deadline:
            return None
    return None


def _number(text: str | None) -> float | None:
    found = _NUMBER.search(text or "")
    value = float(found.group()) if found else math.inf
    return value if value <= 100 else None
