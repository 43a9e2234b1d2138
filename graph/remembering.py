"""What texts of anybody's mean, remembered while they are in use, within bounds.

A bound is in characters, since a text that was read takes some hundred bytes for each: its nodes, its costs and its plan.
"""

import gc
from collections import OrderedDict
from typing import Generic, TypeVar

from graphql import Location, Node

T = TypeVar("T")
Key = tuple[str, str | None]

IN_USE = 100_000
"""Characters of the texts that were asked for twice and more."""
NEW = 10_000
"""Characters of those that were asked for once. Most of them never are again, and they push no other out of use."""
LEAST = 100
"""What even the shortest text counts."""
LET_GO = 20_000
"""Characters of the texts that went out of use between two sweeps of the collector."""


class Remembered(Generic[T]):
    """What each text means. The nodes and the plans of a text point at each other, so that one that is let go is freed by the collector
    alone. Left to itself, a server's would come after tens of thousands of them; so it is called after each LET_GO.
    """

    def __init__(self, *, in_use: int = IN_USE, new: int = NEW) -> None:
        self._in_use: _Shelf[T] = _Shelf(in_use)
        self._new: _Shelf[T] = _Shelf(new)
        self._let_go = 0

    def find(self, key: Key) -> T | None:
        found = self._in_use.find(key)
        if found is None and (found := self._new.take(key)) is not None:
            self._put(self._in_use, key, found)
        return found

    def put(self, key: Key, value: T) -> None:
        """One that was not found."""
        self._put(self._new, key, value)

    def _put(self, shelf: "_Shelf[T]", key: Key, value: T) -> None:
        self._let_go += shelf.put(key, value)
        if self._let_go > LET_GO:
            self._let_go = 0
            gc.collect()


class _Shelf(Generic[T]):
    """Those that were asked for last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._values: OrderedDict[Key, T] = OrderedDict()

    def find(self, key: Key) -> T | None:
        found = self._values.get(key)
        if found is not None:
            self._values.move_to_end(key)
        return found

    def take(self, key: Key) -> T | None:
        found = self._values.pop(key, None)
        if found is not None:
            self._held -= _weight(key)
        return found

    def put(self, key: Key, value: T) -> int:
        """How many characters were let go for it."""
        self._values[key] = value
        self._held += _weight(key)
        let_go = 0
        while self._held > self._most and len(self._values) > 1:
            oldest, _ = self._values.popitem(last=False)
            let_go += _weight(oldest)
            self._held -= _weight(oldest)
        return let_go


def _weight(key: Key) -> int:
    return max(len(key[0]), LEAST)


def without_tokens(node: Node) -> None:
    """Lets go what only reading needed, a third of what the nodes take: where they stand in the text they still know."""
    if node.loc is not None:
        place: Location = node.loc
        place.start_token = place.end_token = None  # type: ignore[assignment]
    for name in node.keys:
        part = getattr(node, name, None)
        if isinstance(part, Node):
            without_tokens(part)
        elif isinstance(part, tuple | list):
            for each in part:
                if isinstance(each, Node):
                    without_tokens(each)
