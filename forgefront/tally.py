"""How many requests were answered, how long they took, and how many run now.

One process alone counts in plain numbers: Prometheus' own objects, which lock and check, cost ten times as much for each request.
Several processes count in those objects, which keep them in files that whichever is asked sums up.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from time import time
from typing import Any, Generic, Protocol, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from graph.caches import CacheBounds, CacheUsage, measure

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MOST_SERIES = 3000
"""So many combinations of labels are kept; a door that names routes without end then only adds to `other`."""

REQUESTS = ("forgefront_http_requests", "Requests answered.", ("method", "route", "status"))
SECONDS = ("forgefront_http_request_duration_seconds", "Time from a request's header to the end of its answer.", ("method", "route"))
RUNNING = ("forgefront_http_requests_in_flight", "Requests and streams that run now.", ("kind",))

SERIES_BYTES = 3_000
SERIES = CacheBounds(
    "request metrics", max_entries=MOST_SERIES + len(METHODS) * 600, max_bytes=(MOST_SERIES + len(METHODS) * 600) * SERIES_BYTES
)

S = TypeVar("S")


class Number(Protocol):
    """One that goes up and down."""

    def inc(self) -> None: ...
    def dec(self) -> None: ...


class Tally(Protocol):
    @property
    def running(self) -> Number: ...
    @property
    def running_sockets(self) -> Number: ...

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Adds one request. `route` is a template, not a path."""
        ...


class Bounded(Generic[S]):
    """What is counted by method, route and status: a bounded number of them, whatever is asked."""

    def __init__(self, make: Callable[[str, str, int], S]) -> None:
        self.kept: dict[tuple[str, str, int], S] = {}
        self._make = make
        measure(SERIES, self, lambda bounded: CacheUsage(len(bounded.kept), len(bounded.kept) * SERIES_BYTES))

    def of(self, method: str, route: str, status: int) -> S:
        found = self.kept.get((method, route, status))
        if found is not None:
            return found
        if method not in METHODS:
            method = "OTHER"
        if len(self.kept) >= MOST_SERIES:
            route = "other"
        key = (method, route, status)
        if key not in self.kept:
            self.kept[key] = self._make(*key)
        return self.kept[key]


class Shared:
    """The tally of one of several processes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        requests, seconds = Counter(*REQUESTS, registry=registry), Histogram(*SECONDS, buckets=BUCKETS, registry=registry)
        running = Gauge(*RUNNING, registry=registry, multiprocess_mode="livesum")
        self.running, self.running_sockets = running.labels("http"), running.labels("websocket")
        self._series: Bounded[tuple[Any, Any]] = Bounded(
            lambda method, route, status: (requests.labels(method, route, str(status)), seconds.labels(method, route))
        )

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        number, times = self._series.of(method, route, status)
        number.inc()
        times.observe(seconds)


@dataclass(slots=True)
class _Running:
    number: int = 0

    def inc(self) -> None:
        self.number += 1

    def dec(self) -> None:
        self.number -= 1


@dataclass(slots=True)
class _Series:
    """`buckets` are how many took at most as long as a bound and longer than the one before it; the last those beyond all."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    seconds: float = 0.0
    since: float = field(default_factory=time)

    def and_(self, other: "_Series") -> "_Series":
        summed = [one + two for one, two in zip(self.buckets, other.buckets, strict=True)]
        return _Series(summed, self.seconds + other.seconds, min(self.since, other.since))


class Alone(Collector):
    """The tally of the only process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.running, self.running_sockets = _Running(), _Running()
        self._series: Bounded[_Series] = Bounded(lambda method, route, status: _Series())
        registry.register(self)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        series = self._series.of(method, route, status)
        series.buckets[bisect_left(BUCKETS, seconds)] += 1
        series.seconds += seconds

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(REQUESTS[0], REQUESTS[1], labels=REQUESTS[2])
        times: dict[tuple[str, str], _Series] = {}
        for (method, route, status), series in self._series.kept.items():
            requests.add_metric((method, route, str(status)), sum(series.buckets), created=series.since)
            known = times.get((method, route))
            times[method, route] = series if known is None else known.and_(series)
        yield requests
        seconds = HistogramMetricFamily(SECONDS[0], SECONDS[1], labels=SECONDS[2])
        bounds = [*map(floatToGoString, BUCKETS), "+Inf"]
        for labels, series in times.items():
            seconds.add_metric(labels, list(zip(bounds, accumulate(series.buckets), strict=True)), series.seconds)
            seconds.add_sample(f"{SECONDS[0]}_created", dict(zip(SECONDS[2], labels, strict=True)), series.since)
        yield seconds
        running = GaugeMetricFamily(RUNNING[0], RUNNING[1], labels=RUNNING[2])
        running.add_metric(("http",), self.running.number)
        running.add_metric(("websocket",), self.running_sockets.number)
        yield running
