"""Sends the trace of a build while it runs, about once a second, and reports a build without output every few seconds.

The responses report when a build is no longer assigned to the runner.
"""

import asyncio
import time
from collections.abc import Callable

import structlog

from forgefront.runner.forge_client import BuildRevoked, ClaimedBuild, ForgeClient, RequestRejected, ServiceUnreachable
from forgefront.runner.trace_buffer import TraceBuffer

SEND_INTERVAL_SECONDS = 1.0
"""Minimum seconds between two calls with output that fills no call; the first output after a pause is sent at once."""
COLLECT_SECONDS = 0.05
"""Seconds for which the first output waits for more, since programs print lines in several writes."""
HEARTBEAT_SECONDS = 5.0
"""Interval of reports for a build without output; a cancellation is detected within this time."""

StopReason = BuildRevoked | ServiceUnreachable


class TraceSender:
    """Sends one trace. `retry_seconds` is how long a call is retried; `on_stop` is called with the reason why the build must end."""

    def __init__(
        self,
        service: ForgeClient,
        job: ClaimedBuild,
        trace: TraceBuffer,
        *,
        retry_seconds: float,
        on_stop: Callable[[StopReason], None],
    ) -> None:
        self._service = service
        self._job = job
        self._trace = trace
        self._retry_seconds = retry_seconds
        self._on_stop = on_stop
        self._log = structlog.get_logger("runner").bind(build=job.build_id, job=job.name)
        self._done = asyncio.Event()

    def finish(self) -> None:
        """Lets `run` end when everything is sent. The trace gets no more output."""
        self._done.set()

    async def run(self) -> None:
        """Sends the trace, and reports a build without output, until all of it is sent."""
        sent_at = time.monotonic()
        heartbeat_seconds = min(HEARTBEAT_SECONDS, self._job.lease_seconds / 4)
        try:
            while True:
                text = self._trace.next_chunk()
                if text:
                    await self._service.append_trace(self._job, text, self._trace.offset, retry_seconds=self._retry_seconds)
                    self._trace.mark_sent(text)
                    sent_at = time.monotonic()
                elif self._done.is_set():
                    return
                elif time.monotonic() - sent_at >= heartbeat_seconds:
                    await self._service.report_status(self._job, "RUNNING", retry_seconds=self._retry_seconds)
                    sent_at = time.monotonic()
                else:
                    # Output that may begin a secret is buffered until more output follows.
                    self._trace.has_data.clear()
                if not self._trace.is_full:
                    await self._wait_for_output(sent_at, heartbeat_seconds)
        except (BuildRevoked, ServiceUnreachable) as why:
            self._on_stop(why)
        except RequestRejected as error:
            self._log.error("trace was rejected", why=str(error))
            self._on_stop(ServiceUnreachable(str(error)))
        except Exception as error:
            # A build that reports nothing is assigned to another runner.
            self._log.error("trace could not be sent", exc_info=error)
            self._on_stop(ServiceUnreachable(f"{type(error).__name__}: {error}"))

    async def _wait_for_output(self, sent_at: float, heartbeat_seconds: float) -> None:
        """Waits until there is output and SEND_INTERVAL_SECONDS have passed since the last call, for a heartbeat, or for the end."""
        done, output = asyncio.create_task(self._done.wait()), asyncio.create_task(self._trace.has_data.wait())
        try:
            await asyncio.wait([done], timeout=max(COLLECT_SECONDS, sent_at + SEND_INTERVAL_SECONDS - time.monotonic()))
            if not done.done():
                seconds = max(0.0, sent_at + heartbeat_seconds - time.monotonic())
                await asyncio.wait([done, output], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if output.done() and not done.done():
                await asyncio.wait([done], timeout=COLLECT_SECONDS)
        finally:
            for task in (done, output):
                task.cancel()
            await asyncio.gather(done, output, return_exceptions=True)
