"""Prometheus metrics: how many requests, how long they took, how many run now, which version this is.

Labels are bounded: the route is a template ("GET /projects/:id/issues", never a path), the method one of those that HTTP defines.
What waits in the database is read when it is asked for, at most once a second. Who accepts OpenMetrics
(https://github.com/prometheus/OpenMetrics) gets that.
With several server processes each writes to files in the folder of `PROMETHEUS_MULTIPROC_DIR`, and whichever is asked sums them up.
"""

import asyncio
import os
import platform
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from importlib.metadata import version

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
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from forgefront.server.request_metrics import BUCKETS, InProcess, MultiProcess, RequestMetrics
from graph import caches
from graph.jobs.backlog import Backlog

BACKLOG_CACHE_SECONDS = 1.0
"""So long the backlog is not read again: anybody may ask for metrics."""
BACKLOG_TIMEOUT_SECONDS = 2.0
OPEN_METRICS_PATTERN = re.compile(
    r"\s*application/openmetrics-text(\s*;\s*(version=[01]\.[0-9]\.[0-9]|charset=utf-8|q=[01](\.[0-9]{0,3})?|escaping=[a-z0-9-]+))*\s*"
)
"""An entry of Accept that the library may read: it raises at other versions, and repeats them in its answer."""


class BacklogCollector(Collector):
    """The backlog as it was read last; nothing where it cannot be read now."""

    def __init__(self, read: Callable[[], Awaitable[Backlog]] | None) -> None:
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
                # The other metrics are wanted all the more.
                self._cached = None
                structlog.get_logger().bind(logger="metrics").warning("cannot read the backlog", error=type(error).__name__)
            self._read_at = time.monotonic()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        if self._cached is not None:
            builds, deliveries, seconds = self._cached
            yield GaugeMetricFamily("forgefront_builds_waiting", "Builds that wait for a runner.", builds)
            yield GaugeMetricFamily("forgefront_hook_deliveries_waiting", "Deliveries to hooks that are still to be made.", deliveries)
            yield GaugeMetricFamily("forgefront_hook_deliveries_oldest_seconds", "Age of the oldest of them; 0 without one.", seconds)


class Metrics:
    """The metrics of one app. `read_backlog` says what waits in its database."""

    def __init__(self, read_backlog: Callable[[], Awaitable[Backlog]] | None = None) -> None:
        self._backlog = BacklogCollector(read_backlog)
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
        self._commands = Counter(
            "forgefront_ssh_commands", "Commands over SSH, and how they ended.", ("command", "outcome"), registry=self._registry
        )
        self._command_seconds = Histogram(
            "forgefront_ssh_command_duration_seconds",
            "Time from a command's start to its end.",
            ("command",),
            buckets=(*BUCKETS, 30.0, 60.0, 300.0),
            registry=self._registry,
        )
        self._ssh_connections = Gauge(
            "forgefront_ssh_connections", "Connections over SSH that are open now.", registry=self._registry, multiprocess_mode="livesum"
        )
        self._streams = Gauge(
            "forgefront_graphql_streams",
            "Subscriptions and sockets that are open now.",
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self._cache_bytes = Gauge(
            "forgefront_cache_bytes",
            "Estimated bytes that a cache holds.",
            ("cache",),
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self._cache_entries = Gauge(
            "forgefront_cache_entries", "Entries of a cache.", ("cache",), registry=self._registry, multiprocess_mode="livesum"
        )
        Gauge(
            "forgefront_build_info",
            "Always 1; its labels say what runs.",
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
        """So many connections over SSH are open now."""
        self._ssh_connections.set(number)

    def set_streams(self, number: int) -> None:
        """So many subscriptions and sockets are open now."""
        self._streams.set(number)

    async def update_cache_gauges(self) -> None:
        """Reads how full the caches of this process are."""
        for name, (entries, size) in caches.current_usage().items():
            self._cache_bytes.labels(name).set(size)
            self._cache_entries.labels(name).set(entries)

    def render(self, encode: Callable[[Collector], bytes] = generate_latest) -> bytes:
        """All metrics, in Prometheus' text format or that of another encoder."""
        registry = self._registry
        if self._is_multiprocess:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
            registry.register(self._backlog)
        return encode(registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers `GET /-/metrics`."""
        request = Request(scope)
        if request.method not in ("GET", "HEAD"):
            response: Response = JSONResponse({"message": "405 Method Not Allowed"}, 405, {"Allow": "GET, HEAD"})
        else:
            await self.update_cache_gauges()
            accept = request.headers.get("accept", "")
            encode, content_type = choose_encoder(",".join(entry for entry in accept.split(",") if OPEN_METRICS_PATTERN.fullmatch(entry)))
            await self._backlog.refresh()
            response = Response(self.render(encode), headers={"Content-Type": content_type, "Cache-Control": "no-store", "Vary": "Accept"})
        await response(scope, receive, send)
