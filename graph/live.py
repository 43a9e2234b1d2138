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
from graph.settled import Change, Settled
from graph.wake import Wake
from storage.database import Database, is_unavailable
from storage.notices import Notices
from storage.secrets import digest
from storage.tables import ChangeKind, users

CHANNEL = "forgefront_changes"
QUEUE = 100
"""So many events wait for one follower. With one more it is cut off, or reads on in the log if it took something a moment ago: a push may
bring more at once than anybody could have taken."""
SLOW_SECONDS = 30.0
"""Who has taken nothing for so long does not keep up. More than any event takes to be answered."""
POLL_SECONDS = 1.0
CHECK_SECONDS = 2.0
"""How often it is looked whether those who follow may still call at all."""
DIGESTS = 500
STREAMS = 10_000
STREAMS_PER_VIEWER = 200
RETRY_SECONDS = 5
"""When a viewer who has too many streams may try again: by then streams that were cut a moment ago have been noticed."""
RUNNING = 4
"""So many events are answered at once, so that a crowd of followers leaves the readers of the database to others too."""

log = structlog.get_logger("live")


class End(Enum):
    """Why a stream ends."""

    STOPPING = auto()
    UNAVAILABLE = auto()
    LEFT = auto()
    SLOW = auto()
    NO_VIEWER = auto()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which changes of a kind somebody asked for; None: all of them. `after` is the last number that they have seen. None among the
    `refs` stands for the default branch of each project.

    What a subscription field gives: the stream is made of it by `graph/subscribing.py`.
    """

    kind: ChangeKind
    projects: frozenset[int] | None
    refs: frozenset[str | None] | None
    after: int | None

    def fits(self, change: Change) -> bool:
        if change.kind is not self.kind or (self.projects is not None and change.project_id not in self.projects):
            return False
        if self.refs is None or change.ref in self.refs:
            return True
        return None in self.refs and change.ref == change.default_branch

    def __aiter__(self) -> Any:
        raise TypeError("this is what a stream is made of")


class Place:
    """What one who is connected takes up; `end` is called, once, when they have to go."""

    __slots__ = ("digest", "end", "viewer_id")

    def __init__(self, digest: str, viewer_id: int, end: Callable[[End], None]) -> None:
        self.digest = digest
        self.viewer_id = viewer_id
        self.end = end


class Follower:
    """The queue of one stream."""

    __slots__ = ("_ended", "_queue", "_taken_at", "_waiting", "after", "overflowed_at", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.after = 0
        # Made when something waits, since an empty one takes more room than all else here.
        self._queue: deque[Change] | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._ended: End | None = None
        self._taken_at = time.monotonic()
        self.overflowed_at: int | None = None
        """Number after which it is to read on in the log, since more came at once than its queue holds."""

    def offer(self, change: Change) -> None:
        if self._ended is not None or self.overflowed_at is not None or change.seq <= self.after or not self.wanted.fits(change):
            return
        if self._queue is None:
            self._queue = deque()
        elif len(self._queue) >= QUEUE:
            if time.monotonic() - self._taken_at > SLOW_SECONDS:
                self.end(End.SLOW)
            else:
                self.overflowed_at = self._queue[0].seq - 1
                self._queue = None
            return
        self._queue.append(change)
        self._wake()

    def end(self, why: End) -> None:
        """What waits is dropped: who was cut off goes on from what they got."""
        if self._ended is None:
            self._ended = why
            self._queue = None
            self._wake()

    @property
    def ended(self) -> End | None:
        return self._ended

    def position(self, upto: int) -> int:
        """Number up to which all was taken, where the log was read up to `upto`."""
        if self.overflowed_at is not None:
            return self.overflowed_at
        return self._queue[0].seq - 1 if self._queue else upto

    async def next(self, seconds: float | None) -> Change | End | None:
        """The next event, or why there is none any more; None when nothing came in time, and where it is to read on in the log. For one
        caller at a time."""
        self._taken_at = time.monotonic()
        if not self._queue and self._ended is None and self.overflowed_at is None:
            loop = asyncio.get_running_loop()
            self._waiting = loop.create_future()
            late = loop.call_later(seconds, self._wake) if seconds is not None else None
            try:
                await self._waiting
            finally:
                self._waiting = None
                if late is not None:
                    late.cancel()
        if not self._queue:
            return self._ended
        change = self._queue.popleft()
        if not self._queue:
            self._queue = None
        return change

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class Live:
    """One of each process. `most` streams and sockets may be open, and `most_per_viewer` of one; `counted` is told how many there are."""

    def __init__(self, *, most: int = STREAMS, most_per_viewer: int = STREAMS_PER_VIEWER) -> None:
        self.counted: Callable[[int], None] = lambda _: None
        self.running = asyncio.Semaphore(RUNNING)
        self.operations: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        """What those who follow want to be told, each once."""
        self.handshakes: dict[asyncio.Timeout, None] = {}
        """WebSockets that have not sent connection_init yet, the oldest first, as their time limits."""
        self.round: Any = None
        """The round of those who are told now (`graph/telling.py`)."""
        self._most = most
        self._most_per_viewer = most_per_viewer
        self._places: set[Place] = set()
        self._per_viewer: Counter[int] = Counter()
        self._followers: set[Follower] = set()
        self._settled = Settled()
        self._turn = asyncio.Lock()
        self._looks = 0
        self._bell = Wake()
        self._rung = False
        self._closed = False

    @property
    def upto(self) -> int:
        """Up to this number every event that will ever be seen is in the database. To be asked after `settle`."""
        return self._settled.upto or 0

    @property
    def open(self) -> int:
        """How many streams and sockets are open."""
        return len(self._places)

    @property
    def closed(self) -> bool:
        return self._closed

    def ring(self) -> None:
        """Says that something has changed. To be called after the commit."""
        self._rung = True
        self._bell.wake()

    def take(self, credential: str, viewer_id: int, end: Callable[[End], None]) -> Place:
        """A place for one who has just been let in. Raises Unavailable when there are too many, and while the process stops, and
        LimitExceeded when this viewer has too many."""
        if self._closed:
            raise Unavailable("The service restarts.")
        if self._per_viewer[viewer_id] >= self._most_per_viewer:
            raise LimitExceeded(
                f"You have {self._most_per_viewer:,} streams and WebSockets open, the limit for one user. Close one first, or follow"
                " several projects in one subscription.",
                retry_after=RETRY_SECONDS,
            )
        if len(self._places) >= self._most:
            raise Unavailable("There are too many streams; try again in a moment.")
        place = Place(digest(credential), viewer_id, end)
        self._places.add(place)
        self._per_viewer[viewer_id] += 1
        self.counted(len(self._places))
        return place

    def leave(self, place: Place) -> None:
        if place in self._places:
            self._places.remove(place)
            self._per_viewer[place.viewer_id] -= 1
            if not self._per_viewer[place.viewer_id]:
                del self._per_viewer[place.viewer_id]
        self.counted(len(self._places))

    def follow(self, follower: Follower, after: int) -> None:
        """From now on the follower is offered what comes after this number, which is not below `upto`."""
        follower.after = after
        self._followers.add(follower)

    def unfollow(self, follower: Follower) -> None:
        self._followers.discard(follower)

    def close(self) -> None:
        """The process stops: every stream ends."""
        self._closed = True
        for place in list(self._places):
            place.end(End.STOPPING)

    async def settle(self, database: Database) -> None:
        """Has `upto` be what it is now. Those who ask at once share one look. Raises Unavailable."""
        before = self._looks
        async with self._turn:
            # One that began after this was asked will do.
            if self._looks == before:
                await self._look(database)

    async def run(self, database: Database) -> None:
        """Reads and tells for ever."""
        accounts = database.accounts
        notices = Notices(database, CHANNEL, self._bell.wake, {accounts.channel: accounts.forget})
        listening = asyncio.create_task(notices.keep_listening(), name="live notices")
        try:
            checked = time.monotonic()
            while True:
                await self._bell.woken(POLL_SECONDS)
                if self._rung:
                    self._rung = False
                    await notices.tell()
                try:
                    if self._followers:
                        await self.settle(database)
                    if time.monotonic() - checked >= CHECK_SECONDS:
                        checked = time.monotonic()
                        await self.check(database)
                except Exception as error:
                    if not isinstance(error, Unavailable) and not is_unavailable(error):
                        raise
                    # Nothing is missed: the next look goes on from where the last one came to.
                    log.warning("cannot look", error=type(error).__name__)
                    await asyncio.sleep(POLL_SECONDS)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def check(self, database: Database) -> None:
        """Ends the streams of tokens that are gone and of users who are blocked: a statement for so many tokens."""
        digests = sorted({place.digest for place in self._places})
        good: set[str] = set()
        for start in range(0, len(digests), DIGESTS):
            async with database.reading() as session:
                good.update(row[0] for row in await session.read(users.good_digests(digests[start : start + DIGESTS])))
        asked = set(digests)
        for place in list(self._places):
            if place.digest in asked and place.digest not in good:
                place.end(End.NO_VIEWER)

    async def _look(self, database: Database) -> None:
        self._looks += 1
        if not self._followers or self._settled.upto is None:
            newest = await self._settled.newest(database)
            # Nobody is to be told, and whoever comes next reads from the table what came meanwhile; but who came during this look
            # counts on being told of all that follows the number of before it.
            if not self._followers:
                self._settled.begin(newest)
                return
        changes, again = await self._settled.read(database)
        for change in changes:
            for follower in self._followers:
                follower.offer(change)
        if again is not None:
            if again:
                asyncio.get_running_loop().call_later(again, self._bell.wake)
            else:
                self._bell.wake()
