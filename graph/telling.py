"""Answers what has changed for all who are told of it, each as a query of theirs would be answered at that moment.

Who follows asks a round. It knows them by their tokens and what they may in a project by a statement for hundreds of them, both read
after the change was; and one answer serves all for whom it would be the same (`graph/watched.py`). A round lives for a moment, in which
it is asked about all changes that were read together.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import structlog

from graph import execute as running
from graph.answers import result_of
from graph.context import Context, Services
from graph.errors import Code, LimitExceeded, Unauthenticated, Unavailable
from graph.filling import execute_document
from graph.loading import Loader
from graph.operations import Prepared
from graph.outcomes import Outcome, of_graphql
from graph.rules import acting, following
from graph.rules.acting import Listener
from graph.schema import graphql_schema as SCHEMA  # noqa: N812
from graph.settled import Change
from graph.transaction import session_for
from graph.viewers import viewer_of
from graph.watched import Watched
from storage.database import Database
from storage.tables import users

log = structlog.get_logger("telling")

LIVE_SECONDS = 1.0
"""So long a round is asked, and so old may be what it knows of a viewer when it is told that something has changed before."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Operation:
    """What those who follow want to be told. Equal ones are answered alike; `hangs_on` spells the variables that make a difference."""

    prepared: Prepared
    variables: dict[str, Any]
    hangs_on: bytes

    @property
    def key(self) -> tuple[int, bytes]:
        return id(self.prepared), self.hangs_on


class Answer:
    """What some are told of a change. Its errors have the id of the request for which it was made, as the log has it."""

    __slots__ = ("_context", "_json", "_request_id", "outcome")

    def __init__(self, outcome: Outcome, context: Watched) -> None:
        self.outcome = outcome
        # With all that it has loaded, so only where it tells for whom else the answer is.
        self._context = None if context.is_personal else context
        self._request_id = context.request_id
        self._json: bytes | None = None

    async def is_for(self, listener: Context) -> bool:
        return self._context is not None and await self._context.is_for(listener)

    @property
    def is_personal(self) -> bool:
        return self._context is None

    @property
    def json(self) -> bytes:
        """As JSON, written once for all."""
        if self._json is None:
            self._json = orjson.dumps(result_of(self.outcome, self._request_id))
        return self._json


