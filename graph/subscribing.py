"""Runs a subscription: finds what it wants, then answers its selection for each event, by the graph's own execution.

Every event is answered in a session of its own, as a query of that moment would be: who may not call any more gets an end, and what the
viewer may not see then is left out. Those who ask the same by the same token share the answer.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import orjson
from graphql import (
    ExecutionResult,
    Executor,
    FieldNode,
    FragmentDefinitionNode,
    OperationDefinitionNode,
    VariableNode,
    Visitor,
    create_source_event_stream,
    execute,
    visit,
)

from graph import execute as running
from graph.context import Context
from graph.errors import BadRequest, Code, LimitExceeded, Unauthenticated, Unavailable
from graph.execute import Graph, authenticate
from graph.filling import Filler, may_wait
from graph.live import SHARED_SECONDS, End, Follower, Place, Wanted
from graph.operations import NOT_STORABLE, Allowed, Prepared, all_storable
from graph.outcomes import Outcome, Problem, known, of_graphql, problem_of
from graph.rates import Charge
from graph.rules import following
from graph.schema import graphql_schema as SCHEMA  # noqa: N812
from graph.settled import Change, changes_after
from graph.transaction import session_for

PAGE = 100
"""So many events of the past are read at once."""
TOO_SLOW = "You read more slowly than things happen, so this stream ends. Subscribe again with the last `seq` as `afterSeq`."


@dataclass(frozen=True, slots=True)
class Told:
    """The answer to one event; `seq` is its sequence number, None for an error that ends the stream."""

    seq: int | None
    outcome: Outcome


class Stream:
    """An open subscription. `next` gives what there is to tell; it must be closed. `charge` is what it cost to open."""

    __slots__ = (
        "_credential",
        "_ended",
        "_follower",
        "_graph",
        "_hangs_on",
        "_past",
        "_place",
        "_position",
        "_prepared",
        "_request_id",
        "_variables",
        "charge",
    )

    def __init__(self, graph: Graph, prepared: Prepared, variables: dict[str, Any], credential: str, request_id: str, wanted: Wanted):
        self._graph = graph
        self._prepared = prepared
        self._variables = variables
        self._hangs_on = _hangs_on(prepared, variables)
        self._credential = credential
        self._request_id = request_id
        self._follower = Follower(wanted)
        self._past: deque[Change] | None = deque()
        self._position = 0
        self._ended = False
        self.charge: Charge | None = None
        self._place: Place = graph.services.live.take(credential, self._follower.end)

    async def begin(self) -> None:
        """Raises Unavailable."""
        live = self._graph.services.live
        await live.settle(self._graph.services.database)
        after = self._follower.wanted.after
        self._position = live.upto if after is None else after
        if self._position >= live.upto:
            self._follow()

    @property
    def ended(self) -> bool:
        """Whether nothing comes any more."""
        return self._ended

    async def next(self, seconds: float | None = None) -> Told | None:
        """What is to be told next; None when nothing came in so many seconds, and at the end. For one caller at a time."""
        while not self._ended:
            try:
                found = await self._next(seconds)
                if found is None:
                    return None
                if isinstance(found, End):
                    return self._told_end(found)
                outcome = await self._shared(found)
            except Exception as error:
                # The event was not told, so whoever resumes gets it then.
                self.close()
                return Told(None, Outcome(None, [problem_of(known(error, self._request_id))]))
            if self._follower.ended not in (None, End.STOPPING):
                continue
            if outcome is not None:
                return Told(found.seq, outcome)
        return None

    def close(self) -> None:
        self._ended = True
        live = self._graph.services.live
        live.unfollow(self._follower)
        live.leave(self._place)

    def _told_end(self, why: End) -> Told | None:
        self.close()
        if why is End.STOPPING:
            return None
        error = LimitExceeded(TOO_SLOW) if why is End.SLOW else Unauthenticated()
        return Told(None, Outcome(None, [problem_of(error)]))

    async def _next(self, seconds: float | None) -> Change | End | None:
        while self._past is not None:
            if self._follower.ended is not None:
                return self._follower.ended
            while self._past:
                change = self._past.popleft()
                if self._follower.wanted.fits(change):
                    return change
            await self._read_past()
        return await self._follower.next(seconds)

    async def _read_past(self) -> None:
        """Reads on in the table; where that has nothing more to give, the stream follows."""
        services = self._graph.services
        until = services.live.upto
        async with session_for(services.database, writing=False) as session:
            wanted = self._follower.wanted
            found = await changes_after(session, self._position, PAGE, until=until, kind=wanted.kind, project_ids=wanted.projects)
        self._past = deque(found)
        self._position = found[-1].seq if len(found) == PAGE else max(until, self._position)
        # Nothing is awaited between this look and the following, so no event comes between.
        if not found and self._position >= services.live.upto:
            self._follow()

    def _follow(self) -> None:
        self._past = None
        self._graph.services.live.follow(self._follower, self._position)

    async def _shared(self, change: Change) -> Outcome | None:
        shared = self._graph.services.live.shared
        key = (change.seq, id(self._prepared), self._hangs_on, self._credential)
        found = shared.get(key)
        if found is None:
            task = asyncio.ensure_future(self._answer(change))
            # With the operation, so that no other has its id meanwhile.
            found = shared[key] = (task, self._prepared)
            task.add_done_callback(lambda done: _forget_later(shared, key, done))
        return await asyncio.shield(found[0])

    async def _answer(self, change: Change) -> Outcome | None:
        """The answer of now; None where the viewer does not see what has changed. Raises Unauthenticated, LimitExceeded, Unavailable."""
        services = self._graph.services
        try:
            async with (
                services.live.running,
                asyncio.timeout(running.SECONDS) as limit,
                session_for(services.database, writing=False) as session,
            ):
                viewer = await authenticate(session, self._credential)
                if viewer is None:
                    raise Unauthenticated
                context = Context(services, session, viewer, self._request_id)
                if not await following.is_told(context, change):
                    return None
                result: Any = execute(
                    SCHEMA,
                    self._prepared.document,
                    root_value=change,
                    context_value=context,
                    variable_values=self._variables,
                    operation_name=self._prepared.name,
                    executor_class=Filler,
                    is_awaitable=may_wait,
                )
                result = result if isinstance(result, ExecutionResult) else await result
                problems = [of_graphql(error, self._request_id) for error in result.errors or ()]
                return Outcome(result.data, problems, viewer.id)
        except TimeoutError:
            if limit.expired():
                raise LimitExceeded(f"An event took longer than {running.SECONDS:.0f} s. Ask for less of each.") from None
            raise Unavailable from None


def _forget_later(shared: dict[Any, Any], key: Any, done: "asyncio.Future[Any]") -> None:
    if not done.cancelled():
        done.exception()
    asyncio.get_running_loop().call_later(SHARED_SECONDS, shared.pop, key, None)


def _hangs_on(prepared: Prepared, variables: dict[str, Any]) -> bytes:
    """The variables that an answer hangs on: all but those that only the arguments of the root field use, as `afterSeq` does."""
    names: set[str] = set()

    class Used(Visitor):
        def enter_variable(self, node: VariableNode, *_: Any) -> None:
            names.add(node.name.value)

    for node in prepared.document.definitions:
        if isinstance(node, FragmentDefinitionNode):
            visit(node, Used())
        elif isinstance(node, OperationDefinitionNode):
            if prepared.root is None:
                return _spelled(variables)
            root = node.selection_set.selections[0]
            if isinstance(root, FieldNode) and root.selection_set is not None:
                visit(root.selection_set, Used())
    return _spelled({name: value for name, value in variables.items() if name in names})


def _spelled(variables: dict[str, Any]) -> bytes:
    return orjson.dumps(variables, option=orjson.OPT_SORT_KEYS)


async def subscribe(
    graph: Graph,
    query: str,
    variables: dict[str, Any],
    operation_name: str | None,
    credential: str | None,
    *,
    request_id: str,
    after: int | None = None,
) -> Stream | Outcome:
    """Opens the stream of a subscription; an Outcome says why there is none. `after` is the last number seen, where that is known otherwise
    than by an argument.
    """
    allowed = graph.allowed(query, variables, operation_name, request_id)
    if isinstance(allowed, list):
        return Outcome(None, allowed)
    if not all_storable(variables):
        return Outcome(None, [Problem(Code.BAD_REQUEST, NOT_STORABLE)])
    try:
        async with asyncio.timeout(running.SECONDS):
            found = await _wanted(graph, allowed, variables, credential, request_id)
            if isinstance(found, Outcome):
                return replace(found, charge=allowed.bill.charge)
            if after is not None:
                found = replace(found, after=max(after, found.after or 0))
            stream = Stream(graph, allowed.prepared, variables, credential or "", request_id, found)
            stream.charge = allowed.bill.charge
            try:
                await stream.begin()
            except BaseException:
                stream.close()
                raise
            return stream
    except Exception as error:
        return Outcome(None, [problem_of(known(error, request_id))], charge=allowed.bill.charge)


async def _wanted(graph: Graph, allowed: Allowed, variables: dict[str, Any], credential: str | None, request_id: str) -> Wanted | Outcome:
    """What the root field says to its arguments. The viewer is charged. Raises Unauthenticated, LimitExceeded."""
    prepared = allowed.prepared
    if prepared.kind != "subscription":
        raise BadRequest("This is no subscription.")
    async with session_for(graph.services.database, writing=False) as session:
        viewer = await authenticate(session, credential)
        if viewer is None:
            raise Unauthenticated
        graph.services.rates.take(viewer.id, allowed.bill, graph.services.clock())
        context = Context(graph.services, session, viewer, request_id)
        # By place, since the name of the variables' parameter differs between versions.
        executor = Executor.build(SCHEMA, prepared.document, None, context, variables, prepared.name, is_awaitable=may_wait)
        if isinstance(executor, list):
            return Outcome(None, [of_graphql(error, request_id) for error in executor], viewer.id)
        result: Any = create_source_event_stream(executor)
        result = await result if may_wait(result) else result
        if isinstance(result, Wanted):
            return result
        return Outcome(None, [of_graphql(error, request_id) for error in result.errors or ()], viewer.id)
