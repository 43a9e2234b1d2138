"""Prometheus metrics: how many requests, how long they took, how many run now, which version this is.

Labels are bounded: the route is a template ("GET /projects/:id/issues", never a path), the method one of those that HTTP defines.
With several server processes each writes to files in the folder of `PROMETHEUS_MULTIPROC_DIR`, and whichever is asked sums them up.
"""

import os
import platform
from importlib.metadata import version

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from forgefront.tally import BUCKETS, Alone, Shared, Tally
from graph import caches


class Metrics:
    """The metrics of one app."""

    def __init__(self) -> None:
        self._many = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        self._registry = CollectorRegistry()
        if not self._many:
            ProcessCollector(registry=self._registry)
            PlatformCollector(registry=self._registry)
            GCCollector(registry=self._registry)
        tally: Tally = Shared(self._registry) if self._many else Alone(self._registry)
        self.count = tally.count
        self.running, self.running_sockets = tally.running, tally.running_sockets
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

    def tell_connections(self, number: int) -> None:
        """So many connections over SSH are open now."""
        self._ssh_connections.set(number)

    def tell_streams(self, number: int) -> None:
        """So many subscriptions and sockets are open now."""
        self._streams.set(number)

    async def measure_caches(self) -> None:
        """Reads how full the caches of this process are."""
        for name, (entries, size) in caches.usage().items():
            self._cache_bytes.labels(name).set(size)
            self._cache_entries.labels(name).set(entries)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        registry = self._registry
        if self._many:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers `GET /-/metrics`."""
        if Request(scope).method not in ("GET", "HEAD"):
            response: Response = JSONResponse({"message": "405 Method Not Allowed"}, 405, {"Allow": "GET, HEAD"})
        else:
            await self.measure_caches()
            response = Response(self.text(), headers={"Content-Type": CONTENT_TYPE_LATEST, "Cache-Control": "no-store"})
        await response(scope, receive, send)
