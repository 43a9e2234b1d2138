"""What the two peers on SQLAlchemy share: an engine as their manuals make one."""

import os
from typing import Any

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

DATABASE_URL_VARIABLE = "PEER_DATABASE_URL"
"""Names the database, with the driver in the URL."""


def create_engine(database_url: str | None) -> AsyncEngine:
    """Without a URL, the one of PEER_DATABASE_URL. As many connections as the service has."""
    engine = create_async_engine(database_url or os.environ[DATABASE_URL_VARIABLE], pool_size=10, max_overflow=10)
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine.sync_engine, "connect")
        def connect(connection: Any, _entry: Any) -> None:
            cursor = connection.cursor()
            for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON", "busy_timeout = 10000"):
                cursor.execute(f"PRAGMA {pragma}")
            cursor.close()

    return engine
