"""Waiting for what happens elsewhere: in another process, or in another task."""

import asyncio
import time
from collections.abc import Callable

from sqlalchemy import text

from storage.database.engine import Database


async def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Waits until the condition holds. Fails after the given seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        await asyncio.sleep(0.02)


async def wait_for_lock_waiter(database: Database, seconds: float = 10.0) -> None:
    """Waits until a transaction of PostgreSQL waits for a lock."""
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    deadline = time.monotonic() + seconds
    while True:
        async with database.read_session() as session:
            if await session.scalar(waiting):
                return
        assert time.monotonic() < deadline, f"nothing waited for a lock within {seconds} s"
        await asyncio.sleep(0.02)


async def wait_for_killed_clients(database: Database, seconds: float = 30.0) -> None:
    """Waits until PostgreSQL has ended what killed clients began: a commit goes on, and under load it takes a while."""
    if database.dialect == "sqlite":
        return
    active = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
        " AND state <> 'idle' AND pid <> pg_backend_pid()"
    )
    deadline = time.monotonic() + seconds
    while True:
        async with database.read_session() as session:
            if not await session.scalar(active):
                return
        assert time.monotonic() < deadline, f"clients were active after {seconds} s"
        await asyncio.sleep(0.02)
