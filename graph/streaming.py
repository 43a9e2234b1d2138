"""Server-Sent Events: the distinct connections mode of GraphQL over SSE (https://github.com/enisdenjo/graphql-sse, PROTOCOL.md).

    event: next        an answer, as JSON in `data`; `id` is the `seq` of the event, to be given back as `afterSeq` or as the header
                       Last-Event-ID
    event: complete    the end, after which nothing is missed; a response that ends without it was interrupted, and the client resumes
    :                  nothing, at the start and each 15 seconds, so that no proxy takes the connection for a dead one; its `id` is the
                       position that the stream has reached, so that a client that has seen no event can resume too

The response header Last-Event-ID has the position at the start, for clients that drop the `id` of what is no event, as npm's graphql-sse.

A stop of the service ends the response without `complete`: graphql-sse takes `complete` for the end of the subscription, and connects
again after anything else.

What goes wrong before a stream begins comes with its HTTP status and as JSON. A page of a browser reads these streams with `fetch`, since
EventSource cannot send the header with the credential.
"""

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.types import Receive, Send

from graph.answers import rate_headers, result_of
from graph.caller import gone
from graph.rules.finding import as_id
from graph.subscribing import Stream

EVENT_STREAM = "text/event-stream"
KEEP_ALIVE_SECONDS = 15.0
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    # nginx would keep the events until its buffer is full.
    (b"x-accel-buffering", b"no"),
]
CLOSING_SECONDS = (0.2, 1.0)
"""How long an interrupted stream stays open after its last event, drawn at random. A client that reads the end of the response while it
still handles an event may take it for the end of the stream (graphql-sse does), and clients that are cut together connect together."""
COMPLETE = b"event: complete\ndata:\n\n"


def last_event(header: str | None) -> int | None:
    """The sequence number in Last-Event-ID, if there is one; 0 before the first change of all."""
    if not header:
        return None
    return 0 if header == "0" else as_id(header)


async def send_once(body: dict[str, Any], headers: Mapping[str, str], send: Send) -> None:
    """The one answer of a query or a mutation."""
    await _begin(send, headers)
    await _write(send, _next(None, orjson.dumps(body)) + COMPLETE, more=False)


async def send_events(stream: Stream, request_id: str, receive: Receive, send: Send) -> None:
    """The events of a subscription, until it ends or the client goes."""
    # One task beside this one, since thousands of streams are open at once.
    leaving = asyncio.create_task(gone(receive))
    leaving.add_done_callback(lambda _: stream.leave())
    try:
        await _begin(send, {**rate_headers(stream.charge), "last-event-id": str(stream.position)})
        await _write(send, _mark(stream.position))
        while not stream.ended:
            told = await stream.next(KEEP_ALIVE_SECONDS)
            if told is not None:
                await _write(send, _next(told.seq, told.json or orjson.dumps(result_of(told.outcome, request_id))))
            elif not stream.ended:
                await _write(send, _mark(stream.position))
        if stream.interrupted:
            # Wait for the disconnect too, so that a client that goes meanwhile is not waited for.
            await asyncio.wait((leaving,), timeout=random.uniform(*CLOSING_SECONDS))  # noqa: S311 - it spreads load
        await _write(send, b"" if stream.interrupted else COMPLETE, more=False)
    finally:
        stream.close()
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)


async def _begin(send: Send, headers: Mapping[str, str]) -> None:
    more = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, *more]})


async def _write(send: Send, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


def _mark(position: int) -> bytes:
    # Without `event` and `data` nothing is dispatched, but the last event id is set (HTML, section 9.2.6).
    return b"id: %d\n:\n\n" % position


def _next(seq: int | None, body: bytes) -> bytes:
    # JSON has no line breaks outside its texts, and there they are escaped.
    mark = b"" if seq is None else b"id: %d\n" % seq
    return b"event: next\n" + mark + b"data: " + body + b"\n\n"
