"""Open subscriptions: the selection is executed for each matching change, first for those of the log that the client missed.

Each event is executed like a query at that time (`graph/live/fanout.py`): the stream ends if the credential is no longer valid, and events
that the viewer is not allowed to see are skipped.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any

from graph.documents.documents import PreparedOperation
from graph.errors import BadRequest, Forbidden, LimitExceeded, NotFound, OperationError, Unauthenticated, Unavailable
from graph.live.broadcaster import ChangeBroadcaster, ChangeFilter, StreamEnd, StreamSlot, Subscriber
from graph.live.change_log import LoggedChange, read_changes, read_last_seq, read_pruned_seq
from graph.live.fanout import BATCH_SECONDS, FanoutBatch
from graph.live.subscribed_operations import SubscribedOperation
from graph.live.trace_feeds import POLL_SECONDS, TracePiece, join_position, split_position
from graph.operations.execution import Graph
from graph.operations.rate_limits import RateUsage
from graph.operations.results import OperationResult, make_error_entry, to_operation_error
from graph.operations.transaction import session_for

PAGE_SIZE = 100
"""Number of past changes that are read at once."""
SILENT_ENDS = (StreamEnd.SHUTDOWN, StreamEnd.UNAVAILABLE, StreamEnd.DISCONNECTED, StreamEnd.COMPLETED)
INTERRUPTING_ENDS = (StreamEnd.SHUTDOWN, StreamEnd.UNAVAILABLE)
"""After these the client resumes without losing events."""
PRUNED_MESSAGE = (
    "Changes after `afterSeq: {}` were deleted, because they are old. Subscribe again without `afterSeq`, then read the current state."
)
UNKNOWN_SEQ_MESSAGE = (
    "`afterSeq: {}` is larger than every `seq` so far: the service was restored to an earlier moment. Subscribe again without `afterSeq`,"
    " then read the current state."
)
SLOW_CONSUMER_MESSAGE = "The client reads events too slowly, so the stream ends. Subscribe again with the last `seq` as `afterSeq`."


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """The result for one change; `seq` is its sequence number, None for an error that ends the stream.

    `json` is the serialized result if it is shared by several streams.
    """

    seq: int | None
    result: OperationResult
    json: bytes | None = None


class SubscriptionStream:
    """An open subscription, which must be closed. `next` returns its events. `rate_usage` is the charge for opening it."""

    __slots__ = (
        "_backlog",
        "_ended",
        "_graph",
        "_is_behind",
        "_operation",
        "_position",
        "_request_id",
        "_slot",
        "_subscriber",
        "rate_usage",
    )
    subject = "Project"
    """What the error names when the viewer can no longer see it."""

    def __init__(
        self,
        graph: Graph,
        prepared: PreparedOperation,
        variables: dict[str, Any],
        credential: str,
        viewer_id: int,
        request_id: str,
        change_filter: ChangeFilter,
    ) -> None:
        self._graph = graph
        broadcaster = graph.services.broadcaster
        operation = SubscribedOperation.of(prepared, variables)
        # Streams with equal operations share one object.
        self._operation: SubscribedOperation = broadcaster.operations.setdefault(operation.key, operation)
        self._request_id = request_id
        self._subscriber = Subscriber(change_filter)
        self._backlog: deque[LoggedChange] | None = None
        self._is_behind = True
        self._position = 0
        self._ended = False
        self.rate_usage: RateUsage | None = None
        self._slot: StreamSlot = broadcaster.acquire_slot(credential, viewer_id, self._subscriber.end, change_filter)

    async def start(self) -> None:
        """Determines the initial position, and subscribes if there is no backlog. Raises Unavailable."""
        broadcaster = self._graph.services.broadcaster
        await broadcaster.catch_up(self._graph.services.database)
        after_seq = self._subscriber.filter.after
        self._position = broadcaster.watermark if after_seq is None else after_seq
        # A larger position is verified first, because the changes up to it may be of another database (`_read_backlog`).
        if self._position == broadcaster.watermark:
            self._subscribe()

    @property
    def is_ended(self) -> bool:
        """Whether the stream has ended."""
        return self._ended

    @property
    def is_interrupted(self) -> bool:
        """Whether it ended for a temporary reason: the client should resume, and must not treat this as the end of the subscription."""
        return self._subscriber.end_reason in INTERRUPTING_ENDS

    @property
    def position(self) -> int:
        """The number up to which all matching changes were sent. Valid after `start`, and after `next` has returned None."""
        if not self._is_behind:
            # The watermark may be lower than the number after which the client resumed.
            return max(self._subscriber.position(self._graph.services.broadcaster.watermark), self._position)
        return self._backlog[0].seq - 1 if self._backlog else self._position

    async def next(self, seconds: float | None = None) -> StreamEvent | None:
        """Returns the next event; None after `seconds` without one, and at the end. Only one caller at a time may wait.

        Changes that the viewer may not see do not prolong the wait, during which nothing is sent to the client.
        """
        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        while not self._ended:
            try:
                change_or_end = await self._next(deadline)
                if change_or_end is None:
                    return None
                if isinstance(change_or_end, StreamEnd):
                    return self._end_event(change_or_end)
                answer = await self._current_batch(change_or_end).answer(
                    change_or_end, self._operation, self._slot.digest, self._request_id
                )
                if answer is None:
                    self._check_hidden_event()
            except Exception as error:
                # The event was not sent, so the client receives it when it resumes.
                operation_error = to_operation_error(error, self._request_id)
                if isinstance(operation_error, Unavailable):
                    self._subscriber.end(StreamEnd.UNAVAILABLE)
                    continue
                self.close()
                return StreamEvent(None, OperationResult(None, [make_error_entry(operation_error)]))
            if self._subscriber.end_reason not in (None, StreamEnd.SHUTDOWN):
                # The stream ended meanwhile, so the event is not sent.
                continue
            if answer is not None:
                return StreamEvent(change_or_end.seq, answer.result, answer.json)
            if _remaining_seconds(deadline) == 0:
                return None
        return None

    def disconnect(self) -> None:
        """Ends the stream after the client has disconnected; wakes a pending `next`."""
        self._subscriber.end(StreamEnd.DISCONNECTED)

    def close(self) -> None:
        self._ended = True
        broadcaster = self._graph.services.broadcaster
        broadcaster.unsubscribe(self._subscriber)
        broadcaster.release_slot(self._slot)

    def _check_hidden_event(self) -> None:
        """Called for an event that the viewer may not see, which is not sent."""

    def _end_event(self, reason: StreamEnd) -> StreamEvent | None:
        self.close()
        if reason in SILENT_ENDS:
            return None
        return StreamEvent(None, OperationResult(None, [make_error_entry(self._end_error(reason))]))

    def _end_error(self, reason: StreamEnd) -> OperationError:
        match reason:
            case StreamEnd.SLOW_CONSUMER:
                return LimitExceeded(SLOW_CONSUMER_MESSAGE)
            case StreamEnd.HIDDEN:
                return NotFound(self.subject)
            case StreamEnd.FORBIDDEN:
                return Forbidden()
            case _:
                return Unauthenticated()

    async def _next(self, deadline: float | None) -> LoggedChange | TracePiece | StreamEnd | None:
        while True:
            while self._is_behind:
                if self._subscriber.end_reason is not None:
                    return self._subscriber.end_reason
                while self._backlog:
                    change = self._backlog.popleft()
                    if self._subscriber.filter.matches(change):
                        return change
                if self._backlog is not None and _remaining_seconds(deadline) == 0:
                    # The next call reads the next page, even if its time is short.
                    self._backlog = None
                    return None
                await self._read_backlog()
            found = await self._subscriber.next(_remaining_seconds(deadline))
            if self._subscriber.overflowed_at is None:
                return found
            self._fall_behind(self._subscriber.overflowed_at)

    async def _read_backlog(self) -> None:
        """Reads the next page of past changes from the table; subscribes when there are no more."""
        services = self._graph.services
        until = services.broadcaster.watermark
        async with session_for(services.database, writing=False) as session:
            change_filter = self._subscriber.filter
            changes = await read_changes(
                session, self._position, PAGE_SIZE, until=until, kind=change_filter.kind, project_ids=change_filter.projects
            )
            if await read_pruned_seq(session) > self._position:
                raise BadRequest(PRUNED_MESSAGE.format(self._position))
            if self._position > until and await read_last_seq(services.database, session) < self._position:
                raise BadRequest(UNKNOWN_SEQ_MESSAGE.format(self._position))
        self._backlog = deque(changes)
        self._position = changes[-1].seq if len(changes) == PAGE_SIZE else max(until, self._position)
        # Nothing is awaited between this check and the subscription, so no change is missed.
        if not changes and self._position >= services.broadcaster.watermark:
            self._subscribe()

    def _fall_behind(self, position: int) -> None:
        """Unsubscribes after a queue overflow, to continue from the table after this number."""
        self._graph.services.broadcaster.unsubscribe(self._subscriber)
        self._subscriber.overflowed_at = None
        self._backlog, self._is_behind, self._position = None, True, position

    def _subscribe(self) -> None:
        self._backlog, self._is_behind = None, False
        self._graph.services.broadcaster.subscribe(self._subscriber, self._position)

    def _current_batch(self, change: LoggedChange | TracePiece) -> FanoutBatch:
        broadcaster = self._graph.services.broadcaster
        batch: FanoutBatch | None = broadcaster.batch
        if batch is None or not batch.covers(change):
            batch = broadcaster.batch = FanoutBatch(self._graph.services)
            asyncio.get_running_loop().call_later(BATCH_SECONDS, _clear_batch, broadcaster, batch)
        return batch


class TraceStream(SubscriptionStream):
    """An open subscription to the trace of a build. Its position is the generation of the trace, and the offset up to which it was sent."""

    __slots__ = ("_build_id", "_feed", "_generation", "_offset")
    subject = "Build"

    async def start(self) -> None:
        """Determines the initial position. Raises Unavailable."""
        trace_filter: Any = self._subscriber.filter
        self._build_id: int = trace_filter.build_id
        self._feed = self._graph.services.trace_feeds.follow(self._build_id, self._subscriber)
        state = await self._feed.read_state(self._graph.services.database)
        self._generation, self._offset = (state.generation, state.end) if state is not None else (0, 0)
        if trace_filter.after is not None:
            generation, self._offset = split_position(trace_filter.after)
            # An offset alone is one of the trace as it is now.
            self._generation = self._generation if generation is None else generation

    @property
    def position(self) -> int:
        return join_position(self._generation, self._offset)

    def close(self) -> None:
        super().close()
        if hasattr(self, "_build_id"):
            self._graph.services.trace_feeds.unfollow(self._build_id, self._subscriber)

    def _check_hidden_event(self) -> None:
        raise NotFound(self.subject)

    def _end_error(self, reason: StreamEnd) -> OperationError:
        # As for a piece that the viewer may not see.
        return super()._end_error(StreamEnd.HIDDEN if reason is StreamEnd.FORBIDDEN else reason)

    async def _next(self, deadline: float | None) -> TracePiece | StreamEnd | None:
        services = self._graph.services
        while True:
            if self._subscriber.end_reason is not None:
                return self._subscriber.end_reason
            state = await self._feed.read_state(services.database)
            if state is None:
                return StreamEnd.COMPLETED
            if state.generation != self._generation or state.size < self._offset:
                # The build started again, or its output was replaced.
                self._generation, self._offset = state.generation, 0
            if state.end > self._offset and state.erased_at is None:
                piece = await self._feed.read_piece(services.database, services.objects, state, self._offset)
                if piece is not None:
                    self._offset = piece.end
                    return piece
            if state.is_complete:
                return StreamEnd.COMPLETED
            remaining = _remaining_seconds(deadline)
            if remaining == 0:
                return None
            # Nothing is awaited between this check and the wait, so no notification is missed.
            if self._feed.is_current(state):
                await self._subscriber.next(POLL_SECONDS if remaining is None else min(POLL_SECONDS, remaining))


def _remaining_seconds(deadline: float | None) -> float | None:
    """Returns the seconds until a time of the event loop, 0 after it; None without one."""
    return None if deadline is None else max(deadline - asyncio.get_running_loop().time(), 0.0)


def _clear_batch(broadcaster: ChangeBroadcaster, batch: FanoutBatch) -> None:
    if broadcaster.batch is batch:
        broadcaster.batch = None
