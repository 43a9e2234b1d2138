"""The peer's application. Run it with `uvicorn --factory benchmarks.peer_app:create_app`."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from sqlalchemy import event
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlmodel.ext.asyncio.session import AsyncSession

from benchmarks import peer, peer_work

DATABASE = "PEER_DATABASE_URL"


def create_app(database_url: str | None = None) -> FastAPI:
    """The application; without a URL it takes the one of PEER_DATABASE_URL, with the driver in it."""
    url = database_url or os.environ[DATABASE]
    # As many connections as the service has.
    engine = create_async_engine(url, pool_size=10, max_overflow=10)
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine.sync_engine, "connect")
        def connect(connection: Any, _entry: Any) -> None:
            cursor = connection.cursor()
            for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON", "busy_timeout = 10000"):
                cursor.execute(f"PRAGMA {pragma}")
            cursor.close()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await engine.dispose()

    app = FastAPI(lifespan=lifespan)
    # Objects stay readable after the commit, so that answering a new row needs no second look.
    app.state.sessions = async_sessionmaker(engine, class_=AsyncSession, expire_on_commit=False)
    app.include_router(peer.router)
    app.include_router(peer_work.router)
    return app
