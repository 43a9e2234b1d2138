"""Prometheus metrics: number, duration and concurrency of requests, backlog, caches, version.

Labels are bounded: the route is a template ("GET /projects/:id/issues", never a path), the method one of those that HTTP defines. The
backlog is read from the database on request, at most once a second. Clients that accept OpenMetrics
(https://github.com/prometheus/OpenMetrics) get it. With several server processes each writes to files in the folder of
`PROMETHEUS_MULTIPROC_DIR`, and the process that serves the request sums them up.
"""

import asyncio
import os
import platform
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from forgefront.server.request_metrics import BUCKETS, InProcess, MultiProcess, RequestMetrics
from graph import caches

if TYPE_CHECKING:
    # Loads all tables, which processes that only count requests do not need.
    from graph.jobs.backlog import Backlog

BACKLOG_CACHE_SECONDS = 1.0
"""Seconds for which the backlog is cached, since anybody may request metrics."""
BACKLOG_TIMEOUT_SECONDS = 2.0
OPEN_METRICS_PATTERN = re.compile(
    r"\s*application/openmetrics-text(\s*;\s*(version=[01]\.[0-9]\.[0-9]|charset=utf-8|q=[01](\.[0-9]{0,3})?|escaping=[a-z0-9-]+))*\s*"
)
"""Entries of Accept that are passed to the library: it raises at other versions, and repeats them in its response."""


class BacklogCollector(Collector):
    """The backlog as last read; no samples if it cannot be read now."""

    def __init__(self, read: "Callable[[], Awaitable[Backlog]] | None") -> None:
        self._read = read
        self._cached: Backlog | None = None
        self._read_at = -BACKLOG_CACHE_SECONDS
        self._lock = asyncio.Lock()

    async def refresh(self) -> None:
        async with self._lock:
            if self._read is None or time.monotonic() - self._read_at < BACKLOG_CACHE_SECONDS:
                return
            try:
                self._cached = await asyncio.wait_for(self._read(), BACKLOG_TIMEOUT_SECONDS)
            except Exception as error:
                # The other metrics are all the more important then.
                self._cached = None
                structlog.get_logger().bind(logger="metrics").warning("backlog could not be read", error=type(error).__name__)
            self._read_at = time.monotonic()

    def collect(self) -> Iterator[Metric]:
        if self._cached is not None:
            found = self._cached
            for name, text, value in (
                ("builds_waiting", "Builds that wait for a runner.", found.waiting_builds),
                ("hook_deliveries_waiting", "Pending deliveries to hooks.", found.waiting_deliveries),
                ("hook_deliveries_oldest_seconds", "Age of the oldest pending delivery; 0 without one.", found.oldest_delivery_seconds),
                ("changes_logged", "Changes after which subscriptions can resume; an upper bound.", found.logged_changes),
                ("changes_oldest_seconds", "Age of the oldest of these changes; 0 without one.", found.oldest_change_seconds),
                ("build_changes_logged", "Changes of builds in the log of the columnar copy.", found.logged_build_changes),
            ):
                yield GaugeMetricFamily(f"forgefront_{name}", text, value)
            yield CounterMetricFamily("forgefront_changes_recorded", "Changes recorded since the beginning.", found.newest_change)
            if found.copy is not None:
                builds, seconds, is_rebuilding = found.copy
                yield GaugeMetricFamily("forgefront_analytics_builds", "Builds in the columnar copy that this process has open.", builds)
                yield GaugeMetricFamily(
                    "forgefront_analytics_behind_seconds",
                    "Seconds since the copy was brought up to date.",
                    seconds,
                )
                yield GaugeMetricFamily(
                    "forgefront_analytics_rebuilding", "1 while this process writes the columnar copy, otherwise 0.", int(is_rebuilding)
                )


