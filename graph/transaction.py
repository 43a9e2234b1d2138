"""One operation, one transaction: the only place that commits."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from graph.context import Context
from storage.database import Database, Session


@asynccontextmanager
async def session_for(database: Database, *, writing: bool) -> AsyncIterator[Session]:
    """The session of one operation. What is not kept by `keep` is rolled back when it ends."""
    async with database.writing() if writing else database.reading() as session:
        yield session


async def keep(context: Context) -> None:
    """Commits what the operation changed, then runs what waited for it."""
    await context.session.commit()
    for effect in context.after_commit:
        done = effect()
        if done is not None:
            await done
