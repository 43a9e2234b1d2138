"""The cache of answers that a commit determines: pages of directories and small files, as they are in the data of an operation."""

from collections.abc import Hashable
from sys import getsizeof
from typing import Any, NamedTuple

from graph.caches import CacheBounds, LruCache

GIT_ANSWERS = CacheBounds("git answers", max_entries=2_000, max_bytes=16 * 2**20)
MAX_ANSWER_BYTES = 2**19
"""A larger answer is not cached."""

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

    def put(self, key: Hashable, value: GitAnswer) -> None:
        if _estimate(value.value) <= MAX_ANSWER_BYTES:
            super().put(key, value)


def _estimate(value: Any) -> int:
    """The bytes of an entry; only those until they exceed MAX_ANSWER_BYTES."""
    total, pending = _ENTRY_BYTES, [value]
    while pending and total <= MAX_ANSWER_BYTES:
        found = pending.pop()
        total += getsizeof(found)
        if isinstance(found, dict):
            # The keys are those of the plan.
            pending += found.values()
        elif isinstance(found, list):
            pending += found
    return total
