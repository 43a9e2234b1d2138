"""Walks through the pages of a connection."""

from collections.abc import Awaitable, Callable
from typing import Any


async def check_pages_both_ways(page: Callable[..., Awaitable[Any]], key: str, whole: list[Any]) -> None:
    """Calls `page(first=…, after=…)` and `page(last=…, before=…)` through a list whose nodes have these values of `key`."""
    for size in (1, 2):
        seen: list[Any] = []
        cursor, more = None, True
        while more:
            found = await page(first=size, after=cursor)
            seen += [node[key] for node in found["nodes"]]
            assert found["pageInfo"]["hasPreviousPage"] is (cursor is not None)
            cursor, more = found["pageInfo"]["endCursor"], found["pageInfo"]["hasNextPage"]
        assert seen == whole
        seen, cursor, more = [], None, True
        while more:
            found = await page(last=size, before=cursor)
            seen = [node[key] for node in found["nodes"]] + seen
            assert found["pageInfo"]["hasNextPage"] is (cursor is not None)
            cursor, more = found["pageInfo"]["startCursor"], found["pageInfo"]["hasPreviousPage"]
        assert seen == whole