class Metrics:
    """The metrics of one app. `read_backlog` reads the backlog of its database."""

    def __init__(self, read_backlog: "Callable[[], Awaitable[Backlog]] | None" = None) -> None:
        self._backlog = BacklogCollector(read_backlog)
        # One at a time, since anybody may request metrics.
        self._render_lock = asyncio.Lock()
        self._is_multiprocess = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        self._registry = CollectorRegistry()
        if not self._is_multiprocess:
            ProcessCollector(registry=self._registry)
            PlatformCollector(registry=self._registry)
            GCCollector(registry=self._registry)
            self._registry.register(self._backlog)
        request_metrics: RequestMetrics = MultiProcess(self._registry) if self._is_multiprocess else InProcess(self._registry)
        self.count = request_metrics.count
        self.running_requests, self.running_sockets = request_metrics.running_requests, request_metrics.running_sockets
        self._deliveries = Counter(
            "forgefront_hook_deliveries", "Attempts to deliver an event to a hook.", ("outcome",), registry=self._registry
        )
        self._commands = Counter("forgefront_ssh_commands", "SSH commands by outcome.", ("command", "outcome"), registry=self._registry)
        self._command_seconds = Histogram(
            "forgefront_ssh_command_duration_seconds",
            "Duration of SSH commands.",
            ("command",),
            buckets=(*BUCKETS, 30.0, 60.0, 300.0),
            registry=self._registry,
        )
        self._ssh_connections = Gauge(
            "forgefront_ssh_connections", "Open SSH connections.", registry=self._registry, multiprocess_mode="livesum"
        )
        self._streams = Gauge(
            "forgefront_graphql_streams",
            "Open subscriptions and WebSockets.",
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self._cache_bytes = Gauge(
            "forgefront_cache_bytes",
            "Estimated size of a cache in bytes.",
            ("cache",),
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self._cache_entries = Gauge(
            "forgefront_cache_entries", "Entries in a cache.", ("cache",), registry=self._registry, multiprocess_mode="livesum"
        )
        Gauge(
            "forgefront_build_info",
            "Always 1; its labels are the versions that run.",
            ("version", "python"),
            registry=self._registry,
            multiprocess_mode="max",
        ).labels(version("forgefront"), platform.python_version()).set(1)

    def count_delivery(self, outcome: str) -> None:
        """Adds one attempt: `delivered` or `failed`."""
        self._deliveries.labels(outcome).inc()

    def count_command(self, command: str, outcome: str, seconds: float) -> None:
        """Adds one command over SSH: one of git's, `shell` or `other`; `done`, `refused`, `failed` or `gone`."""
        self._commands.labels(command, outcome).inc()
        self._command_seconds.labels(command).observe(seconds)

    def set_ssh_connections(self, number: int) -> None:
        """Sets the number of open SSH connections."""
        self._ssh_connections.set(number)

    def set_streams(self, number: int) -> None:
        """Sets the number of open subscriptions and WebSockets."""
        self._streams.set(number)

    async def update_cache_gauges(self) -> None:
        """Reads the sizes of the caches of this process."""
        for name, (entries, size) in caches.current_usage().items():
            self._cache_bytes.labels(name).set(size)
            self._cache_entries.labels(name).set(entries)

    def render(self, encode: Callable[[Collector], bytes] = generate_latest) -> bytes:
        """All metrics, in Prometheus' text format or that of another encoder. It may run in a thread, while requests are counted."""
        registry = self._registry
        if self._is_multiprocess:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
            registry.register(self._backlog)
        return encode(registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves `GET /-/metrics`."""
        request = Request(scope)
        if request.method not in ("GET", "HEAD"):
            response: Response = JSONResponse({"message": "405 Method Not Allowed"}, 405, {"Allow": "GET, HEAD"})
        else:
            await self.update_cache_gauges()
            accept = request.headers.get("accept", "")
            encode, content_type = choose_encoder(",".join(entry for entry in accept.split(",") if OPEN_METRICS_PATTERN.fullmatch(entry)))
            await self._backlog.refresh()
            async with self._render_lock:
                # It takes 7 ms for 50 routes, half a second for the maximum number of series, and reads files of all processes.
                body = await asyncio.to_thread(self.render, encode)
            response = Response(body, headers={"Content-Type": content_type, "Cache-Control": "no-store", "Vary": "Accept"})
        await response(scope, receive, send)
