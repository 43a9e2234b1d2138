"""The WebSocket door: graphql-transport-ws (https://github.com/enisdenjo/graphql-ws, PROTOCOL.md). The legacy subprotocol is refused.

The credential comes in the payload of connection_init, since browsers cannot send headers with a WebSocket: {"PRIVATE-TOKEN": "…"} or
{"Authorization": "Bearer …"}; those that can may send it as a header. Without one that is good nothing is begun. The payload of
connection_ack has the number of the newest event as `seq`, so that a client that is cut before its first event can resume after it. It
closes with

    4400  a message that is none          4401  an operation before connection_init       4403  no credential that is good (any more)
    4408  no connection_init in time      4409  an id that is in use                      4429  a second connection_init, or more
    1012  the service restarts            1013  too many connections, or unavailable            operations at once than are allowed,
                                                                                                 or more streams of one user
"""

import asyncio
import contextlib
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from graph import limits
from graph.answers import entry_of, result_of
from graph.errors import LimitExceeded, Unavailable
from graph.execute import Graph, authenticate
from graph.live import End, Place
from graph.outcomes import Outcome
from graph.requests import Refused, credential_of, headers_of, json_of, request_of, resolved
from graph.subscribing import Stream, subscribe
from storage.database import is_unavailable

PROTOCOL = "graphql-transport-ws"
INIT_SECONDS = 3.0
OPERATIONS = 50
"""So many may run at once on one socket."""
LONGEST_ID = 256
MAX_HANDSHAKES = 1_000
"""So many sockets may be without connection_init at once; one more ends the time of the oldest, which has had more of it than others."""
CLOSING = {End.STOPPING: (1012, "Service Restart"), End.UNAVAILABLE: (1013, "Try again later"), End.NO_VIEWER: (4403, "Forbidden")}


