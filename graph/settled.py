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
from storage.database import Database, Session
from storage.tables import ChangeKind, changes

PAGE = 500
RETRY_SECONDS = 0.02
"""Between two looks while a number is missing whose writer is at work."""
SETTLE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Change:
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


class Settled:
    """`upto` is the largest number up to which every change that will ever be seen can be seen; None before the first look.

    For one caller at a time.
    """

    def __init__(self) -> None:
        self.upto: int | None = None
        self._suspects: dict[int, frozenset[str] | None] = {}
        """The number above a gap → who may yet fill it; None where the gap was seen just now, and nobody was asked after that."""

    async def newest(self, database: Database) -> int:
        """The newest number of which this may be said now. Raises Unavailable when a transaction that writes changes does not end."""
        async with database.reading() as session:
            ((newest,),) = await session.read(changes.newest())
        if database.dialect == "postgresql":
            writers = await _writers(database)
            try:
                async with asyncio.timeout(SETTLE_SECONDS):
                    while writers:
                        await asyncio.sleep(RETRY_SECONDS)
                        writers &= await _writers(database)
            except TimeoutError:
                raise Unavailable from None
        return newest or 0

    def begin(self, newest: int) -> None:
        """Goes on from there, whatever lies between."""
        self._suspects.clear()
        self.upto = max(newest, self.upto or 0)

    async def read(self, database: Database) -> tuple[list[Change], float | None]:
        """What has settled since; and after how many seconds to look again, where more is known to come. `begin` comes first."""
        assert self.upto is not None, "begin comes first"  # noqa: S101
        ordered = database.dialect == "sqlite"
        # Before the rows are read: what those who have ended by now wrote is among them.
        writers = await _writers(database) if self._suspects else frozenset()
        async with database.reading() as session:
            rows = await changes_after(session, self.upto, PAGE)
        settled: list[Change] = []
        suspects: dict[int, frozenset[str] | None] = {}
        previous = self.upto
        for row in rows:
            if not ordered and row.seq > previous + 1:
                known = self._suspects.get(row.seq, ...)
                left = None if known is ... else writers if known is None else known & writers
                if left is None or left:
                    suspects[row.seq] = left
            if not suspects:
                settled.append(row)
                self.upto = row.seq
            previous = row.seq
        self._suspects = suspects
        if suspects:
            return settled, 0.0 if None in suspects.values() else RETRY_SECONDS
        return settled, 0.0 if len(rows) == PAGE else None


async def changes_after(
    session: Session,
    number: int,
    most: int,
    *,
    until: int | None = None,
    kind: ChangeKind | None = None,
    project_ids: Collection[int] | None = None,
) -> list[Change]:
    """At most so many changes after this number, of one kind and of these projects where they are given, in their order."""
    statement = changes.after(number, most, until=until, kind=kind, project_ids=project_ids)
    return [Change(*row) for row in await session.read(statement)]


async def _writers(database: Database) -> frozenset[str]:
    async with database.reading() as session:
        return frozenset((await session.execute(changes.WRITERS)).scalars())
