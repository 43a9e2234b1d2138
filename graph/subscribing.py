"""Runs a subscription: finds what it wants, then answers its selection for each event, by the graph's own execution.

Every event is answered as a query of that moment would be (`graph/telling.py`): who may not call any more gets an end, and what the
viewer may not see then is left out.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import orjson
from graphql import (
    Executor,
    FieldNode,
    FragmentDefinitionNode,
    OperationDefinitionNode,
    VariableNode,
    Visitor,
    create_source_event_stream,
    visit,
)

from graph import execute as running
from graph.context import Context
from graph.errors import BadRequest, LimitExceeded, Unauthenticated, Unavailable
from graph.execute import Graph, authenticate
from graph.filling import may_wait
from graph.live import End, Follower, Live, Place, Wanted
from graph.operations import Allowed, Prepared, refused_variables
from graph.outcomes import Outcome, known, of_graphql, problem_of
from graph.rates import Charge
from graph.schema import graphql_schema as SCHEMA  # noqa: N812
from graph.settled import Change, changes_after
from graph.telling import LIVE_SECONDS, Operation, Round
from graph.transaction import session_for

PAGE = 100
"""So many events of the past are read at once."""
QUIETLY = (End.STOPPING, End.UNAVAILABLE, End.LEFT)
INTERRUPTED = (End.STOPPING, End.UNAVAILABLE)
"""After these the client resumes, and misses nothing."""
TOO_SLOW = "You read more slowly than things happen, so this stream ends. Subscribe again with the last `seq` as `afterSeq`."


@dataclass(frozen=True, slots=True)
class Told:
    """The answer to one event; `seq` is its sequence number, None for an error that ends the stream. `json` is the outcome as JSON,
    where many are told the same."""

    seq: int | None
    outcome: Outcome
    json: bytes | None = None


class Stream:
    """An open subscription. `next` gives what there is to tell; it must be closed. `charge` is what it cost to open."""

    __slots__ = (
        "_ended",
        "_follower",
        "_graph",
        "_is_behind",
        "_operation",
        "_past",
        "_place",
        "_position",
        "_request_id",
        "charge",
    )

    def __init__(
        self,
        graph: Graph,
        prepared: Prepared,
        variables: dict[str, Any],
        credential: str,
        viewer_id: int,
        request_id: str,
        wanted: Wanted,
    ) -> None:
        self._graph = graph
        live = graph.services.live
        operation = Operation(prepared, variables, _hangs_on(prepared, variables))
        # Those who ask the same share it.
        self._operation: Operation = live.operations.setdefault(operation.key, operation)
        self._request_id = request_id
        self._follower = Follower(wanted)
        self._past: deque[Change] | None = None
        self._is_behind = True
        self._position = 0
        self._ended = False
        self.charge: Charge | None = None
        self._place: Place = live.take(credential, viewer_id, self._follower.end)

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

    @property
    def interrupted(self) -> bool:
        """Whether it ended for a reason that passes: the client is to resume, and must not take this for the end of the subscription."""
        return self._follower.ended in INTERRUPTED

    @property
    def position(self) -> int:
        """Number up to which every event was told or is not for this stream. Valid after `begin`, and whenever `next` gave None."""
        return self._position if self._is_behind else self._follower.position(self._graph.services.live.upto)

    async def next(self, seconds: float | None = None) -> Told | None:
        """What is to be told next; None when nothing came in so many seconds, and at the end. For one caller at a time."""
        while not self._ended:
            try:
                found = await self._next(seconds)
                if found is None:
                    return None
                if isinstance(found, End):
                    return self._told_end(found)
                answer = await self._round(found).answer(found, self._operation, self._place.digest, self._request_id)
            except Exception as error:
                # The event was not told, so whoever resumes gets it then.
                reason = known(error, self._request_id)
                if isinstance(reason, Unavailable):
                    self._follower.end(End.UNAVAILABLE)
                    continue
                self.close()
                return Told(None, Outcome(None, [problem_of(reason)]))
            if self._follower.ended not in (None, End.STOPPING):
                # Nothing more is told but the end.
                continue
            if answer is not None:
                return Told(found.seq, answer.outcome, answer.json)
        return None

    def leave(self) -> None:
        """Ends the wait of whoever waits for what is next: nobody hears it any more."""
        self._follower.end(End.LEFT)

    def close(self) -> None:
        self._ended = True
        live = self._graph.services.live
        live.unfollow(self._follower)
        live.leave(self._place)

    def _told_end(self, why: End) -> Told | None:
        self.close()
        if why in QUIETLY:
            return None
        error = LimitExceeded(TOO_SLOW) if why is End.SLOW else Unauthenticated()
        return Told(None, Outcome(None, [problem_of(error)]))

    async def _next(self, seconds: float | None) -> Change | End | None:
        while True:
            while self._is_behind:
                if self._follower.ended is not None:
                    return self._follower.ended
                while self._past:
                    change = self._past.popleft()
                    if self._follower.wanted.fits(change):
                        return change
                await self._read_past()
            found = await self._follower.next(seconds)
            if self._follower.overflowed_at is None:
                return found
            self._fall_behind(self._follower.overflowed_at)

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

    def _fall_behind(self, position: int) -> None:
        """Reads on in the log, after this number."""
        self._graph.services.live.unfollow(self._follower)
        self._follower.overflowed_at = None
        self._past, self._is_behind, self._position = None, True, position

    def _follow(self) -> None:
        self._past, self._is_behind = None, False
        self._graph.services.live.follow(self._follower, self._position)

    def _round(self, change: Change) -> Round:
        live = self._graph.services.live
        found: Round | None = live.round
        if found is None or not found.serves(change):
            found = live.round = Round(self._graph.services)
            asyncio.get_running_loop().call_later(LIVE_SECONDS, _forget, live, found)
        return found


def _forget(live: Live, over: Round) -> None:
    if live.round is over:
        live.round = None


class _Used(Visitor):
    """Gathers the names of the variables that stand in what it visits."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def enter_variable(self, node: VariableNode, *_: Any) -> None:
        self.names.add(node.name.value)


