"""Queries of all builds, which the columnar copy answers as the database does, only sooner."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from graph.context import Context
from graph.jobs.build_analytics import BuildAnalytics, NoCopy
from storage.database.sessions import ReadSession

FIELDS = frozenset(("buildStats", "flakyBuilds"))
"""The fields of the schema that are answered so."""
MAX_TRIES = 3
"""How often builds may change between two statements of one answer, before the database answers."""

T = TypeVar("T")


async def fetch_from_copy(context: Context, fetch: Callable[[BuildAnalytics], Awaitable[T | None]]) -> T | None:
    """What `fetch` returns with a copy that has all builds; None if there is none. None from `fetch`: the builds changed meanwhile.

    A mutation reads from the database, which alone has its changes.
    """
    analytics = context.services.build_analytics
    if analytics is None or not isinstance(context.session, ReadSession):
        return None
    await analytics.record_use()
    try:
        for _ in range(MAX_TRIES):
            await analytics.catch_up()
            found = await fetch(analytics)
            if found is not None:
                return found
    except NoCopy:
        pass
    return None
