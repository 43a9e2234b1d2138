"""Server-Sent Events: the distinct connections mode of GraphQL over SSE (https://github.com/enisdenjo/graphql-sse, SUBPROTOCOL.md).

    event: next        a result, as JSON in `data`; `id` is the `seq` of the event; the client passes it as `afterSeq` or as the header
                       Last-Event-ID to resume
    event: complete    the end of the stream; a response that ends without it was interrupted, and the client resumes
    :                  a keep-alive comment, at the start and every 15 seconds, so that proxies do not close the connection; its `id` is
                       the position of the stream, so that a client that has received no event can resume too

The response header Last-Event-ID has the initial position, for clients such as npm's graphql-sse that ignore an `id` without an event.

A shutdown of the service ends the response without `complete`: graphql-sse treats `complete` as the end of the subscription, and
reconnects after anything else.

Errors before the start of a stream are sent as JSON with their HTTP status. Web pages read these streams with `fetch`, because EventSource
cannot send the header with the credential.
"""

import asyncio
import random
from collections.abc import Mapping

import orjson
from starlette.types import Receive, Send

from graph.http.requests import GraphqlRequestError
from graph.http.responses import rate_headers, serialize_result
from graph.live.subscription_streams import SubscriptionStream
from graph.live.trace_feeds import MAX_POSITION_DIGITS
from graph.operations.disconnects import wait_disconnected

EVENT_STREAM = "text/event-stream"
KEEP_ALIVE_SECONDS = 15.0
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    # nginx would buffer the events otherwise.
    (b"x-accel-buffering", b"no"),
]
CLOSE_DELAY_SECONDS = (0.2, 1.0)
"""Range of the random time for which an interrupted stream stays open after its last event.

A client that reads the end of the response while it handles an event may treat it as the end of the stream (graphql-sse does). The
randomness spreads the reconnections of clients that are disconnected at the same time.
"""
COMPLETE = b"event: complete\ndata:\n\n"


def parse_last_event_id(header: str | None) -> int | None:
    """Parses the sequence number in Last-Event-ID; None without one; 0 is the position before the first change. Those of traces are larger
    than ids.

    Raises GraphqlRequestError for a value that no event has: a stream that began at the end instead would miss events.
    """
    if not header:
        return None
    if not (header.isascii() and header.isdigit() and len(header) <= MAX_POSITION_DIGITS):
        raise GraphqlRequestError(400, "`Last-Event-ID` must be the `id` of an event you received. Without it, the stream starts now.")
    return int(header)


async def send_response(json: bytes, headers: Mapping[str, str], send: Send) -> None:
    """Sends the single result of a query or a mutation."""
    await _start_response(send, headers)
    await _write(send, _event_bytes(None, json) + COMPLETE, more=False)


async def send_events(stream: SubscriptionStream, request_id: str, receive: Receive, send: Send) -> None:
    """Sends the events of a subscription until it ends or the client disconnects."""
    # Only one additional task per stream, because thousands of streams may be open.
    disconnect_task = asyncio.create_task(wait_disconnected(receive))
    disconnect_task.add_done_callback(lambda _: stream.disconnect())
    try:
        await _start_response(send, {**rate_headers(stream.rate_usage), "last-event-id": str(stream.position)})
        await _write(send, _keep_alive_bytes(stream.position))
        while not stream.is_ended:
            event = await stream.next(KEEP_ALIVE_SECONDS)
            if event is not None:
                await _write(send, _event_bytes(event.seq, event.json or orjson.dumps(serialize_result(event.result, request_id))))
            elif not stream.is_ended:
                await _write(send, _keep_alive_bytes(stream.position))
        if stream.is_interrupted:
            # The wait also ends when the client disconnects.
            await asyncio.wait((disconnect_task,), timeout=random.uniform(*CLOSE_DELAY_SECONDS))  # noqa: S311 - it spreads load
        await _write(send, b"" if stream.is_interrupted else COMPLETE, more=False)
    finally:
        stream.close()
        disconnect_task.cancel()
        await asyncio.gather(disconnect_task, return_exceptions=True)


async def _start_response(send: Send, headers: Mapping[str, str]) -> None:
    extra_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": [*STREAM_HEADERS, *extra_headers]})


async def _write(send: Send, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


def _keep_alive_bytes(position: int) -> bytes:
    # Without `event` and `data` no event is dispatched, but the last event ID is set (HTML, section 9.2.6).
    return b"id: %d\n:\n\n" % position


def _event_bytes(seq: int | None, body: bytes) -> bytes:
    # orjson writes no line breaks outside strings, and escapes them in strings.
    id_line = b"" if seq is None else b"id: %d\n" % seq
    return b"event: next\n" + id_line + b"data: " + body + b"\n\n"
