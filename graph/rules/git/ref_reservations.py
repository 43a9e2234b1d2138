"""Reservations of refs by pushes that have arrived completely, so that merges do not overtake each of them.

A merge that loses the compare-and-swap of its target is repeated by the service; a push that loses is refused, and its user has to fetch.
A push that names the current value of a ref therefore reserves it, and the merges of this process wait for it before their transaction, at
most MAX_RESERVED_SECONDS. Of several pushes only the first can succeed, so the others reserve nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from graph.context import Context, Services
from graph.rules.git import refs
from storage.git.protocol.push import RefCommand

MAX_RESERVED_SECONDS = 2.0
"""Time after which merges no longer wait for a push. Most take a tenth of a second."""


@dataclass(frozen=True, slots=True)
class _Reservation:
    deadline: float
    ended: asyncio.Event = field(default_factory=asyncio.Event)


_reservations: dict[tuple[int, int, str], _Reservation] = {}


@asynccontextmanager
async def reserve(services: Services, project_id: int, updates: Collection[RefCommand]) -> AsyncIterator[None]:
    """Reserves the refs that these updates move from their current values, until the end of the block."""
    moved = {update.ref: update.old for update in updates if update.old is not None}
    own: dict[tuple[int, int, str], _Reservation] = {}
    if moved:
        async with services.database.read_session() as session:
            current = await refs.current(Context(services, session, None, "reserve"), project_id, moved)
        deadline = asyncio.get_running_loop().time() + MAX_RESERVED_SECONDS
        keys = [(id(services), project_id, ref) for ref, old in moved.items() if current.get(ref) == old]
        own = {key: _Reservation(deadline) for key in keys if key not in _reservations}
        _reservations.update(own)
    try:
        yield
    finally:
        for key, reservation in own.items():
            del _reservations[key]
            reservation.ended.set()


async def wait_for_pushes(services: Services, project_id: int, ref: str) -> None:
    """Waits until no push of this process has reserved the ref, at most MAX_RESERVED_SECONDS."""
    if (reservation := _reservations.get((id(services), project_id, ref))) is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(reservation.deadline):
                await reservation.ended.wait()
