"""The engine of the two peers on SQLAlchemy, as its manual creates one."""

import os
from typing import Any

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from benchmarks.peers import DATABASE_URL_VARIABLE


def create_engine(database_url: str | None) -> AsyncEngine:
    """An engine with as many connections as the service has; without a URL, for that of PEER_DATABASE_URL."""
    engine = create_async_engine(database_url or os.environ[DATABASE_URL_VARIABLE], pool_size=10, max_overflow=10)
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine.sync_engine, "connect")
        def connect(connection: Any, _entry: Any) -> None:
            cursor = connection.cursor()
            for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON", "busy_timeout = 10000"):
                cursor.execute(f"PRAGMA {pragma}")
            cursor.close()

    return engine