class Round:
    """Those who are told of what was read before it began."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._began = time.monotonic()
        briefly: Any = _Briefly(services.database)
        self._ground = Context(services, briefly, None, "live")
        self._listeners = Loader(self._admit)
        self._levels = acting.levels_of_many(self._ground)
        self._answers: dict[tuple[int, int, bytes], _Answers] = {}
        self._audiences: dict[int, _Audience] = {}
        following.share(self._ground)

    def serves(self, change: Change) -> bool:
        """Whether all that it knows is from after the change, and from this moment."""
        return change.read_at <= self._began and time.monotonic() < self._began + LIVE_SECONDS

    async def answer(self, change: Change, operation: Operation, digest: str, request_id: str) -> Answer | None:
        """The answer to who calls with a token; None where they do not see what has changed. Raises Unauthenticated, LimitExceeded,
        Unavailable."""
        await self._meet(change, digest)
        listener = await self._listeners.get(digest)
        if listener is None:
            raise Unauthenticated
        if not await following.is_told(listener, change):
            return None
        key = (change.seq, *operation.key)
        answers = self._answers.get(key)
        if answers is None:
            answers = self._answers[key] = _Answers(self._services, change, operation)
        return await answers.of(listener, digest, request_id)

    async def _meet(self, change: Change, digest: str) -> None:
        """Waits until what decides for all who ask at this moment is loaded, so that thousands of them wait once, and not for each step."""
        audience = self._audiences.get(change.seq)
        if audience is None or audience.is_complete:
            audience = self._audiences[change.seq] = _Audience()
            audience.task = asyncio.create_task(self._load(change, audience))
        audience.digests.add(digest)
        await audience.is_loaded.wait()

    async def _load(self, change: Change, audience: "_Audience") -> None:
        try:
            # Those whom the change has woken run before this goes on.
            await asyncio.sleep(0)
            audience.is_complete = True
            found = await self._listeners.get_many(audience.digests)
            listeners = [listener for listener in found.values() if listener is not None]
            if listeners:
                # The rows that are looked at are the same for everybody.
                await following.is_told(listeners[0], change)
                await self._levels.get_many([(listener.viewer.id, change.project_id) for listener in listeners])
        except Exception:
            # Who needs what could not be loaded asks for it, and is told why.
            log.debug("not loaded for all", seq=change.seq, exc_info=True)
        finally:
            audience.is_complete = True
            audience.is_loaded.set()

    async def _admit(self, digests: Sequence[str]) -> Mapping[str, Context]:
        found: dict[str, Context] = {}
        for start in range(0, len(digests), acting.USERS_AT_ONCE):
            rows = await self._ground.tuples(users.by_digests(list(digests[start : start + acting.USERS_AT_ONCE])))
            found.update({digest: acting.listening(self._ground, Listener(*user), self._levels) for digest, *user in rows})
        return found


class _Audience:
    """Those who are told of a change at the same moment, by the digests of their tokens."""

    __slots__ = ("digests", "is_complete", "is_loaded", "task")

    def __init__(self) -> None:
        self.digests: set[str] = set()
        self.is_complete = False
        self.is_loaded = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        """Kept, since the loop holds it by a weak reference."""


class _Answers:
    """The answers to one change and one operation: few, or one for each viewer where it is personal."""

    def __init__(self, services: Services, change: Change, operation: Operation) -> None:
        self._services = services
        self._change = change
        self._operation = operation
        self._made: list[Answer] = []
        self._next: asyncio.Future[Answer] | None = None
        self._personal: dict[int, asyncio.Future[Answer]] | None = None

    async def of(self, listener: Context, digest: str, request_id: str) -> Answer:
        looked = 0
        while self._personal is None:
            while looked < len(self._made):
                looked += 1
                if await self._made[looked - 1].is_for(listener):
                    return self._made[looked - 1]
            first = self._next is None
            if self._next is None:
                self._next = asyncio.ensure_future(self._run_for_all(listener, digest, request_id))
                self._next.add_done_callback(_retrieve)
            try:
                await asyncio.shield(self._next)
            except Unauthenticated:
                # That was about who asked first.
                if first:
                    raise
        own = self._personal.get(listener.viewer.id)
        if own is None:
            own = self._personal[listener.viewer.id] = asyncio.ensure_future(self._run(listener, digest, request_id))
            own.add_done_callback(_retrieve)
        return await asyncio.shield(own)

    async def _run_for_all(self, listener: Context, digest: str, request_id: str) -> Answer:
        """Records the answer before the task ends, not in a callback of it: a caller between the two would await a future that is done,
        which does not suspend, again and again, and the event loop would never come to the callback."""
        try:
            answer = await self._run(listener, digest, request_id)
        finally:
            self._next = None
        if answer.is_personal:
            own = asyncio.get_running_loop().create_future()
            own.set_result(answer)
            self._personal = {listener.viewer.id: own}
        else:
            self._made.append(answer)
        return answer

    async def _run(self, listener: Context, digest: str, request_id: str) -> Answer:
        services, prepared = self._services, self._operation.prepared
        try:
            async with (
                services.live.running,
                asyncio.timeout(running.SECONDS) as limit,
                session_for(services.database, writing=False) as session,
            ):
                viewer = await viewer_of(session, digest)
                if viewer is None:
                    raise Unauthenticated
                context = Watched(services, session, viewer, request_id, dict(listener.loaders))
                variables = self._operation.variables
                result = await execute_document(SCHEMA, prepared.document, context, variables, prepared.name, root=self._change)
                problems = [of_graphql(error, request_id) for error in result.errors or ()]
                if any(problem.code is Code.UNAVAILABLE for problem in problems):
                    # Told with a part missing, the event would not be told again.
                    raise Unavailable
                return Answer(Outcome(result.data, problems), context)
        except TimeoutError:
            if limit.expired():
                raise LimitExceeded(f"An event took longer than {running.SECONDS:.0f} s. Ask for less of each.") from None
            raise Unavailable from None


def _retrieve(done: "asyncio.Future[Answer]") -> None:
    """Looks at the error of what nobody may wait for any more."""
    if not done.cancelled():
        done.exception()


class _Briefly:
    """What reads as a session does, but takes one for each statement alone, since nobody knows when the last of many has asked."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, statement: Any, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        async with self._database.reading() as session:
            return await session.read(statement, values)
