"""Streams of a subscription, as the doors open them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from graph.execute import Graph
from graph.outcomes import Outcome
from graph.subscribing import Stream, subscribe
from storage import tables
from tests.make import token_of


async def opened(graph: Graph, viewer: tables.User | None, query: str, **variables: Any) -> Stream | Outcome:
    return await subscribe(graph, query, variables, None, token_of(viewer) if viewer else None, request_id="test")


@asynccontextmanager
async def following(graph: Graph, viewer: tables.User, query: str, **variables: Any) -> AsyncIterator[Stream]:
    stream = await opened(graph, viewer, query, **variables)
    assert isinstance(stream, Stream), stream.errors
    yield stream
    stream.close()


async def code(graph: Graph, viewer: tables.User | None, query: str, **variables: Any) -> str:
    """The code with which no stream begins."""
    outcome = await opened(graph, viewer, query, **variables)
    assert isinstance(outcome, Outcome)
    return str(outcome.errors[0].code)


async def told(stream: Stream, seconds: float = 5) -> dict[str, Any]:
    """The next event."""
    found = await stream.next(seconds)
    assert found is not None
    assert found.outcome.errors == []
    assert found.outcome.data is not None
    (event,) = found.outcome.data.values()
    assert event["seq"] == str(found.seq)
    return event  # type: ignore[no-any-return]


async def ends(stream: Stream, seconds: float = 5) -> str | None:
    """The code with which the stream ends."""
    found = await stream.next(seconds)
    assert stream.ended
    return None if found is None else str(found.outcome.errors[0].code)