class Closed(Exception):
    """The socket is to be closed with this code, or, without one, is closed already."""

    def __init__(self, code: int | None = None, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


async def serve(graph: Graph, scope: Scope, receive: Receive, send: Send) -> None:
    """One socket, from its handshake to its end."""
    state = scope.setdefault("state", {})
    state["route"] = "/graphql"
    if PROTOCOL not in scope.get("subprotocols", ()):
        # Before it is accepted, so the server answers the handshake with 403.
        await send({"type": "websocket.close", "code": 4406})
        return
    await _Socket(graph, scope, receive, send).run()


class _Socket:
    def __init__(self, graph: Graph, scope: Scope, receive: Receive, send: Send) -> None:
        self._graph = graph
        self._receive = receive
        self._send = send
        self._state: dict[str, Any] = scope["state"]
        self._headers = headers_of(scope)
        self._request_id = str(self._state.get("request_id", ""))
        self._credential: str | None = None
        self._operations: dict[str, asyncio.Task[None]] = {}
        self._place: Place | None = None
        self._ended: asyncio.Future[End] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        if (await self._receive())["type"] != "websocket.connect":
            return
        await self._send({"type": "websocket.accept", "subprotocol": PROTOCOL})
        reading: asyncio.Task[None] | None = None
        try:
            await self._begin()
            reading = asyncio.create_task(self._read())
            await asyncio.wait((reading, self._ended), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise Closed(*CLOSING.get(self._ended.result(), (1011, "")))
            await reading
        except Closed as closed:
            if closed.code is not None:
                await self._close(closed)
        finally:
            if self._place is not None:
                self._graph.services.live.leave(self._place)
            tasks = [*self._operations.values(), *([reading] if reading is not None else ())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _begin(self) -> None:
        handshakes = self._graph.services.live.handshakes
        limit = asyncio.timeout(INIT_SECONDS)
        try:
            async with limit:
                handshakes[limit] = None
                if len(handshakes) > MAX_HANDSHAKES:
                    oldest = next(iter(handshakes))
                    del handshakes[oldest]
                    if not oldest.expired():
                        oldest.reschedule(asyncio.get_running_loop().time())
                message = await self._message()
                while message["type"] in ("ping", "pong"):
                    await self._answer_ping(message)
                    message = await self._message()
        except TimeoutError:
            raise Closed(4408, "Connection initialisation timeout") from None
        finally:
            handshakes.pop(limit, None)
        if message["type"] != "connection_init":
            raise Closed(4401, "Unauthorized")
        payload = message.get("payload")
        if payload is not None and not isinstance(payload, dict):
            raise Closed(4400, "The payload of connection_init is no object")
        given = {name.lower(): value for name, value in (payload or {}).items() if isinstance(value, str)}
        self._credential = credential_of(given) or credential_of(self._headers)
        services = self._graph.services
        try:
            async with services.database.reading() as session:
                viewer = await authenticate(session, self._credential)
            if viewer is not None:
                await services.live.settle(services.database)
        except Exception as error:
            if not isinstance(error, Unavailable) and not is_unavailable(error):
                raise
            raise Closed(1013, "Try again later") from error
        if viewer is None or self._credential is None:
            raise Closed(4403, "Forbidden")
        self._state["user_id"] = viewer.id
        try:
            self._place = services.live.take(self._credential, viewer.id, self._end)
        except Unavailable as error:
            raise Closed(1013, "Too many connections") from error
        except LimitExceeded as error:
            # Clients retry after 1013; this lasts until the same user closes something.
            raise Closed(4429, error.message.partition(". ")[0]) from error
        await self._write({"type": "connection_ack", "payload": {"seq": str(services.live.upto)}})

    async def _read(self) -> None:
        while True:
            message = await self._message()
            kind = message["type"]
            if kind in ("ping", "pong"):
                await self._answer_ping(message)
            elif kind == "connection_init":
                raise Closed(4429, "Too many initialisation requests")
            elif kind == "subscribe":
                self._subscribe(message)
            elif kind == "complete":
                task = self._operations.pop(_id_of(message), None)
                if task is not None:
                    task.cancel()
            else:
                raise Closed(4400, "Unknown type of message")

    def _subscribe(self, message: dict[str, Any]) -> None:
        key = _id_of(message)
        if key in self._operations:
            raise Closed(4409, f"Subscriber for {key[:64]} already exists")
        if len(self._operations) >= OPERATIONS:
            raise Closed(4429, "Too many operations")
        task = asyncio.create_task(self._run(key, message.get("payload")))
        self._operations[key] = task
        task.add_done_callback(lambda done: self._done(key, done))

    def _done(self, key: str, task: "asyncio.Task[None]") -> None:
        if self._operations.get(key) is task:
            del self._operations[key]
        if not task.cancelled():
            task.exception()

    async def _run(self, key: str, payload: Any) -> None:
        try:
            request = resolved(self._graph, request_of(payload))
        except Refused as refused:
            extensions = {"code": refused.code.value, "requestId": self._request_id}
            await self._write({"type": "error", "id": key, "payload": [{"message": refused.message, "extensions": extensions}]})
            return
        query, variables, name = request.query, request.variables, request.operation_name
        outcome: Outcome | Stream
        kind = await self._graph.kind_of(query, name, self._credential, request_id=self._request_id)
        if kind == "subscription":
            outcome = await subscribe(self._graph, query, variables, name, self._credential, request_id=self._request_id)
        else:
            outcome = await self._graph.run_text(query, variables, name, self._credential, request_id=self._request_id)
        if isinstance(outcome, Stream):
            try:
                await self._tell(key, outcome)
            finally:
                outcome.close()
            return
        if outcome.data is None and outcome.errors:
            await self._write_error(key, outcome)
            return
        await self._write({"type": "next", "id": key, "payload": result_of(outcome, self._request_id)})
        await self._write({"type": "complete", "id": key})

    async def _tell(self, key: str, stream: Stream) -> None:
        while True:
            told = await stream.next()
            if told is None:
                # Clients connect and subscribe again when the socket closes, and take `complete` for the end.
                if stream.interrupted:
                    self._end(End.UNAVAILABLE)
                else:
                    await self._write({"type": "complete", "id": key})
                return
            if told.seq is None:
                await self._write_error(key, told.outcome)
                return
            json = told.json or orjson.dumps(result_of(told.outcome, self._request_id))
            text = b'{"type":"next","id":%b,"payload":%b}' % (orjson.dumps(key), json)
            await self._send({"type": "websocket.send", "text": text.decode()})

    async def _write_error(self, key: str, outcome: Outcome) -> None:
        await self._write({"type": "error", "id": key, "payload": [entry_of(problem, self._request_id) for problem in outcome.errors]})

    async def _answer_ping(self, message: dict[str, Any]) -> None:
        if message["type"] == "ping":
            await self._write({"type": "pong"})

    async def _message(self) -> dict[str, Any]:
        received = await self._receive()
        if received["type"] != "websocket.receive":
            raise Closed
        text = received.get("text")
        if text is None or len(text) > limits.BODY_BYTES:
            raise Closed(4400, "Messages are JSON as text, of a mebibyte at most")
        try:
            message = json_of(text.encode(), "The message")
        except (Refused, UnicodeEncodeError):
            raise Closed(4400, "The message is not JSON") from None
        if not isinstance(message, dict) or not isinstance(message.get("type"), str):
            raise Closed(4400, "The message has no type")
        return message

    def _end(self, why: End) -> None:
        if not self._ended.done():
            self._ended.set_result(why)

    async def _write(self, message: dict[str, Any]) -> None:
        await self._send({"type": "websocket.send", "text": orjson.dumps(message).decode()})

    async def _close(self, closed: Closed) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            await self._send({"type": "websocket.close", "code": closed.code, "reason": closed.reason})


def _id_of(message: dict[str, Any]) -> str:
    key = message.get("id")
    if not isinstance(key, str) or not 0 < len(key) <= LONGEST_ID:
        raise Closed(4400, "The message has no id")
    return key
