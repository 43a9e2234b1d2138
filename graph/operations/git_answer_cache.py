"""The cache of answers that a commit determines: pages of directories and small files, as they are in the data of an operation."""

from collections.abc import Hashable
from sys import getsizeof
from typing import Any, NamedTuple

from graph.caches import CacheBounds, LruCache

_MAX_ENTRY_BYTES = 2**19
GIT_ANSWERS = CacheBounds("git answers", max_entries=2_000, max_bytes=16 * 2**20, max_entry_bytes=_MAX_ENTRY_BYTES)

_ENTRY_BYTES = 900
"""Of an entry without its answer."""


class GitAnswer(NamedTuple):
    """The answer of a field, which nobody changes, and the characters of text that it took from the budget of its operation."""

    value: Any
    text_length: int
    max_text_length: int


class GitAnswerCache(LruCache[Hashable, GitAnswer]):
    """By the field, the project, the version of its refs, and the arguments. Callers have checked that the viewer may read code."""

    def __init__(self) -> None:
        super().__init__(GIT_ANSWERS, lambda _, answer: _estimate(answer.value))


def _estimate(value: Any) -> int:
    """The bytes of an entry; of one that is too large, only the first ones that exceed the bound."""
    total, pending = _ENTRY_BYTES, [value]
    while pending and total <= _MAX_ENTRY_BYTES:
        found = pending.pop()
        total += getsizeof(found)
        if isinstance(found, dict):
            # The keys are those of the plan.
            pending += found.values()
        elif isinstance(found, list):
            pending += found
    return total
