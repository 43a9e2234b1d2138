"""Trace feeds: what the readers of a build's trace in one process share.

An append in this process wakes the readers after its commit, and by a notification those in other processes (PostgreSQL). Notifications may
be lost, so readers also poll. The state of a trace is read once for all readers, and so is a piece that several of them read.
"""

import asyncio
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from graph.errors import Unavailable
from graph.jobs.wakeup import Wakeup
from graph.live.broadcaster import ChangeFilter, Subscriber
from storage.database.engine import Database
from storage.database.pg_notify import Notifications
from storage.objects.object_store import ObjectNotFound, ObjectStore
from storage.tables import ChangeKind, CheckStatus
from storage.tables.builds import artifacts
from storage.tables.builds.commit_statuses import FINISHED

POLL_SECONDS = 2.0
"""Seconds after which the state of a trace is read without a notification."""
PIECE_BYTES = 2**17
"""Maximum bytes of a piece."""
PARTS_PER_PIECE = 64
MAX_SHARED_PIECES = 4
IDS_PER_NOTIFICATION = 500
OFFSETS = 2**40
"""More than the maximum size of a trace."""
MAX_POSITION_DIGITS = 18


@dataclass(frozen=True, slots=True)
class TraceFilter(ChangeFilter):
    """The result of the subscription field `buildTrace`; `after` is the position, or the offset, after which the stream begins."""

    build_id: int


@dataclass(frozen=True, slots=True)
class TraceState:
    """A trace when it was read: `end` is the offset up to which it can be read; the bytes up to `size` are still being masked. Another
    `generation` is another trace."""

    project_id: int
    status: CheckStatus
    erased_at: datetime | None
    generation: int
    size: int
    end: int

    @property
    def is_complete(self) -> bool:
        return self.status in FINISHED or self.erased_at is not None


@dataclass(frozen=True, slots=True)
class TracePiece:
    """The bytes of a trace from `start` to `end`, as text. It is sent to subscribers like a change of the build."""

    project_id: int
    subject_id: int
    generation: int
    start: int
    end: int
    text: str
    kind: ChangeKind = ChangeKind.BUILD
    read_at: float = 0.0
    """Rights that were read up to a second before are used, as for every batch."""

    @property
    def seq(self) -> int:
        return join_position(self.generation, self.end)

    @property
    def key(self) -> object:
        return self.subject_id, self.generation, self.start, self.end


class TraceFeed:
    """The readers of one trace."""

    def __init__(self, build_id: int) -> None:
        self.subscribers: set[Subscriber] = set()
        self._build_id = build_id
        self._lock = asyncio.Lock()
        self._count = 0
        self._state: TraceState | None = None
        self._state_count = -1
        self._read_at = 0.0
        self._pieces: OrderedDict[tuple[TraceState, int], TracePiece] = OrderedDict()

    def notify(self) -> None:
        self._count += 1
        for subscriber in self.subscribers:
            subscriber.wake()

    def is_current(self, state: TraceState | None) -> bool:
        """Whether no notification has come since the state was read."""
        return state is self._state and self._state_count == self._count

    async def read_state(self, database: Database) -> TraceState | None:
        """The state of the trace, read after the last notification; None if the build was deleted."""
        async with self._lock:
            if self._state_count != self._count or time.monotonic() - self._read_at >= POLL_SECONDS:
                count, began = self._count, time.monotonic()
                async with database.read_session() as session:
                    rows = await session.read(artifacts.trace_state(self._build_id))
                self._state, self._state_count, self._read_at = TraceState(*rows[0]) if rows else None, count, began
            return self._state

    async def read_piece(self, database: Database, objects: ObjectStore, state: TraceState, start: int) -> TracePiece | None:
        """The next piece; None if there is none now, or only a part of a character. Raises Unavailable."""
        async with self._lock:
            piece = self._pieces.get((state, start))
            if piece is None:
                data = await self._read(database, objects, state.generation, start, min(state.end, start + PIECE_BYTES))
                if not (state.is_complete and start + len(data) >= state.end):
                    data = cut_incomplete_character(data)
                if not data:
                    return None
                text = data.decode(errors="replace").replace("\0", "\ufffd")
                piece = TracePiece(state.project_id, self._build_id, state.generation, start, start + len(data), text)
                self._pieces[state, start] = piece
                if len(self._pieces) > MAX_SHARED_PIECES:
                    self._pieces.popitem(last=False)
            return piece

    async def _read(self, database: Database, objects: ObjectStore, generation: int, start: int, end: int) -> bytes:
        for is_last_try in (False, True):
            async with database.read_session() as session:
                statement = artifacts.parts_between(self._build_id, generation, start, end, PARTS_PER_PIECE)
                parts: list[Any] = [part for (part,) in await session.read(statement)]
            pieces, position = [], start
            try:
                for part in parts:
                    if not part.start <= position < part.start + part.size:
                        break
                    piece = await objects.read(part.key, position - part.start, min(end, part.start + part.size) - position)
                    pieces.append(piece)
                    position += len(piece)
                return b"".join(pieces)
            except ObjectNotFound as error:
                # The parts were joined in the meantime: the bytes are the same, in another object.
                if is_last_try:
                    raise Unavailable("The trace cannot be read: part of it is missing in the object store.") from error
        raise AssertionError


