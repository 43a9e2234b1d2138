"""Broadcasts changes to subscribers: one reader of the change log per process.

The reader runs after commits in this process, after notifications of other processes (PostgreSQL), and every second. It adds each
change to the queues of the subscribers whose filter matches. Queues are bounded: a subscriber that is too slow is disconnected, and resumes
after the last number that it received, as after any other interruption.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any
from weakref import WeakValueDictionary

import structlog

from graph.errors import LimitExceeded, Unavailable
from graph.jobs.wakeup import Wakeup
from graph.live.change_log import CommittedLogReader, LoggedChange
from storage.database.clock import now
from storage.database.engine import Database
from storage.database.errors import describe_error, is_unavailable
from storage.database.pg_notify import Notifications
from storage.secrets import digest_token
from storage.tables import ChangeKind
from storage.tables.accounts import users

MAX_QUEUED_CHANGES = 100
"""Maximum length of a subscriber's queue. Beyond it the subscriber is disconnected, or continues from the log if it has taken an event
recently, because a push may cause more events at once than any subscriber could have taken."""
SLOW_CONSUMER_SECONDS = 30.0
"""A subscriber that has taken no event for this time is too slow. It is longer than the time limit of one event."""
POLL_SECONDS = 1.0
TOKEN_CHECK_SECONDS = 2.0
"""Seconds between checks whether the tokens of open streams are still valid."""
MAX_DIGESTS_PER_STATEMENT = 500
MAX_STREAMS = 10_000
MAX_STREAMS_PER_VIEWER = 200
RETRY_AFTER_SECONDS = 5
"""Retry-After for a viewer with too many streams: by then disconnected streams have been detected."""
MAX_CONCURRENT_OPERATIONS = 4
"""Maximum of events that are executed concurrently, so that many subscribers do not occupy all database readers."""

log = structlog.get_logger("live")


class StreamEnd(Enum):
    """Why a stream ends."""

    SHUTDOWN = auto()
    UNAVAILABLE = auto()
    DISCONNECTED = auto()
    SLOW_CONSUMER = auto()
    UNAUTHENTICATED = auto()
    COMPLETED = auto()
    FAILED = auto()
    HIDDEN = auto()
    FORBIDDEN = auto()


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """The result of a subscription field: which changes of a kind the stream has; None means all.

    `after` is the number of the last change that the client has received. None in `refs` is the default branch of each project. The
    stream is made by `graph/live/subscriptions.py`.
    """

    kind: ChangeKind
    projects: frozenset[int] | None
    refs: frozenset[str | None] | None
    after: int | None

    def matches(self, change: LoggedChange) -> bool:
        if change.kind is not self.kind or (self.projects is not None and change.project_id not in self.projects):
            return False
        if self.refs is None or change.ref in self.refs:
            return True
        return None in self.refs and change.ref == change.default_branch

    def __aiter__(self) -> Any:
        raise TypeError("a ChangeFilter is not iterated; graph/live/subscriptions.py makes a stream from it")


class StreamSlot:
    """A slot of an open stream or socket; `end` is called once when it has to end. A socket has no `filter`."""

    __slots__ = ("digest", "end", "filter", "viewer_id")

    def __init__(self, digest: str, viewer_id: int, end: Callable[[StreamEnd], None], filter: ChangeFilter | None) -> None:
        self.digest = digest
        self.filter = filter
        self.viewer_id = viewer_id
        self.end = end


class Subscriber:
    """The queue of one stream."""

    __slots__ = ("_end_reason", "_last_taken_at", "_queue", "_waiting", "after", "filter", "overflowed_at")

    def __init__(self, filter: ChangeFilter) -> None:
        self.filter = filter
        self.after = 0
        # Created on demand, because an empty deque is larger than everything else here.
        self._queue: deque[LoggedChange] | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._end_reason: StreamEnd | None = None
        self._last_taken_at = time.monotonic()
        self.overflowed_at: int | None = None
        """Number after which the stream continues from the log, because its queue has overflowed."""

    def offer(self, change: LoggedChange) -> None:
        """Queues a change that matches the filter. With a full queue the stream continues from the log later, or ends if it is too slow."""
        if self._end_reason is not None or self.overflowed_at is not None or change.seq <= self.after or not self.filter.matches(change):
            return
        if self._queue is None:
            self._queue = deque()
        elif len(self._queue) >= MAX_QUEUED_CHANGES:
            if time.monotonic() - self._last_taken_at > SLOW_CONSUMER_SECONDS:
                self.end(StreamEnd.SLOW_CONSUMER)
            else:
                self.overflowed_at = self._queue[0].seq - 1
                self._queue = None
            return
        self._queue.append(change)
        self.wake()

    def end(self, reason: StreamEnd) -> None:
        """Ends the stream. Queued changes are dropped, because the client resumes after the last one that it received."""
        if self._end_reason is None:
            self._end_reason = reason
            self._queue = None
            self.wake()

    @property
    def end_reason(self) -> StreamEnd | None:
        """Why the stream has ended; None while it has not."""
        return self._end_reason

    def position(self, watermark: int) -> int:
        """Returns the number up to which all changes were taken, if the log was read up to `watermark`."""
        if self.overflowed_at is not None:
            return self.overflowed_at
        return self._queue[0].seq - 1 if self._queue else watermark

    async def next(self, seconds: float | None) -> LoggedChange | StreamEnd | None:
        """Returns the next change, or the reason of the stream's end; None after the timeout, or if it must continue from the log.

        Only one caller at a time may wait.
        """
        self._last_taken_at = time.monotonic()
        if not self._queue and self._end_reason is None and self.overflowed_at is None:
            loop = asyncio.get_running_loop()
            self._waiting = loop.create_future()
            timer = loop.call_later(seconds, self.wake) if seconds is not None else None
            try:
                await self._waiting
            finally:
                self._waiting = None
                if timer is not None:
                    timer.cancel()
        if not self._queue:
            return self._end_reason
        change = self._queue.popleft()
        if not self._queue:
            self._queue = None
        return change

    def wake(self) -> None:
        """Ends a wait of `next`."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class ChangeBroadcaster:
    """Reads the change log and broadcasts changes; one per process.

    `max_streams` limits open streams and sockets, `max_streams_per_viewer` those of one user; `on_count_change` is called with the
    number of those that are open.

    `channel` is the PostgreSQL channel on which processes notify each other of changes.
    """

    channel = "forgefront_changes"

    def __init__(self, *, max_streams: int = MAX_STREAMS, max_streams_per_viewer: int = MAX_STREAMS_PER_VIEWER) -> None:
        self.on_count_change: Callable[[int], None] = lambda _: None
        self.semaphore = asyncio.Semaphore(MAX_CONCURRENT_OPERATIONS)
        self.operations: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        """The distinct subscribed operations, which streams share."""
        self.handshakes: dict[asyncio.Timeout, None] = {}
        """The timeouts of WebSockets that have not sent connection_init yet, the oldest first."""
        self.batch: Any = None
        """The current fan-out batch (`graph/live/fanout.py`)."""
        self._max_streams = max_streams
        self._max_streams_per_viewer = max_streams_per_viewer
        self._open_slots: set[StreamSlot] = set()
        self._streams_per_viewer: Counter[int] = Counter()
        self._subscribers: set[Subscriber] = set()
        self._log_reader = CommittedLogReader()
        self._read_lock = asyncio.Lock()
        self._begun_reads = self._last_complete_read = 0
        self._wakeup = Wakeup()
        self._is_notified = False
        self._is_closed = False

    @property
    def watermark(self) -> int:
        """The number up to which no further change can be committed. Valid after `catch_up`."""
        return self._log_reader.watermark or 0

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def notify(self) -> None:
        """Wakes the reader. Call it after the commit of a change."""
        self._is_notified = True
        self._wakeup.notify()

    @property
    def open_slots(self) -> list[StreamSlot]:
        """The slots of all open streams and sockets."""
        return list(self._open_slots)

    def acquire_slot(
        self, credential: str, viewer_id: int, end: Callable[[StreamEnd], None], filter: ChangeFilter | None = None
    ) -> StreamSlot:
        """Acquires a slot for an authenticated client; `filter` is that of a stream.

        Raises Unavailable if there are too many streams or the process is shutting down, LimitExceeded if the viewer has too many.
        """
        if self._is_closed:
            raise Unavailable("The service is restarting.")
        if self._streams_per_viewer[viewer_id] >= self._max_streams_per_viewer:
            raise LimitExceeded(
                f"You have {self._max_streams_per_viewer:,} streams and WebSockets open, the limit for one user. Close one first, or follow"
                " several projects in one subscription.",
                retry_after=RETRY_AFTER_SECONDS,
            )
        if len(self._open_slots) >= self._max_streams:
            raise Unavailable("Too many streams are open; try again in a moment.")
        slot = StreamSlot(digest_token(credential), viewer_id, end, filter)
        self._open_slots.add(slot)
        self._streams_per_viewer[viewer_id] += 1
        self.on_count_change(len(self._open_slots))
        return slot

    def release_slot(self, slot: StreamSlot) -> None:
        if slot in self._open_slots:
            self._open_slots.remove(slot)
            self._streams_per_viewer[slot.viewer_id] -= 1
            if not self._streams_per_viewer[slot.viewer_id]:
                del self._streams_per_viewer[slot.viewer_id]
        self.on_count_change(len(self._open_slots))

    def subscribe(self, subscriber: Subscriber, after: int) -> None:
        """Adds a subscriber, which is offered changes after this number; the number is not below `watermark`."""
        subscriber.after = after
        self._subscribers.add(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)

    def close(self) -> None:
        """Ends all streams at shutdown."""
        self._is_closed = True
        for slot in self.open_slots:
            slot.end(StreamEnd.SHUTDOWN)

    async def catch_up(self, database: Database) -> None:
        """Reads the log up to its current end. Concurrent callers share one read. Raises Unavailable."""
        begun_before = self._begun_reads
        async with self._read_lock:
            # A read that began after this call suffices, if it has not failed.
            if self._last_complete_read <= begun_before:
                self._begun_reads += 1
                await self._read_log(database)
                self._last_complete_read = self._begun_reads

    def wake(self, _payload: str = "") -> None:
        """Wakes the reader after a notification of another process."""
        self._wakeup.notify()

    async def run(self, database: Database, notifications: Notifications) -> None:
        """Reads the log and broadcasts changes until it is canceled."""
        checked_at = time.monotonic()
        while True:
            await self._wakeup.wait(POLL_SECONDS)
            if self._is_notified:
                self._is_notified = False
                await notifications.notify(self.channel)
            try:
                if self._subscribers:
                    await self.catch_up(database)
                if time.monotonic() - checked_at >= TOKEN_CHECK_SECONDS:
                    checked_at = time.monotonic()
                    await self.end_invalid_streams(database)
            except Exception as error:
                if not isinstance(error, Unavailable) and not is_unavailable(error):
                    raise
                # No change is lost: the next read continues where the last one ended.
                log.warning("cannot read change log", error=describe_error(error))
                await asyncio.sleep(POLL_SECONDS)

    async def end_invalid_streams(self, database: Database) -> None:
        """Ends the streams of deleted and expired tokens and of blocked users, by one statement per MAX_DIGESTS_PER_STATEMENT tokens."""
        digests = sorted({slot.digest for slot in self._open_slots})
        valid_digests: set[str] = set()
        for start in range(0, len(digests), MAX_DIGESTS_PER_STATEMENT):
            async with database.read_session() as session:
                valid_digests.update(
                    row[0] for row in await session.read(users.active_digests(digests[start : start + MAX_DIGESTS_PER_STATEMENT], now()))
                )
        checked_digests = set(digests)
        for slot in self.open_slots:
            if slot.digest in checked_digests and slot.digest not in valid_digests:
                slot.end(StreamEnd.UNAUTHENTICATED)

    async def _read_log(self, database: Database) -> None:
        if not self._subscribers or self._log_reader.watermark is None:
            newest = await self._log_reader.read_newest_seq(database)
            # Without subscribers changes are skipped: a later subscriber reads them from the table. But a subscriber that was added
            # during this read expects all changes after the previous watermark, if there is one.
            if not self._subscribers or self._log_reader.watermark is None:
                self._log_reader.start_at(newest)
                return
        changes, retry_seconds = await self._log_reader.read(database)
        for change in changes:
            for subscriber in self._subscribers:
                subscriber.offer(change)
        if retry_seconds is not None:
            if retry_seconds:
                asyncio.get_running_loop().call_later(retry_seconds, self._wakeup.notify)
            else:
                self._wakeup.notify()
