"""What the service does of its own accord between operations: each chore looks for what is left to do, and does it.

A chore is woken by `services.upkeep.wake()` after a commit that leaves it something, and looks by itself every PAUSE seconds, for
what another process left or a kill cut short. Several processes may do the same chore at once, so each change is made under a lock
of its row, after a look whether it is still to be made.
"""

from collections.abc import Awaitable, Callable

import structlog

from graph.context import Services
from graph.rules import automatic_merging, looking, merging, reconciling, refreshing, runners, traces
from storage.database import is_unavailable

Chore = Callable[[Services], Awaitable[None]]

CHORES: tuple[Chore, ...] = (
    looking.look,
    merging.repair,
    refreshing.pending,
    automatic_merging.automatic,
    reconciling.reconcile,
    traces.join,
    runners.look_after,
)
PAUSE = 20.0
"""Seconds between two looks that nothing woke."""

log = structlog.get_logger("upkeep")


async def run(services: Services) -> None:
    """Does the chores now, and whenever woken, for ever."""
    while True:
        await once(services)
        await services.upkeep.woken(PAUSE)


async def once(services: Services) -> None:
    """Does each chore; one that fails keeps none of the others from theirs. Raises when the database is away."""
    for chore in CHORES:
        try:
            await chore(services)
        except Exception as error:
            if is_unavailable(error):
                raise
            log.error("a chore failed", chore=chore.__name__, exc_info=error)
