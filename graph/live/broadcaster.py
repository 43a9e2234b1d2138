"""Live: one reader of the log of changes for a whole process, and those who follow them.

The reader is woken by a bell in this process after a commit, by a notice of another process (PostgreSQL), and looks by itself every
second. What it reads goes into the queue of each follower that wants it. A queue is bounded: who does not keep up is cut off, and goes
on later from the last number that they got, as is who comes back after a break of any other kind.
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
from storage.database.engine import Database, is_unavailable
from storage.database.pg_notify import Notifications
from storage.secrets import digest_token
from storage.tables import ChangeKind, users

CHANNEL = "forgefront_changes"
MAX_QUEUED_CHANGES = 100
"""So many events wait for one follower. With one more it is cut off, or reads on in the log if it took something a moment ago: a push may
bring more at once than anybody could have taken."""
SLOW_CONSUMER_SECONDS = 30.0
"""Who has taken nothing for so long does not keep up. More than any event takes to be answered."""
POLL_SECONDS = 1.0
TOKEN_CHECK_SECONDS = 2.0
"""How often it is looked whether those who follow may still call at all."""
MAX_DIGESTS_PER_STATEMENT = 500
MAX_STREAMS = 10_000
MAX_STREAMS_PER_VIEWER = 200
RETRY_AFTER_SECONDS = 5
"""When a viewer who has too many streams may try again: by then streams that were cut a moment ago have been noticed."""
MAX_CONCURRENT_OPERATIONS = 4
"""So many events are answered at once, so that a crowd of followers leaves the readers of the database to others too."""

log = structlog.get_logger("live")


class StreamEnd(Enum):
    """Why a stream ends."""

    SHUTDOWN = auto()
    UNAVAILABLE = auto()
    DISCONNECTED = auto()
    SLOW_CONSUMER = auto()
    UNAUTHENTICATED = auto()


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Which changes of a kind somebody asked for; None: all of them. `after` is the last number that they have seen. None among the
    `refs` stands for the default branch of each project.

    What a subscription field gives: the stream is made of it by `graph/live/subscriptions.py`.
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
        raise TypeError("this is what a stream is made of")


class StreamSlot:
    """What one who is connected takes up; `end` is called, once, when they have to go."""

    __slots__ = ("digest", "end", "viewer_id")

    def __init__(self, digest: str, viewer_id: int, end: Callable[[StreamEnd], None]) -> None:
        self.digest = digest
        self.viewer_id = viewer_id
        self.end = end


class Subscriber:
    """The queue of one stream."""

    __slots__ = ("_ended", "_last_taken_at", "_queue", "_waiting", "after", "filter", "overflowed_at")

    def __init__(self, filter: ChangeFilter) -> None:
        self.filter = filter
        self.after = 0
        # Made when something waits, since an empty one takes more room than all else here.
        self._queue: deque[LoggedChange] | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._ended: StreamEnd | None = None
        self._last_taken_at = time.monotonic()
        self.overflowed_at: int | None = None
        """Number after which it is to read on in the log, since more came at once than its queue holds."""

    def offer(self, change: LoggedChange) -> None:
        if self._ended is not None or self.overflowed_at is not None or change.seq <= self.after or not self.filter.matches(change):
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
        self._notify()

    def end(self, reason: StreamEnd) -> None:
        """What waits is dropped: who was cut off goes on from what they got."""
        if self._ended is None:
            self._ended = reason
            self._queue = None
            self._notify()

    @property
    def ended(self) -> StreamEnd | None:
        return self._ended

    def position(self, watermark: int) -> int:
        """Number up to which all was taken, where the log was read up to `watermark`."""
        if self.overflowed_at is not None:
            return self.overflowed_at
        return self._queue[0].seq - 1 if self._queue else watermark

    async def next(self, seconds: float | None) -> LoggedChange | StreamEnd | None:
        """The next event, or why there is none any more; None when nothing came in time, and where it is to read on in the log. For one
        caller at a time."""
        self._last_taken_at = time.monotonic()
        if not self._queue and self._ended is None and self.overflowed_at is None:
            loop = asyncio.get_running_loop()
            self._waiting = loop.create_future()
            timer = loop.call_later(seconds, self._notify) if seconds is not None else None
            try:
                await self._waiting
            finally:
                self._waiting = None
                if timer is not None:
                    timer.cancel()
        if not self._queue:
            return self._ended
        change = self._queue.popleft()
        if not self._queue:
            self._queue = None
        return change

    def _notify(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class ChangeBroadcaster:
    """One of each process. `max_streams` streams and sockets may be open, and `max_streams_per_viewer` of one; `on_count_change` is told
    how many there are."""

    def __init__(self, *, max_streams: int = MAX_STREAMS, max_streams_per_viewer: int = MAX_STREAMS_PER_VIEWER) -> None:
        self.on_count_change: Callable[[int], None] = lambda _: None
        self.semaphore = asyncio.Semaphore(MAX_CONCURRENT_OPERATIONS)
        self.operations: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        """What those who follow want to be told, each once."""
        self.handshakes: dict[asyncio.Timeout, None] = {}
        """WebSockets that have not sent connection_init yet, the oldest first, as their time limits."""
        self.batch: Any = None
        """The round of those who are told now (`graph/live/fanout.py`)."""
        self._max_streams = max_streams
        self._max_streams_per_viewer = max_streams_per_viewer
        self._open_slots: set[StreamSlot] = set()
        self._streams_per_viewer: Counter[int] = Counter()
        self._subscribers: set[Subscriber] = set()
        self._log_reader = CommittedLogReader()
        self._read_lock = asyncio.Lock()
        self._read_count = 0
        self._wakeup = Wakeup()
        self._is_notified = False
        self._is_closed = False

    @property
    def watermark(self) -> int:
        """Up to this number every event that will ever be seen is in the database. To be asked after `catch_up`."""
        return self._log_reader.watermark or 0

    @property
    def open_streams(self) -> int:
        """How many streams and sockets are open."""
        return len(self._open_slots)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def notify(self) -> None:
        """Says that something has changed. To be called after the commit."""
        self._is_notified = True
        self._wakeup.notify()

    def acquire_slot(self, credential: str, viewer_id: int, end: Callable[[StreamEnd], None]) -> StreamSlot:
        """A place for one who has just been let in. Raises Unavailable when there are too many, and while the process stops, and
        LimitExceeded when this viewer has too many."""
        if self._is_closed:
            raise Unavailable("The service restarts.")
        if self._streams_per_viewer[viewer_id] >= self._max_streams_per_viewer:
            raise LimitExceeded(
                f"You have {self._max_streams_per_viewer:,} streams and WebSockets open, the limit for one user. Close one first, or follow"
                " several projects in one subscription.",
                retry_after=RETRY_AFTER_SECONDS,
            )
        if len(self._open_slots) >= self._max_streams:
            raise Unavailable("There are too many streams; try again in a moment.")
        slot = StreamSlot(digest_token(credential), viewer_id, end)
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
        """From now on the follower is offered what comes after this number, which is not below `watermark`."""
        subscriber.after = after
        self._subscribers.add(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)

    def close(self) -> None:
        """The process stops: every stream ends."""
        self._is_closed = True
        for slot in list(self._open_slots):
            slot.end(StreamEnd.SHUTDOWN)

    async def catch_up(self, database: Database) -> None:
        """Has `watermark` be what it is now. Those who ask at once share one look. Raises Unavailable."""
        count_before = self._read_count
        async with self._read_lock:
            # One that began after this was asked will do.
            if self._read_count == count_before:
                await self._read_log(database)

    async def run(self, database: Database) -> None:
        """Reads and tells for ever."""
        accounts = database.account_tables
        notices = Notifications(database, CHANNEL, self._wakeup.notify, {accounts.channel: accounts.invalidate})
        listener = asyncio.create_task(notices.run(), name="live notices")
        try:
            checked_at = time.monotonic()
            while True:
                await self._wakeup.wait(POLL_SECONDS)
                if self._is_notified:
                    self._is_notified = False
                    await notices.notify()
                try:
                    if self._subscribers:
                        await self.catch_up(database)
                    if time.monotonic() - checked_at >= TOKEN_CHECK_SECONDS:
                        checked_at = time.monotonic()
                        await self.end_invalid_streams(database)
                except Exception as error:
                    if not isinstance(error, Unavailable) and not is_unavailable(error):
                        raise
                    # Nothing is missed: the next look goes on from where the last one came to.
                    log.warning("cannot look", error=type(error).__name__)
                    await asyncio.sleep(POLL_SECONDS)
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)

    async def end_invalid_streams(self, database: Database) -> None:
        """Ends the streams of tokens that are gone and of users who are blocked: a statement for so many tokens."""
        digests = sorted({place.digest for place in self._open_slots})
        valid_digests: set[str] = set()
        for start in range(0, len(digests), MAX_DIGESTS_PER_STATEMENT):
            async with database.read_session() as session:
                valid_digests.update(
                    row[0] for row in await session.read(users.active_digests(digests[start : start + MAX_DIGESTS_PER_STATEMENT]))
                )
        checked_digests = set(digests)
        for slot in list(self._open_slots):
            if slot.digest in checked_digests and slot.digest not in valid_digests:
                slot.end(StreamEnd.UNAUTHENTICATED)

    async def _read_log(self, database: Database) -> None:
        self._read_count += 1
        if not self._subscribers or self._log_reader.watermark is None:
            newest = await self._log_reader.read_newest_seq(database)
            # Nobody is to be told, and whoever comes next reads from the table what came meanwhile; but who came during this look
            # counts on being told of all that follows the number of before it.
            if not self._subscribers:
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
