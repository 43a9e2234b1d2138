"""The peer's application. Run it with `uvicorn --factory benchmarks.peers.fastapi_peer_app:create_app`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlmodel.ext.asyncio.session import AsyncSession

from benchmarks.peers import fastapi_peer, fastapi_peer_builds
from benchmarks.peers.engine import create_engine


def create_app(database_url: str | None = None) -> FastAPI:
    """The application; without a URL it takes the one of PEER_DATABASE_URL, with the driver in it."""
    engine = create_engine(database_url)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await engine.dispose()

    app = FastAPI(lifespan=lifespan)
    # Objects stay readable after the commit, so that answering a new row needs no second look.
    app.state.sessions = async_sessionmaker(engine, class_=AsyncSession, expire_on_commit=False)
    app.include_router(fastapi_peer.router)
    app.include_router(fastapi_peer_builds.router)
    return app