def _hangs_on(prepared: Prepared, variables: dict[str, Any]) -> bytes:
    """The variables that an answer hangs on: all but those that only the arguments of the root field use, as `afterSeq` does."""
    used = _Used()
    for node in prepared.document.definitions:
        if isinstance(node, FragmentDefinitionNode):
            visit(node, used)
        elif isinstance(node, OperationDefinitionNode):
            if prepared.root is None:
                return _spelled(variables)
            root = node.selection_set.selections[0]
            if isinstance(root, FieldNode) and root.selection_set is not None:
                visit(root.selection_set, used)
    return _spelled({name: value for name, value in variables.items() if name in used.names})


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
    allowed = await graph.read(query, variables, operation_name, credential, request_id=request_id)
    if isinstance(allowed, list):
        return Outcome(None, allowed)
    if (refused := refused_variables(variables)) is not None:
        return Outcome(None, [refused])
    try:
        async with asyncio.timeout(running.SECONDS):
            found = await _wanted(graph, allowed, variables, credential, request_id)
            if isinstance(found, Outcome):
                return replace(found, charge=allowed.bill.charge)
            viewer_id, wanted = found
            if after is not None:
                wanted = replace(wanted, after=max(after, wanted.after or 0))
            stream = Stream(graph, allowed.prepared, variables, credential or "", viewer_id, request_id, wanted)
            stream.charge = allowed.bill.charge
            try:
                await stream.begin()
            except BaseException:
                stream.close()
                raise
            return stream
    except Exception as error:
        return Outcome(None, [problem_of(known(error, request_id))], charge=allowed.bill.charge)


async def _wanted(
    graph: Graph, allowed: Allowed, variables: dict[str, Any], credential: str | None, request_id: str
) -> tuple[int, Wanted] | Outcome:
    """The viewer's id, and what the root field says to its arguments. The viewer is charged. Raises Unauthenticated, LimitExceeded."""
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
            return viewer.id, result
        return Outcome(None, [of_graphql(error, request_id) for error in result.errors or ()], viewer.id)
