"""Upgrades of a database in processes of their own, which import no more than an upgrade needs."""

import multiprocessing
import os
import signal
from typing import Any

from sqlalchemy import Engine, event

from storage import migrations

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload([__name__, "alembic.command", "asyncpg", "storage.tables"])


def upgrade_on_signal(url: str, start: Any, results: Any) -> None:
    """Waits for the others, upgrades, and puts the applied revisions into the queue."""
    start.wait(30)
    results.put(migrations.upgrade(url))


def upgrade_until(url: str, statement: int | None, counts: Any) -> None:
    """Upgrades and is killed after this number of statements. None kills it as it begins to commit; their number is then in the queue."""
    seen = 0

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def count(*_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == statement:
            die()

    def put_count_and_die(*_: object) -> None:
        counts.put(seen)
        die()

    event.listen(Engine, "after_cursor_execute", count)
    if statement is None:
        event.listen(Engine, "commit", put_count_and_die)
    migrations.upgrade(url)
