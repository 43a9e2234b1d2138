"""GraphQL over WebSocket: graphql-transport-ws (https://github.com/enisdenjo/graphql-ws, SUBPROTOCOL.md), not the legacy subprotocol.

The credential is sent in the payload of connection_init, because browsers cannot send headers with a WebSocket: {"PRIVATE-TOKEN": "…"} or
{"Authorization": "Bearer …"}; other clients may send it as a header. A valid credential is required. The payload of connection_ack has the
number of the newest event as `seq`, so that a client that is disconnected before its first event can resume after it. Close codes:

    4400  invalid message                 4401  an operation before connection_init       4403  invalid or revoked credential
    4408  no connection_init in time      4409  an operation id that is in use            4429  a second connection_init, too many
    1011  an error of the service         1013  too many connections, or unavailable            concurrent operations, or too many
    1012  the service restarts                                                                   streams of one user
"""

import asyncio
import contextlib
from typing import Any

import orjson
import structlog
from starlette.types import Receive, Scope, Send

from graph.errors import LimitExceeded, Unavailable
from graph.http.json_pieces import dump_json
from graph.http.requests import GraphqlRequestError, credential_of, headers_of, parse_json, parse_request, resolve_document
from graph.http.responses import serialize_error, serialize_result
from graph.live.broadcaster import StreamEnd, StreamSlot
from graph.live.subscription_streams import SubscriptionStream
from graph.live.subscriptions import subscribe
from graph.operations import limits
from graph.operations.callers import authenticate
from graph.operations.execution import Graph
from graph.operations.results import OperationResult
from storage.database.errors import is_unavailable

SUBPROTOCOL = "graphql-transport-ws"
INIT_TIMEOUT_SECONDS = 3.0
MAX_OPERATIONS = 50
"""Maximum of concurrent operations on one socket."""
MAX_ID_LENGTH = 256
MAX_HANDSHAKES = 1_000
"""Maximum of sockets without connection_init; a further one makes the oldest time out."""
CLOSE_CODES = {
    StreamEnd.SHUTDOWN: (1012, "Service Restart"),
    StreamEnd.UNAVAILABLE: (1013, "Try again later"),
    StreamEnd.UNAUTHENTICATED: (4403, "Forbidden"),
    StreamEnd.FAILED: (1011, "Internal error"),
}

log = structlog.get_logger("graph")


