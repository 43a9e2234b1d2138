"""Executes subscribed operations for a change, for all its subscribers, each like a query of the subscriber at that time.

Streams request their results from a batch. It loads the users of tokens and their access levels by one statement for hundreds of them,
after the change was read. One result is shared by all subscribers for whom it would be the same (`graph/live/answer_sharing.py`). A batch
lives for a second, and serves all changes that were read together.
"""

import asyncio
import time
from collections import deque
from typing import Any

import orjson
import structlog

from graph.context import Context, Services
from graph.errors import Code, LimitExceeded, Unauthenticated, Unavailable
from graph.http.json_pieces import dump_json
from graph.http.responses import serialize_result
from graph.live.answer_sharing import TrackingContext
from graph.live.change_log import LoggedChange
from graph.live.stream_viewers import StreamViewers
from graph.live.subscribed_operations import SubscribedOperation
from graph.live.trace_feeds import TracePiece
from graph.operations import execution
from graph.operations.answer_size import limit_answer
from graph.operations.executor import execute_document
from graph.operations.limits import MAX_ANSWER_BYTES
from graph.operations.results import OperationResult, make_graphql_error_entry
from graph.operations.token_cache import find_token
from graph.operations.transaction import session_for
from graph.rules.events import subscription_filters
from graph.schema import graphql_schema as SCHEMA  # noqa: N812
from storage.database.text_budget import TextBudget

log = structlog.get_logger("live")

MAX_PIECE_ANSWERS = 16
BATCH_SECONDS = 1.0
"""Lifetime of a batch, and so the maximum age of its data about viewers."""


class SharedAnswer:
    """A result for a change that several subscribers share. Its errors have the id of the request for which it was executed."""

    __slots__ = ("_context", "_json", "_request_id", "result")

    def __init__(self, result: OperationResult, context: TrackingContext) -> None:
        self.result = result
        # The context with its loaded rows is stored only if it is needed to decide who shares the result.
        self._context = None if context.is_personal else context
        self._request_id = context.request_id
        self._json: bytes | None = None

    async def applies_to(self, context: Context) -> bool:
        return self._context is not None and await self._context.applies_to(context)

    @property
    def is_personal(self) -> bool:
        return self._context is None

    async def write_if_large(self) -> None:
        """Writes the JSON of a large answer, in pieces."""
        if self.result.is_large:
            self._json = await dump_json(serialize_result(self.result, self._request_id), is_large=True)

    @property
    def json(self) -> bytes:
        """The result as JSON, serialized once for all subscribers."""
        if self._json is None:
            self._json = orjson.dumps(serialize_result(self.result, self._request_id))
        return self._json