class TraceFeeds:
    """The feeds of the traces that are read in this process; one per process.

    `channel` is the PostgreSQL channel on which processes notify each other of appends.
    """

    channel = "forgefront_traces"

    def __init__(self) -> None:
        self._feeds: dict[int, TraceFeed] = {}
        self._process = secrets.token_hex(4)
        self._unsent_ids: dict[int, None] = {}
        self._unsent = Wakeup()

    def follow(self, build_id: int, subscriber: Subscriber) -> TraceFeed:
        """Adds a subscriber to the feed of a build's trace, and returns the feed, which is created for the first one."""
        feed = self._feeds.setdefault(build_id, TraceFeed(build_id))
        feed.subscribers.add(subscriber)
        return feed

    def unfollow(self, build_id: int, subscriber: Subscriber) -> None:
        """Removes a subscriber; the feed of the last one is dropped."""
        feed = self._feeds.get(build_id)
        if feed is not None:
            feed.subscribers.discard(subscriber)
            if not feed.subscribers:
                del self._feeds[build_id]

    def notify(self, build_id: int) -> None:
        """Wakes the readers of a trace. Call it after the commit of an append or a change of the build."""
        self._wake(build_id)
        self._unsent_ids[build_id] = None
        self._unsent.notify()

    def receive(self, payload: str) -> None:
        """Wakes readers in this process after a notification of another one; all of them after notifications may have been missed."""
        process, _, ids = payload.partition(":")
        if not payload:
            for feed in self._feeds.values():
                feed.notify()
        elif process != self._process:
            for build_id in ids.split(","):
                self._wake(int(build_id))

    async def run(self, notifications: Notifications) -> None:
        """Sends the notifications of this process until it is canceled. Those that come while one is sent are sent together."""
        while True:
            await self._unsent.wait(None)
            while self._unsent_ids:
                ids = list(self._unsent_ids)[:IDS_PER_NOTIFICATION]
                for build_id in ids:
                    del self._unsent_ids[build_id]
                await notifications.notify(self.channel, f"{self._process}:{','.join(map(str, ids))}")

    def _wake(self, build_id: int) -> None:
        feed = self._feeds.get(build_id)
        if feed is not None:
            feed.notify()


def join_position(generation: int, offset: int) -> int:
    """The number after which a stream resumes: an offset in the trace of this generation. It is larger than every offset alone.

    >>> join_position(0, 7) == OFFSETS + 7, join_position(2, 7) == 3 * OFFSETS + 7
    (True, True)
    """
    return (generation + 1) * OFFSETS + offset


def split_position(position: int) -> tuple[int | None, int]:
    """(generation, offset) of `join_position`; the generation of an offset alone is None.

    >>> split_position(join_position(2, 7)), split_position(7)
    ((2, 7), (None, 7))
    """
    generation, offset = divmod(position, OFFSETS)
    return generation - 1 if generation else None, offset


def cut_incomplete_character(data: bytes) -> bytes:
    """The bytes without a character in UTF-8 that is incomplete at their end.

    >>> cut_incomplete_character("aö".encode()[:2]), cut_incomplete_character(b"ab"), cut_incomplete_character(b"a" + b"\\x80" * 4)
    (b'a', b'ab', b'a\\x80\\x80\\x80\\x80')
    """
    for length in range(1, min(4, len(data) + 1)):
        byte = data[-length]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-length] if needed > length else data
    return data