class SocketClosed(Exception):
    """Closes the socket with this code; without a code it is already closed."""

    def __init__(self, code: int | None = None, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


async def serve_websocket(graph: Graph, scope: Scope, receive: Receive, send: Send) -> None:
    """Serves one socket from its handshake to its end."""
    if SUBPROTOCOL not in scope.get("subprotocols", ()):
        # Closed before it is accepted, so the server rejects the handshake with 403.
        await send({"type": "websocket.close", "code": 4406})
        return
    await _WebSocketConnection(graph, scope, receive, send).run()


class _WebSocketConnection:
    def __init__(self, graph: Graph, scope: Scope, receive: Receive, send: Send) -> None:
        self._graph = graph
        self._receive = receive
        self._send_message = send
        self._state: dict[str, Any] = scope.setdefault("state", {})
        self._headers = headers_of(scope)
        self._request_id = str(self._state.get("request_id", ""))
        self._credential: str | None = None
        self._operations: dict[str, asyncio.Task[None]] = {}
        self._slot: StreamSlot | None = None
        self._ended: asyncio.Future[StreamEnd] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        if (await self._receive())["type"] != "websocket.connect":
            return
        reader_task: asyncio.Task[None] | None = None
        try:
            await self._send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL})
            await self._handshake()
            reader_task = asyncio.create_task(self._receive_messages())
            await asyncio.wait((reader_task, self._ended), return_when=asyncio.FIRST_COMPLETED)
            if not reader_task.done():
                raise SocketClosed(*CLOSE_CODES[self._ended.result()])
            await reader_task
        except SocketClosed as closed:
            if closed.code is not None:
                await self._close(closed)
        finally:
            if self._slot is not None:
                self._graph.services.broadcaster.release_slot(self._slot)
            tasks = [*self._operations.values(), *([reader_task] if reader_task is not None else ())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _handshake(self) -> None:
        """Answers `connection_init`, if its credential is valid. Raises SocketClosed."""
        message = await self._receive_init()
        payload = message.get("payload")
        if payload is not None and not isinstance(payload, dict):
            raise SocketClosed(4400, "The payload of connection_init is not an object")
        header_values = {name.lower(): value for name, value in (payload or {}).items() if isinstance(value, str)}
        credential = credential_of(header_values) or credential_of(self._headers)
        viewer_id = await self._authenticate(credential)
        if viewer_id is None or credential is None:
            raise SocketClosed(4403, "Forbidden")
        self._credential, self._state["user_id"] = credential, viewer_id
        broadcaster = self._graph.services.broadcaster
        try:
            self._slot = broadcaster.acquire_slot(credential, viewer_id, self._end)
        except Unavailable as error:
            raise SocketClosed(1013, "Too many connections") from error
        except LimitExceeded as error:
            # Not 1013, after which clients retry: this lasts until the user closes another stream.
            raise SocketClosed(4429, error.message.partition(". ")[0]) from error
        await self._write({"type": "connection_ack", "payload": {"seq": str(broadcaster.watermark)}})

    async def _receive_init(self) -> dict[str, Any]:
        """The message that begins the connection. Raises SocketClosed for another one, and if it does not come in time."""
        handshakes = self._graph.services.broadcaster.handshakes
        timeout = asyncio.timeout(INIT_TIMEOUT_SECONDS)
        try:
            async with timeout:
                handshakes[timeout] = None
                if len(handshakes) > MAX_HANDSHAKES:
                    oldest = next(iter(handshakes))
                    del handshakes[oldest]
                    if not oldest.expired():
                        oldest.reschedule(asyncio.get_running_loop().time())
                message = await self._receive_message()
                while message["type"] in ("ping", "pong"):
                    await self._answer_ping(message)
                    message = await self._receive_message()
        except TimeoutError:
            raise SocketClosed(4408, "Connection initialisation timeout") from None
        finally:
            handshakes.pop(timeout, None)
        if message["type"] != "connection_init":
            raise SocketClosed(4401, "Unauthorized")
        return message

    async def _authenticate(self, credential: str | None) -> int | None:
        """The id of the credential's user; None for an invalid one. Raises SocketClosed while the database cannot be reached."""
        services = self._graph.services
        try:
            async with services.database.read_session() as session:
                identity = await authenticate(services, session, credential)
            if identity is None:
                return None
            await services.broadcaster.catch_up(services.database)
        except Exception as error:
            if not isinstance(error, Unavailable) and not is_unavailable(error):
                raise
            raise SocketClosed(1013, "Try again later") from error
        return identity.user.id

    async def _receive_messages(self) -> None:
        while True:
            message = await self._receive_message()
            kind = message["type"]
            if kind in ("ping", "pong"):
                await self._answer_ping(message)
            elif kind == "connection_init":
                raise SocketClosed(4429, "Too many initialisation requests")
            elif kind == "subscribe":
                self._start_operation(message)
            elif kind == "complete":
                task = self._operations.pop(_id_of(message), None)
                if task is not None:
                    task.cancel()
            else:
                raise SocketClosed(4400, "Unknown type of message")

    def _start_operation(self, message: dict[str, Any]) -> None:
        key = _id_of(message)
        if key in self._operations:
            raise SocketClosed(4409, f"Subscriber for {key[:64]} already exists")
        if len(self._operations) >= MAX_OPERATIONS:
            raise SocketClosed(4429, "Too many operations")
        task = asyncio.create_task(self._run_operation(key, message.get("payload")))
        self._operations[key] = task
        task.add_done_callback(lambda done: self._on_operation_done(key, done))

    def _on_operation_done(self, key: str, task: "asyncio.Task[None]") -> None:
        if self._operations.get(key) is task:
            del self._operations[key]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, SocketClosed):
            # The client would wait for the end of the operation.
            log.error("operation failed", request_id=self._request_id, exc_info=error)
            self._end(StreamEnd.FAILED)

    async def _run_operation(self, key: str, payload: Any) -> None:
        try:
            request = resolve_document(self._graph, parse_request(payload))
        except GraphqlRequestError as error:
            extensions = {"code": error.code.value, "requestId": self._request_id}
            await self._write({"type": "error", "id": key, "payload": [{"message": error.message, "extensions": extensions}]})
            return
        query, variables, name = request.query, request.variables, request.operation_name
        result: OperationResult | SubscriptionStream
        kind = await self._graph.kind_of(query, name, self._credential, request_id=self._request_id)
        if kind == "subscription":
            result = await subscribe(self._graph, query, variables, name, self._credential, request_id=self._request_id)
        else:
            result = await self._graph.run_document(query, variables, name, self._credential, request_id=self._request_id)
        if isinstance(result, SubscriptionStream):
            try:
                await self._send_events(key, result)
            finally:
                result.close()
            return
        if result.data is None and result.errors:
            await self._write_error(key, result)
            return
        json = await dump_json(serialize_result(result, self._request_id), is_large=result.is_large)
        await self._send({"type": "websocket.send", "text": _next_message(key, json)})
        await self._write({"type": "complete", "id": key})

    async def _send_events(self, key: str, stream: SubscriptionStream) -> None:
        while True:
            event = await stream.next()
            if event is None:
                # Clients reconnect and resubscribe when the socket closes, but treat `complete` as the end.
                if stream.is_interrupted:
                    self._end(StreamEnd.UNAVAILABLE)
                else:
                    await self._write({"type": "complete", "id": key})
                return
            if event.seq is None:
                await self._write_error(key, event.result)
                return
            json = event.json or orjson.dumps(serialize_result(event.result, self._request_id))
            await self._send({"type": "websocket.send", "text": _next_message(key, json)})

    async def _write_error(self, key: str, result: OperationResult) -> None:
        await self._write(
            {"type": "error", "id": key, "payload": [serialize_error(problem, self._request_id) for problem in result.errors]}
        )

    async def _answer_ping(self, message: dict[str, Any]) -> None:
        if message["type"] == "ping":
            await self._write({"type": "pong"})

    async def _receive_message(self) -> dict[str, Any]:
        received = await self._receive()
        if received["type"] != "websocket.receive":
            raise SocketClosed
        data = received.get("text")
        if data is None or len(data) > limits.MAX_BODY_BYTES:
            raise SocketClosed(4400, "Messages must be JSON in text frames of at most 1 MiB")
        try:
            message = parse_json(data.encode(), "The message")
        except (GraphqlRequestError, UnicodeEncodeError):
            raise SocketClosed(4400, "The message is not JSON") from None
        if not isinstance(message, dict) or not isinstance(message.get("type"), str):
            raise SocketClosed(4400, "The message has no type")
        return message

    def _end(self, reason: StreamEnd) -> None:
        if not self._ended.done():
            self._ended.set_result(reason)

    async def _send(self, message: dict[str, Any]) -> None:
        """Raises SocketClosed if the client has disconnected, of which servers notify by OSError (ASGI, WebSocket send events)."""
        try:
            await self._send_message(message)
        except OSError as error:
            raise SocketClosed from error

    async def _write(self, message: dict[str, Any]) -> None:
        await self._send({"type": "websocket.send", "text": orjson.dumps(message).decode()})

    async def _close(self, closed: SocketClosed) -> None:
        with contextlib.suppress(SocketClosed, RuntimeError):
            await self._send({"type": "websocket.close", "code": closed.code, "reason": closed.reason})


def _next_message(key: str, json: bytes) -> str:
    return (b'{"type":"next","id":%b,"payload":%b}' % (orjson.dumps(key), json)).decode()


def _id_of(message: dict[str, Any]) -> str:
    key = message.get("id")
    if not isinstance(key, str) or not 0 < len(key) <= MAX_ID_LENGTH:
        raise SocketClosed(4400, "The message has no id")
    return key
