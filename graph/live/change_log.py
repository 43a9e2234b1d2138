"""Reads the change log in the order of sequence numbers, and never past a number that may still be committed.

A change gets its sequence number when it is written, and becomes visible when its transaction commits. SQLite has one writer at a time, so
both orders are the same. On PostgreSQL number 6 may become visible before number 5; a reader that continues after 6 would miss 5. So a gap
holds back all following changes until it is filled, or until it is certain that it never will be: every transaction that may have taken the
number holds a lock on the table from before it took the number until after its rows are visible. The number was taken before the
larger number was seen. So once all transactions that held the lock at that time have ended, a number that is still missing was
rolled back or deleted. Without gaps nothing waits, and other long transactions do not delay the reader.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic

from graph.errors import Unavailable
from storage.database.engine import Database, DatabaseSession
from storage.tables import ChangeKind
from storage.tables.events import changes

PAGE_SIZE = 500
GAP_RETRY_SECONDS = 0.02
"""Seconds between two reads while a gap may still be filled."""
SETTLE_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """A row of the change log. `subject_id` is the id of the build, merge request or issue; None for a branch, whose name is `ref`.

    `default_branch` is the project's when the row was read. `read_at` is a monotonic time after the row was read.
    """

    seq: int
    kind: ChangeKind
    project_id: int
    subject_id: int | None
    ref: str
    old_state: str | None
    new_state: str
    at: datetime
    default_branch: str | None
    read_at: float = field(default_factory=monotonic, compare=False)

    @property
    def key(self) -> object:
        """Identifies the change among everything that is sent to subscribers."""
        return self.seq


class CommittedLogReader:
    """Reads committed changes in order. `watermark` is the number up to which no further change can appear; None before the first read.

    Only one caller at a time may use it.
    """

    def __init__(self) -> None:
        self.watermark: int | None = None
        self._suspects: dict[int, frozenset[str] | None] = {}
        """The number after a gap → transactions that may still fill it; None if the gap is new and they were not read since."""

    async def read_newest_seq(self, database: Database) -> int:
        """Returns the newest number that can be the watermark. Raises Unavailable if a transaction that writes changes does not end."""
        async with database.read_session() as session:
            ((newest_seq,),) = await session.read(changes.newest_id())
        if database.dialect == "postgresql":
            writers = await _writers(database)
            try:
                async with asyncio.timeout(SETTLE_TIMEOUT_SECONDS):
                    while writers:
                        await asyncio.sleep(GAP_RETRY_SECONDS)
                        writers &= await _writers(database)
            except TimeoutError:
                raise Unavailable from None
        return newest_seq or 0

    def start_at(self, seq: int) -> None:
        """Sets the watermark and skips all changes up to it."""
        self._suspects.clear()
        self.watermark = max(seq, self.watermark or 0)

    async def read(self, database: Database) -> tuple[list[LoggedChange], float | None]:
        """Returns the changes up to the new watermark, and the seconds until the next read if more changes are expected.

        Call `start_at` first.
        """
        assert self.watermark is not None, "call start_at first"  # noqa: S101
        is_ordered = database.dialect == "sqlite"
        # Before the rows are read, so that they include the rows of transactions that have ended by now.
        writers = await _writers(database) if self._suspects else frozenset()
        async with database.read_session() as session:
            rows = await read_changes(session, self.watermark, PAGE_SIZE)
        committed: list[LoggedChange] = []
        suspects: dict[int, frozenset[str] | None] = {}
        previous = self.watermark
        for row in rows:
            if not is_ordered and row.seq > previous + 1:
                known_writers = self._suspects.get(row.seq, ...)
                remaining_writers = None if known_writers is ... else writers if known_writers is None else known_writers & writers
                if remaining_writers is None or remaining_writers:
                    suspects[row.seq] = remaining_writers
            if not suspects:
                committed.append(row)
                self.watermark = row.seq
            previous = row.seq
        self._suspects = suspects
        if suspects:
            return committed, 0.0 if None in suspects.values() else GAP_RETRY_SECONDS
        return committed, 0.0 if len(rows) == PAGE_SIZE else None


async def read_changes(
    session: DatabaseSession,
    after_seq: int,
    limit: int,
    *,
    until: int | None = None,
    kind: ChangeKind | None = None,
    project_ids: Collection[int] | None = None,
) -> list[LoggedChange]:
    """Returns at most `limit` changes after this number, in order, optionally of one kind and of these projects."""
    statement = changes.after(after_seq, limit, until=until, kind=kind, project_ids=project_ids)
    return [LoggedChange(*row) for row in await session.read(statement)]


async def read_pruned_seq(session: DatabaseSession) -> int:
    """Returns the number up to which changes were pruned. A list of changes after it, read before this call, is complete."""
    rows = await session.read(changes.pruned_seq())
    return int(rows[0][0]) if rows else 0


async def read_last_seq(database: Database, session: DatabaseSession) -> int:
    """Returns the largest number that a change ever had. A larger one is of another database, as after a restoration."""
    rows = await session.fetch(changes.LAST_ID[database.dialect], ())
    return int(rows[0][0] or 0) if rows else 0


async def _writers(database: Database) -> frozenset[str]:
    async with database.read_session() as session:
        return frozenset((await session.execute(changes.OPEN_WRITERS)).scalars())
