"""One operation, one transaction: the only place that commits."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from graph.context import Context
from storage import tables
from storage.database.engine import Database, DatabaseSession
from storage.database.text_budget import TextBudget

T = TypeVar("T")


def session_for(database: Database, *, writing: bool, budget: TextBudget | None = None) -> AbstractAsyncContextManager[DatabaseSession]:
    """The session of one operation. Changes that `commit_and_notify` does not commit are rolled back when it ends.

    `budget` limits how much text it reads.
    """
    return database.write_session(budget) if writing else database.read_session(budget)


async def commit_and_notify(context: Context) -> None:
    """Commits what the operation changed, then runs what waited for it. Raises IntegrityError."""
    await commit(context)
    await run_after_commit(context)


async def commit(context: Context) -> None:
    """The first half of `commit_and_notify`: the commit, where the last of what was changed is written. Raises IntegrityError,
    StaleDataError."""
    await context.session.commit()
    context.undo.clear()


async def run_after_commit(context: Context) -> None:
    """The second half: what waited for the commit."""
    for effect in context.after_commit:
        awaitable = effect()
        if awaitable is not None:
            await awaitable


class TransactionSteps:
    """The transactions of an operation that has several, since it moves refs between them: `await step(work)` is one, and it is kept.

    `work` is given a context of its own, with the viewer of the operation. Only merges and pushes have steps; each says in its module
    why its order survives a crash.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    async def __call__(self, work: Callable[[Context], Awaitable[T]]) -> T:
        context = self._context
        async with session_for(context.services.database, writing=True) as session:
            step_context = replace(context, session=session, loaders={}, after_commit=[], undo=[])
            result = await work(step_context)
            await session.flush()
            await commit_and_notify(step_context)
            return result


async def steps(context: Context) -> TransactionSteps:
    """Ends what the operation has begun, which has changed nothing yet, so that no step waits for it."""
    await context.session.close()
    return TransactionSteps(context)


async def switch_to_reader(context: Context) -> None:
    """Goes on in a session that only reads: what a caller selects of an answer makes no writer wait. Who made the context ends it."""
    await close_session(context)
    context.session = context.services.database.read_session(context.budget)
    if context.viewer_or_none is not None:
        # Most answers show who asked as the author; a viewer who changed himself is known as changed.
        context.rows_by_id(tables.User).prime_if_absent(context.viewer.id, context.viewer)


async def close_session(context: Context) -> None:
    """Ends the session that the operation is in; what it did not keep is rolled back."""
    await context.session.__aexit__(None, None, None)


async def undo_effects(undo: list[Callable[[], Awaitable[None]]]) -> None:
    """Undoes the effects outside the database of an operation that was not kept, the last one first."""
    while undo:
        await undo.pop()()


@asynccontextmanager
async def write_transaction(database: Database) -> AsyncIterator[DatabaseSession]:
    """A writing session for what no operation asked for, such as the outcome of a delivery; committed at the end of the block."""
    async with database.write_session() as session:
        yield session
        await session.commit()
