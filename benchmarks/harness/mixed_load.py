"""A load of reads and writes on the same connections, of which the reads are timed: wrk times all requests alike."""

import asyncio
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle

from benchmarks.harness.load import BadAnswersError, LoadRequest, LoadResult, NoAnswersError, interleave, wait_until_idle
from benchmarks.harness.percentiles import summarize
from benchmarks.harness.servers import MeasuredServer

HEADERS_END = b"\r\n\r\n"
CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
SUCCESS = b"HTTP/1.1 2"
"""How a response with a status of 2xx begins."""


@dataclass
class _MixedRun:
    """What the connections share."""

    requests: Iterator[tuple[bytes, bool]]
    """The bytes of a request, and whether it is a read."""
    end: float
    answered: int = 0
    read_seconds: list[float] = field(default_factory=list)
    bad_answer: bytes | None = None


class _Connection(asyncio.Protocol):
    """Sends a request, waits for its response, and sends the next one, until the time is over."""

    def __init__(self, run: _MixedRun) -> None:
        self._run = run
        self._received = bytearray()
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def _send(self) -> None:
        request, self._is_read = next(self._run.requests)
        self._began = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        headers_end = self._received.find(HEADERS_END)
        if headers_end < 0:
            return
        length = CONTENT_LENGTH.search(self._received, 0, headers_end)
        if length is not None and len(self._received) < headers_end + len(HEADERS_END) + int(length[1]):
            return
        now, run = time.perf_counter(), self._run
        if length is None or not self._received.startswith(SUCCESS):
            run.bad_answer = bytes(self._received[:500])
            run.end = now
        self._received.clear()
        if now >= run.end:
            self._transport.close()
            return
        run.answered += 1
        if self._is_read:
            run.read_seconds.append(now - self._began)
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            self._run.bad_answer = repr(error).encode()
        self.closed.set_result(None)


def run_mixed_load(server: MeasuredServer, requests: Sequence[LoadRequest], reads: int, seconds: float, connections: int) -> LoadResult:
    """One request of each question is sent in turn; the first `reads` questions are reads, whose times are those of the result.

    Raises BadAnswersError.
    """
    before = server.cpu_seconds()
    run = asyncio.run(_run(server.port, requests, reads, seconds, connections))
    used = wait_until_idle(server) - before
    if run.bad_answer is not None:
        raise BadAnswersError(f"{server.name}: {run.bad_answer!r}")
    if not run.read_seconds:
        raise NoAnswersError(f"{server.name}: no read was answered in {seconds:g} s; use more `--seconds`")
    # At the end, each connection waits for one more answer, which the server also works on.
    began = run.answered + connections
    return LoadResult(run.answered / seconds, used * 1000 / began, began, **summarize(run.read_seconds))


async def _run(port: int, requests: Sequence[LoadRequest], reads: int, seconds: float, connections: int) -> _MixedRun:
    timed = {id(each) for each in requests[:reads]}
    sent = [(_render(each, path, body, port), id(each) in timed) for each, path, body in interleave(requests)]
    run = _MixedRun(cycle(sent), time.perf_counter() + seconds)
    loop = asyncio.get_running_loop()
    opened = await asyncio.gather(*(loop.create_connection(lambda: _Connection(run), "127.0.0.1", port) for _ in range(connections)))
    await asyncio.gather(*(protocol.closed for _, protocol in opened))
    return run


def _render(request: LoadRequest, path: str, body: str | None, port: int) -> bytes:
    content = b"" if body is None else body.encode()
    headers = {"Host": f"127.0.0.1:{port}", **request.headers, **({"Content-Length": str(len(content))} if body is not None else {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{request.method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + content
