"""The copy of one exchange, made while its bytes pass."""

import asyncio
from collections.abc import Iterable, Sequence

from forgefront.shadow.exchanges import READ_METHODS, Exchange, SkipReason
from forgefront.shadow.http_heads import Header, RequestHead, ResponseHead
from forgefront.shadow.proxy.exchange_queue import ExchangeQueue

GIT_PATHS = (b"/git-upload-pack", b"/git-receive-pack", b"/info/refs")
WRITE_METHODS = frozenset(("POST", "PUT", "PATCH", "DELETE"))


class ExchangeCapture:
    """Collects an exchange within the limits of the queue. If no copy can be made, the reason is recorded instead."""

    def __init__(self, queue: ExchangeQueue, head: RequestHead, headers: Sequence[Header], max_body: int, *, replays_writes: bool) -> None:
        self._queue = queue
        self._max_body = max_body
        self._reserved = 0
        self._began = asyncio.get_running_loop().time()
        self._skip_reason: SkipReason | None = _reason_by_request(head, replays_writes)
        self._head = head
        self._headers = headers
        self._response: ResponseHead | None = None
        self.request_body: bytearray | None = None if self._skip_reason else bytearray()
        self.response_body: bytearray | None = None if self._skip_reason else bytearray()

    def skip(self, reason: SkipReason) -> None:
        """Counts the exchange for this reason, unless there is one already, and forgets what was copied."""
        self._skip_reason = self._skip_reason or reason
        self.request_body = self.response_body = None
        self._release()

    def reserve(self, size: int) -> None:
        """Reserves memory for `size` bytes that are copied next; skips the exchange if there is none left."""
        if self._skip_reason is not None:
            return
        if self._reserved + size > self._max_body:
            self.skip(SkipReason.TOO_LARGE)
        elif self._queue.reserve(size):
            self._reserved += size
        else:
            self.skip(SkipReason.QUEUE_FULL)

    def take_response(self, head: ResponseHead) -> None:
        self._response = head
        if any(name.lower() == b"content-type" and value.lower().startswith(b"text/event-stream") for name, value in head.headers):
            self.skip(SkipReason.EVENT_STREAM)
        elif head.length is not None and head.length > self._max_body and self._head.method != b"HEAD":
            self.skip(SkipReason.TOO_LARGE)
        elif head.status == 304:
            self.skip(SkipReason.NOT_MODIFIED)

    def finish(self) -> None:
        """Hands the exchange to the queue."""
        exchange = Exchange(
            self._head.method.decode("latin-1"),
            self._head.target.decode("latin-1"),
            _decoded(self._headers),
            seconds=asyncio.get_running_loop().time() - self._began,
            skip_reason=self._skip_reason,
        )
        if self._response is not None:
            exchange.status = self._response.status
        if self._skip_reason is None:
            exchange.response_headers = _decoded(self._response.headers if self._response else ())
            exchange.request_body = self.request_body or b""
            exchange.response_body = self.response_body or b""
        self._queue.put(exchange)
        self._release()

    def _release(self) -> None:
        self._queue.release(self._reserved)
        self._reserved = 0


def _reason_by_request(head: RequestHead, replays_writes: bool) -> SkipReason | None:
    if head.target.partition(b"?")[0].endswith(GIT_PATHS):
        return SkipReason.GIT
    method = head.method.decode("latin-1")
    if method in READ_METHODS:
        return None
    if method not in WRITE_METHODS:
        return SkipReason.OTHER_METHOD
    return None if replays_writes else SkipReason.WRITE


def _decoded(headers: Iterable[Header]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
