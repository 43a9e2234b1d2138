"""Renews the lease of work that may take longer than the lease lasts."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class LeaseLost(Exception):
    """Another process has taken over the work, or its row was deleted."""


async def renew_until_done(work: asyncio.Future[T], renew: Callable[[], Awaitable[None]], seconds: float) -> T:
    """Returns the result of `work`, and calls `renew` every `seconds` until then.

    Raises what either raises. If that is `renew`, or if the caller is canceled, the work continues; the caller ends it.
    """
    while not (await asyncio.wait([work], timeout=seconds))[0]:
        await renew()
    return work.result()


async def end(work: asyncio.Future[T]) -> None:
    """Cancels the work, waits until it has ended, and ignores its result. Call it in `finally`."""
    work.cancel()
    await wait_for_end(work)


async def wait_for_end(work: asyncio.Future[T]) -> None:
    """Waits until the work has ended, and ignores its result. For work of a thread, which goes on when it is canceled."""
    await asyncio.wait([work])
    if not work.cancelled():
        # Marks the exception as retrieved.
        work.exception()