class FanoutBatch:
    """Executes operations for changes that were read before the batch began."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._started_at = time.monotonic()
        self._viewers = StreamViewers(services)
        self._answers: dict[tuple[object, int, bytes], _AnswerSet] = {}
        self._piece_keys: deque[tuple[object, int, bytes]] = deque()
        self._audiences: dict[object, _Audience] = {}
        subscription_filters.share_loaders(self._viewers.base_context)

    def covers(self, change: LoggedChange | TracePiece) -> bool:
        """Whether all data of the batch was read after the change, and the batch has not expired."""
        return change.read_at <= self._started_at and time.monotonic() < self._started_at + BATCH_SECONDS

    async def answer(
        self, change: LoggedChange | TracePiece, operation: SubscribedOperation, digest: str, request_id: str
    ) -> SharedAnswer | None:
        """Returns the result for the token's user; None if they are not allowed to see the change.

        Raises Unauthenticated, LimitExceeded, Unavailable.
        """
        await self._wait_for_audience(change, digest)
        viewer_context = await self._viewers.contexts.get(digest)
        if viewer_context is None:
            raise Unauthenticated
        if not await subscription_filters.is_visible(viewer_context, change):
            return None
        key = (change.key, *operation.key)
        answers = self._answers.get(key)
        if answers is None:
            if isinstance(change, TracePiece):
                self._forget_pieces(key)
            answers = self._answers[key] = _AnswerSet(self._services, change, operation)
        return await answers.answer_for(viewer_context, digest, request_id)

    def _forget_pieces(self, key: tuple[object, int, bytes]) -> None:
        """Keeps few results with pieces of traces, because a reader of a long trace takes many of them in a second."""
        self._piece_keys.append(key)
        if len(self._piece_keys) > MAX_PIECE_ANSWERS:
            old = self._piece_keys.popleft()
            self._answers.pop(old, None)
            self._audiences.pop(old[0], None)

    async def _wait_for_audience(self, change: LoggedChange | TracePiece, digest: str) -> None:
        """Waits until the permissions of all concurrent subscribers are loaded, so that thousands of them wait once, not for each step."""
        audience = self._audiences.get(change.key)
        if audience is None or audience.is_complete:
            audience = self._audiences[change.key] = _Audience()
            audience.task = asyncio.create_task(self._load(change, audience))
        audience.digests.add(digest)
        await audience.loaded.wait()

    async def _load(self, change: LoggedChange | TracePiece, audience: "_Audience") -> None:
        try:
            # All streams that were notified of the change run before this continues.
            await asyncio.sleep(0)
            audience.is_complete = True
            found = await self._viewers.contexts.get_many(audience.digests)
            contexts = [viewer_context for viewer_context in found.values() if viewer_context is not None]
            if contexts:
                # The rows that are checked are the same for all subscribers.
                await subscription_filters.is_visible(contexts[0], change)
                await self._viewers.access_levels.get_many([(viewer_context.viewer.id, change.project_id) for viewer_context in contexts])
        except Exception:
            # Each subscriber then loads what it needs, and receives the error.
            log.debug("preloading permissions failed", seq=change.seq, exc_info=True)
        finally:
            audience.is_complete = True
            audience.loaded.set()


class _Audience:
    """The concurrent subscribers of a change, by the digests of their tokens."""

    __slots__ = ("digests", "is_complete", "loaded", "task")

    def __init__(self) -> None:
        self.digests: set[str] = set()
        self.is_complete = False
        self.loaded = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        """A reference, because the event loop has only a weak one."""


class _AnswerSet:
    """The results of one operation for one change: a few shared ones, or one for each viewer if they are personal."""

    def __init__(self, services: Services, change: LoggedChange | TracePiece, operation: SubscribedOperation) -> None:
        self._services = services
        self._change = change
        self._operation = operation
        self._shared: list[SharedAnswer] = []
        self._pending: asyncio.Future[SharedAnswer] | None = None
        self._personal: dict[Any, asyncio.Future[SharedAnswer]] | None = None
        """By the identities of viewers: two tokens of a user may have different rights."""

    async def answer_for(self, viewer_context: Context, digest: str, request_id: str) -> SharedAnswer:
        checked = 0
        while self._personal is None:
            while checked < len(self._shared):
                checked += 1
                if await self._shared[checked - 1].applies_to(viewer_context):
                    return self._shared[checked - 1]
            is_first = self._pending is None
            if self._pending is None:
                self._pending = asyncio.ensure_future(self._run_shared(viewer_context, digest, request_id))
                self._pending.add_done_callback(_retrieve_exception)
            try:
                await asyncio.shield(self._pending)
            except Unauthenticated:
                # The error concerns the caller for whom it was executed.
                if is_first:
                    raise
        future = self._personal.get(viewer_context.viewer)
        if future is None:
            future = self._personal[viewer_context.viewer] = asyncio.ensure_future(self._run(viewer_context, digest, request_id))
            future.add_done_callback(_retrieve_exception)
        return await asyncio.shield(future)

    async def _run_shared(self, viewer_context: Context, digest: str, request_id: str) -> SharedAnswer:
        """Records the result before the task ends, not in a callback of it.

        A caller between the two would repeatedly await a future that is done, which does not suspend, so the event loop would never run
        the callback.
        """
        try:
            answer = await self._run(viewer_context, digest, request_id)
        finally:
            self._pending = None
        if answer.is_personal:
            future = asyncio.get_running_loop().create_future()
            future.set_result(answer)
            self._personal = {viewer_context.viewer: future}
        else:
            self._shared.append(answer)
        return answer

    async def _run(self, viewer_context: Context, digest: str, request_id: str) -> SharedAnswer:
        services, prepared = self._services, self._operation.prepared
        try:
            async with (
                services.broadcaster.semaphore,
                asyncio.timeout(execution.OPERATION_TIMEOUT_SECONDS) as timeout,
                session_for(services.database, writing=False, budget=TextBudget(MAX_ANSWER_BYTES)) as session,
            ):
                identity = await find_token(session, digest, services.clock())
                if identity is None:
                    raise Unauthenticated
                context = TrackingContext(services, session, identity.user, request_id, dict(viewer_context.loaders))
                if identity.scopes is not None:
                    context.access_token = identity
                variables = self._operation.variables
                executed = await execute_document(SCHEMA, prepared.document, context, variables, prepared.name, root=self._change)
                errors = [make_graphql_error_entry(error, request_id) for error in executed.errors or ()]
                if any(entry.code is Code.UNAVAILABLE for entry in errors):
                    # An event with missing parts would count as sent, and not be repeated when the client resumes.
                    raise Unavailable
                result = await limit_answer(OperationResult(executed.data, errors), prepared, context)
                answer = SharedAnswer(result, context)
                await answer.write_if_large()
                return answer
        except TimeoutError:
            if timeout.expired():
                raise LimitExceeded(
                    f"An event exceeded the time limit of {execution.OPERATION_TIMEOUT_SECONDS:.0f} s. Select fewer fields per event."
                ) from None
            raise Unavailable from None


def _retrieve_exception(future: "asyncio.Future[SharedAnswer]") -> None:
    """Marks the exception of a future as retrieved, because nobody may be waiting for it."""
    if not future.cancelled():
        future.exception()
