"""Ends streams of projects that were deleted, or in which the viewer may see nothing any more.

Events are checked when they are sent, so such a stream would stay open without one, and its client would wait in vain. A stream of all
projects has nothing that it could lose.
"""

from collections.abc import Iterator, Sequence

from graph.context import Services
from graph.errors import Forbidden
from graph.live.broadcaster import StreamEnd, StreamSlot
from graph.live.stream_viewers import StreamViewers
from graph.rules.events import subscription_filters
from storage import tables

CHECK_SECONDS = 10.0
"""Seconds between two checks of all streams."""
PROJECTS_PER_CHECK = 1_000
"""Streams are checked together that follow about as many projects; each group takes three statements."""


async def end_hidden_streams(services: Services) -> None:
    """Ends the streams whose viewer could not open them again."""
    for slots in _split([slot for slot in services.broadcaster.open_slots if _projects_of(slot)]):
        await _check(services, slots)


def _split(slots: Sequence[StreamSlot]) -> Iterator[Sequence[StreamSlot]]:
    """Groups of streams, those of the same users together."""
    group: list[StreamSlot] = []
    count = 0
    for slot in sorted(slots, key=lambda slot: slot.viewer_id):
        group.append(slot)
        count += len(_projects_of(slot))
        if count >= PROJECTS_PER_CHECK:
            yield group
            group, count = [], 0
    if group:
        yield group


async def _check(services: Services, slots: Sequence[StreamSlot]) -> None:
    viewers = StreamViewers(services)
    await viewers.base_context.rows_by_id(tables.Project).get_many({key for slot in slots for key in _projects_of(slot)})
    contexts = await viewers.contexts.get_many({slot.digest for slot in slots})
    pairs = {(context.viewer.id, key) for slot in slots if (context := contexts[slot.digest]) is not None for key in _projects_of(slot)}
    await viewers.access_levels.get_many(pairs)
    for slot in slots:
        context = contexts[slot.digest]
        # The broadcaster ends the streams of invalid tokens.
        if context is None or slot.filter is None:
            continue
        denial = await subscription_filters.find_denial(context, slot.filter)
        if denial is not None:
            slot.end(StreamEnd.FORBIDDEN if isinstance(denial, Forbidden) else StreamEnd.HIDDEN)


def _projects_of(slot: StreamSlot) -> frozenset[int]:
    """The projects that a stream names; none for a socket, and for a stream of all projects."""
    return (slot.filter is not None and slot.filter.projects) or frozenset()
