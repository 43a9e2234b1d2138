"""The compiled statements of plans: one cache for all, by the node that runs them and the variant of its statement."""

from collections.abc import Callable
from itertools import count
from typing import Any, Protocol, TypeVar
from weakref import finalize

from storage.caches import CacheBounds, LruCache

PLAN_STATEMENT_CACHE_BOUNDS = CacheBounds("plan statements", max_entries=1_000, max_bytes=4 * 2**20)
"""For all plans together: the variants of a page contain the values of its filter. What runs once after the start takes 2 MiB of it."""

NodeId = int
Variant = tuple[Any, ...]
_NODE_IDS = count()


def next_node_id() -> NodeId:
    """A number that no other node of the process has."""
    return next(_NODE_IDS)


class SizedStatement(Protocol):
    """A compiled statement of a node."""

    @property
    def size(self) -> int:
        """Estimated memory in bytes."""
        ...


S = TypeVar("S", bound=SizedStatement)


class PlanStatements:
    """The statements of one plan. They are dropped with it."""

    __slots__ = ("__weakref__", "_keys")

    def __init__(self) -> None:
        self._keys: set[Variant] = set()
        finalize(self, _drop_statements, self._keys).atexit = False

    def find(self, node_id: NodeId, variant: Variant, compile_statement: Callable[[], S]) -> S:
        """The statement of a node, compiled at its first use."""
        key = (node_id, *variant)
        found = _STATEMENTS.get(key)
        if found is not None:
            statement: S = found[0]
            return statement
        statement = compile_statement()
        self._keys.add(key)
        _STATEMENTS.put(key, (statement, self._keys))
        return statement


def _statement_size(key: Variant, entry: tuple[SizedStatement, set[Variant]]) -> int:
    # The values of a filter are part of the key, and are bound to the statement.
    return entry[0].size + 2 * _count_characters(key)


def _count_characters(part: Any) -> int:
    if isinstance(part, tuple):
        return sum(map(_count_characters, part))
    return len(part) if isinstance(part, str) else 0


_STATEMENTS: LruCache[Variant, tuple[Any, set[Variant]]] = LruCache(
    PLAN_STATEMENT_CACHE_BOUNDS, _statement_size, lambda key, entry: entry[1].discard(key)
)
"""Each with the keys of its plan."""


def _drop_statements(keys: set[Variant]) -> None:
    for key in keys:
        _STATEMENTS.pop(key)
