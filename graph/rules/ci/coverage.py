"""Extracts the coverage that a job prints in its trace."""

import math
import re
from collections.abc import Mapping
from time import monotonic
from typing import Any

from graph.rules.ci.expressions import InvalidExpression, compile_expression

MAX_TAIL_CHARACTERS = 64 * 1024
"""Characters at the end of a trace that are searched."""
MAX_LINE_LENGTH = 2_000
MAX_SECONDS = 0.5
"""Time limit of the search."""

_NUMBER_PATTERN = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_COLOR_PATTERN = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")


def parse_coverage(options: Mapping[str, Any], tail: str) -> float | None:
    """The coverage in percent that a trace reports (docs/wire-facts.md 5.1).

    It is in the last line of the tail that the job's `coverage` expression matches. It is the first number in the last group of the
    last match, or in the whole match without groups. None without an expression, a match, or a number up to 100.
    """
    source = options.get("coverage")
    if not isinstance(source, str):
        return None
    try:
        expression = compile_expression(source)
    except InvalidExpression:
        return None
    deadline = monotonic() + MAX_SECONDS
    cleaned = tail[-MAX_TAIL_CHARACTERS:].encode("utf-8", "replace").decode()
    for line in reversed(cleaned.splitlines()):
        last = None
        for match in expression.finditer(_COLOR_PATTERN.sub("", line[:MAX_LINE_LENGTH])):
            last = match
            if monotonic() > deadline:
                return None
        if last is not None:
            return _parse_number(last.groups()[-1] if last.groups() else last.group())
        if monotonic() > deadline:
            return None
    return None


def _parse_number(string: str | None) -> float | None:
    found = _NUMBER_PATTERN.search(string or "")
    value = float(found.group()) if found else math.inf
    return value if value <= 100 else None
