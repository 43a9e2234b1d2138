"""Number and duration of requests, and how many run now.

A single process counts in plain numbers: Prometheus' own objects, which lock and validate, cost ten times as much for each request. Several
processes count in those objects, which store them in files that the process serving `/-/metrics` sums up.
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

from graph.caches import CacheBounds, CacheUsage, register_usage

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MAX_SERIES = 3000
"""Maximum number of label combinations; further ones are counted as `other`."""

REQUESTS_METRIC = ("forgefront_http_requests", "Requests served.", ("method", "route", "status"))
DURATION_METRIC = (
    "forgefront_http_request_duration_seconds",
    "Time from a request's header to the end of its response.",
    ("method", "route"),
)
RUNNING_METRIC = ("forgefront_http_requests_in_flight", "Requests and streams that run now.", ("kind",))

SERIES_BYTES = 3_000
SERIES_BOUNDS = CacheBounds(
    "request metrics", max_entries=MAX_SERIES + len(METHODS) * 600, max_bytes=(MAX_SERIES + len(METHODS) * 600) * SERIES_BYTES
)

S = TypeVar("S")


class RunningGauge(Protocol):
    """A gauge that goes up and down."""

    def inc(self) -> None: ...
    def dec(self) -> None: ...


class RequestMetrics(Protocol):
    @property
    def running_requests(self) -> RunningGauge: ...
    @property
    def running_sockets(self) -> RunningGauge: ...

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Adds one request. `route` is a template, not a path."""
        ...


class BoundedSeries(Generic[S]):
    """Counts by method, route and status, with a bounded number of combinations."""

    def __init__(self, make: Callable[[str, str, int], S]) -> None:
        self.series: dict[tuple[str, str, int], S] = {}
        self._make = make
        register_usage(SERIES_BOUNDS, self, lambda bounded: CacheUsage(len(bounded.series), len(bounded.series) * SERIES_BYTES))

    def get_or_create(self, method: str, route: str, status: int) -> S:
        known = self.series.get((method, route, status))
        if known is not None:
            return known
        if method not in METHODS:
            method = "OTHER"
        if len(self.series) >= MAX_SERIES:
            route = "other"
        key = (method, route, status)
        if key not in self.series:
            self.series[key] = self._make(*key)
        return self.series[key]


class MultiProcess:
    """The request metrics of one of several processes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        requests, seconds = Counter(*REQUESTS_METRIC, registry=registry), Histogram(*DURATION_METRIC, buckets=BUCKETS, registry=registry)
        running = Gauge(*RUNNING_METRIC, registry=registry, multiprocess_mode="livesum")
        self.running_requests, self.running_sockets = running.labels("http"), running.labels("websocket")
        self._series: BoundedSeries[tuple[Any, Any]] = BoundedSeries(
            lambda method, route, status: (requests.labels(method, route, str(status)), seconds.labels(method, route))
        )

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        number, times = self._series.get_or_create(method, route, status)
        number.inc()
        times.observe(seconds)


@dataclass(slots=True)
class _InProcessGauge:
    value: int = 0

    def inc(self) -> None:
        self.value += 1

    def dec(self) -> None:
        self.value -= 1


@dataclass(slots=True)
class _InProcessSeries:
    """`buckets` count the requests in each interval between bounds; the last counts those beyond all bounds."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    seconds: float = 0.0
    created_at: float = field(default_factory=time)

    def add(self, other: "_InProcessSeries") -> "_InProcessSeries":
        summed = [one + two for one, two in zip(self.buckets, other.buckets, strict=True)]
        return _InProcessSeries(summed, self.seconds + other.seconds, min(self.created_at, other.created_at))


class InProcess(Collector):
    """The request metrics of the only process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.running_requests, self.running_sockets = _InProcessGauge(), _InProcessGauge()
        self._series: BoundedSeries[_InProcessSeries] = BoundedSeries(lambda method, route, status: _InProcessSeries())
        registry.register(self)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        series = self._series.get_or_create(method, route, status)
        series.buckets[bisect_left(BUCKETS, seconds)] += 1
        series.seconds += seconds

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(REQUESTS_METRIC[0], REQUESTS_METRIC[1], labels=REQUESTS_METRIC[2])
        times: dict[tuple[str, str], _InProcessSeries] = {}
        # A list, since requests add series while this runs in a thread.
        for (method, route, status), series in list(self._series.series.items()):
            requests.add_metric((method, route, str(status)), sum(series.buckets), created=series.created_at)
            known = times.get((method, route))
            times[method, route] = series if known is None else known.add(series)
        yield requests
        seconds = HistogramMetricFamily(DURATION_METRIC[0], DURATION_METRIC[1], labels=DURATION_METRIC[2])
        bounds = [*map(floatToGoString, BUCKETS), "+Inf"]
        for labels, series in times.items():
            seconds.add_metric(labels, list(zip(bounds, accumulate(series.buckets), strict=True)), series.seconds)
            seconds.add_sample(f"{DURATION_METRIC[0]}_created", dict(zip(DURATION_METRIC[2], labels, strict=True)), series.created_at)
        yield seconds
        running = GaugeMetricFamily(RUNNING_METRIC[0], RUNNING_METRIC[1], labels=RUNNING_METRIC[2])
        running.add_metric(("http",), self.running_requests.value)
        running.add_metric(("websocket",), self.running_sockets.value)
        yield running
