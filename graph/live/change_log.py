"""Reads the log of changes in the order of their sequence numbers, and never past one that is still to come.

A sequence number is taken when a change is written, and others see the change when its transaction ends. On SQLite one writes at a
time, so both orders are the same. On PostgreSQL number 6 may be seen before number 5: whoever steps to 6 then has missed 5. So a
number that is missing holds back all that follow it until it comes, or until it is certain that it never will: every transaction that
may have taken it holds a lock of the table from before it took the number until after its rows can be seen. The number was taken
before the larger one was seen; so once all those that hold the lock after that have ended, whatever is missing was rolled back or
deleted. Where no number is missing nothing waits, and long transactions of others hold nothing up.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic

from graph.errors import Unavailable
from storage.database.engine import Database, DatabaseSession
from storage.tables import ChangeKind, changes

PAGE_SIZE = 500
GAP_RETRY_SECONDS = 0.02
"""Between two looks while a number is missing whose writer is at work."""
SETTLE_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """One change, as its row says it. `subject_id` is the build or the merge request; None for a branch, whose name is `ref`.
    `default_branch` is the project's when the row was read.

    `read_at` is a moment of this process's clock at which the row had been read.
    """

    seq: int
    kind: ChangeKind
    project_id: int
    subject_id: int | None
    ref: str
    was: str | None
    became: str
    at: datetime
    default_branch: str | None
    read_at: float = field(default_factory=monotonic, compare=False)


class CommittedLogReader:
    """`watermark` is the largest number up to which every change that will ever be seen can be seen; None before the first look.

    For one caller at a time.
    """

    def __init__(self) -> None:
        self.watermark: int | None = None
        self._suspects: dict[int, frozenset[str] | None] = {}
        """The number above a gap → who may yet fill it; None where the gap was seen just now, and nobody was asked after that."""

    async def read_newest_seq(self, database: Database) -> int:
        """The newest number of which this may be said now. Raises Unavailable when a transaction that writes changes does not end."""
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
        """Goes on from there, whatever lies between."""
        self._suspects.clear()
        self.watermark = max(seq, self.watermark or 0)

    async def read(self, database: Database) -> tuple[list[LoggedChange], float | None]:
        """What has settled since; and after how many seconds to look again, where more is known to come. `start_at` comes first."""
        assert self.watermark is not None, "begin comes first"  # noqa: S101
        is_ordered = database.dialect == "sqlite"
        # Before the rows are read: what those who have ended by now wrote is among them.
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
    """At most so many changes after this number, of one kind and of these projects where they are given, in their order."""
    statement = changes.after(after_seq, limit, until=until, kind=kind, project_ids=project_ids)
    return [LoggedChange(*row) for row in await session.read(statement)]


async def _writers(database: Database) -> frozenset[str]:
    async with database.read_session() as session:
        return frozenset((await session.execute(changes.OPEN_WRITERS)).scalars())
