"""Streams of a subscription, over SSE and WebSocket."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from graph.live.subscription_streams import StreamEvent, SubscriptionStream
from graph.live.subscriptions import subscribe
from graph.operations.execution import Graph
from graph.operations.results import OperationResult
from storage import tables
from tests.make import token_of


@asynccontextmanager
async def background_tasks(*tasks: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs background tasks, and cancels them at the end."""
    started = [asyncio.create_task(task) for task in tasks]
    try:
        yield
    finally:
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)


async def open_stream(graph: Graph, viewer: tables.User | None, query: str, **variables: Any) -> SubscriptionStream | OperationResult:
    return await subscribe(graph, query, variables, None, token_of(viewer) if viewer else None, request_id="test")


@asynccontextmanager
async def subscribed(graph: Graph, viewer: tables.User, query: str, **variables: Any) -> AsyncIterator[SubscriptionStream]:
    stream = await open_stream(graph, viewer, query, **variables)
    assert isinstance(stream, SubscriptionStream), stream.errors
    yield stream
    stream.close()


async def rejection_code(graph: Graph, viewer: tables.User | None, query: str, **variables: Any) -> str:
    """The code with which opening a stream fails."""
    outcome = await open_stream(graph, viewer, query, **variables)
    assert isinstance(outcome, OperationResult)
    return str(outcome.errors[0].code)


async def next_event(stream: SubscriptionStream, seconds: float = 5) -> dict[str, Any]:
    """The next event."""
    found = await stream.next(seconds)
    assert found is not None
    assert found.result.errors == []
    assert found.result.data is not None
    (event,) = found.result.data.values()
    assert event["seq"] == str(found.seq)
    return event  # type: ignore[no-any-return]


async def queued_events(stream: SubscriptionStream) -> list[StreamEvent]:
    """The events up to the newest change. A wait that ends has moved the position if it passed over a hidden change."""
    found: list[StreamEvent] = []
    while True:
        before = stream.position
        event = await stream.next(0.02)
        if event is not None:
            found.append(event)
        elif stream.position == before:
            return found


async def end_code(stream: SubscriptionStream, seconds: float = 5) -> str | None:
    """The code with which the stream ends."""
    found = await stream.next(seconds)
    assert stream.is_ended
    return None if found is None else str(found.result.errors[0].code)
