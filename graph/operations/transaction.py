"""Transactions of operations. An operation is one transaction; only this module commits."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, TypeVar

import structlog

from graph.context import Context
from storage import tables
from storage.database.engine import Database, DatabaseSession
from storage.database.text_budget import TextBudget
from storage.database.writers import ConcurrentChange

T = TypeVar("T")

log = structlog.get_logger("graph")


def session_for(database: Database, *, writing: bool, budget: TextBudget | None = None) -> AbstractAsyncContextManager[DatabaseSession]:
    """Returns the session of one operation. Changes that are not committed are rolled back when it ends.

    `budget` limits how much text it reads.
    """
    return database.write_session(budget) if writing else database.read_session(budget)


async def commit_and_notify(context: Context) -> None:
    """Commits the operation's changes, then runs its `after_commit` callbacks. Raises IntegrityError."""
    await commit(context)
    await run_after_commit(context)


async def commit(context: Context) -> None:
    """Flushes and commits the operation's changes, and runs its `on_commit` callbacks. Raises IntegrityError, StaleDataError.

    The time limit of the operation cannot cancel a commit, whose outcome would then be unknown.
    """
    deadline = context.deadline
    if deadline is None:
        await context.session.commit()
    else:
        await deadline.suspend()
        try:
            await context.session.commit()
            deadline.has_committed = True
        finally:
            deadline.restart()
    context.undo.clear()
    for wake in context.on_commit:
        wake()
    context.on_commit.clear()


async def run_after_commit(context: Context) -> None:
    """Runs the `after_commit` callbacks. One that fails is logged: the change itself has succeeded.

    If the caller is canceled, as by its time limit, they go on without it: nothing else would remove the files of deleted rows.
    """
    # Most callbacks refer to the context: kept in it, they would leave both to the garbage collector.
    callbacks, context.after_commit = context.after_commit, []
    effects = iter(callbacks)
    for effect in effects:
        with _log_failure(context):
            awaitable = effect()
            if awaitable is not None:
                # Most operations have no effect that waits, and need no task.
                task = asyncio.create_task(_complete_effects(context, awaitable, effects))
                _running_effects.add(task)
                task.add_done_callback(_running_effects.discard)
                await asyncio.shield(task)


_running_effects: set[asyncio.Task[None]] = set()
"""References, because the event loop has only weak ones."""


async def _complete_effects(context: Context, awaitable: Awaitable[object], effects: Iterator[Callable[[], Any]]) -> None:
    """Awaits an effect that has begun, and runs the ones after it."""
    with _log_failure(context):
        await awaitable
    for effect in effects:
        with _log_failure(context):
            awaitable = effect()
            if awaitable is not None:
                await awaitable


@contextmanager
def _log_failure(context: Context) -> Iterator[None]:
    try:
        yield
    except Exception:
        log.exception("effect of a commit failed", request_id=context.request_id)


class TransactionSteps:
    """The transactions of an operation that runs git between them: `await step(work)` runs and commits one transaction.

    `work` receives a context of its own, with the viewer of the operation. If a row that it has left unlocked (`Context.lock_later`) was
    changed meanwhile, it runs once more, and every row is locked.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    async def __call__(self, work: Callable[[Context], Awaitable[T]]) -> T:
        try:
            return await self._run(work, may_repeat=True)
        except ConcurrentChange:
            return await self._run(work, may_repeat=False)

    async def _run(self, work: Callable[[Context], Awaitable[T]], *, may_repeat: bool) -> T:
        context = self._context
        async with context.services.database.write_session() as session:
            session.may_repeat = may_repeat
            with context.in_session(session, on_commit=[], after_commit=[], undo=[]) as step_context:
                result = await work(step_context)
                await commit_and_notify(step_context)
                return result


async def steps(context: Context) -> TransactionSteps:
    """Closes the operation's session, which has changed nothing yet, so that no step has to wait for it."""
    await context.session.close()
    return TransactionSteps(context)


async def switch_to_reader(context: Context) -> None:
    """Replaces the session by a read session, so that reading the payload does not block writers. The context's creator closes it."""
    try:
        await close_session(context)
    except Exception:
        log.exception("session could not be closed after its commit", request_id=context.request_id)
    context.session = context.services.database.read_session(context.budget)
    if context.viewer_or_none is not None:
        # Most payloads show the viewer as the author; the row in the context includes the viewer's own changes.
        context.rows_by_id(tables.User).prime_if_absent(context.viewer.id, context.viewer)


async def restart(context: Context) -> None:
    """Rolls the transaction of a mutation back and begins a new one, in which every row is locked when it is needed."""
    await close_session(context)
    await undo_effects(context.undo)
    context.loaders.clear()
    context.policy_projects.clear()
    context.on_commit.clear()
    context.after_commit.clear()
    context.session = context.services.database.write_session(context.budget)


async def close_session(context: Context) -> None:
    """Closes the operation's session; uncommitted changes are rolled back."""
    await context.session.__aexit__(None, None, None)


async def undo_effects(undo: list[Callable[[], Awaitable[None]]]) -> None:
    """Undoes the effects outside the database of an operation that was not committed, the last one first."""
    while undo:
        await undo.pop()()


@asynccontextmanager
async def undo_on_failure(context: Context) -> AsyncIterator[None]:
    """Closes the session and undoes the effects outside the database if the block raises; for work that is no operation."""
    try:
        yield
    except BaseException:
        await close_session(context)
        await undo_effects(context.undo)
        raise


@asynccontextmanager
async def write_transaction(database: Database) -> AsyncIterator[DatabaseSession]:
    """Yields a write session outside of operations, such as for the result of a delivery; it is committed at the end of the block."""
    async with database.write_session() as session:
        yield session
        await session.commit()
