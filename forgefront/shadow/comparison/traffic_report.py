"""The report: what was seen and compared, by route and client, and each kind of difference with an example. All of it is bounded."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from forgefront.shadow.settings import ShadowSettings

MAX_ROUTES = 500
MAX_CLIENTS = 100
MAX_PAIRS = 5_000
MAX_DIFFERENCES_OF_A_ROUTE = 100
MAX_CLIENT_LENGTH = 120
OTHERS = "(others)"


@dataclass(slots=True)
class TrafficCount:
    """`equal` and `different` are exchanges that were compared; the seconds are theirs."""

    seen: int = 0
    equal: int = 0
    different: int = 0
    old_seconds: float = 0.0
    new_seconds: float = 0.0
    not_compared: Counter[str] = field(default_factory=Counter)

    def add(self, other: "TrafficCount") -> None:
        self.seen += other.seen
        self.equal += other.equal
        self.different += other.different
        self.old_seconds += other.old_seconds
        self.new_seconds += other.new_seconds
        self.not_compared.update(other.not_compared)

    def as_json(self) -> dict[str, Any]:
        compared = self.equal + self.different
        return {
            "seen": self.seen,
            "equal": self.equal,
            "different": self.different,
            "not_compared": dict(self.not_compared.most_common()),
            "old_milliseconds": round(self.old_seconds * 1000 / compared, 2) if compared else None,
            "new_milliseconds": round(self.new_seconds * 1000 / compared, 2) if compared else None,
        }


@dataclass(slots=True)
class DifferenceCount:
    """A kind of difference at one place of a route."""

    kind: str
    place: str
    count: int = 0
    clients: Counter[str] = field(default_factory=Counter)
    example: dict[str, Any] | None = None


class TrafficReport:
    """Counts exchanges. Routes, clients and places beyond the limits are counted together."""

    def __init__(self, settings: ShadowSettings, restarts: int = 0) -> None:
        self._settings = settings
        self._restarts = restarts
        self._began = datetime.now(UTC)
        self._pairs: dict[tuple[str, str], TrafficCount] = {}
        self._routes: set[str] = set()
        self._clients: set[str] = set()
        self._differences: dict[str, dict[tuple[str, str], DifferenceCount]] = {}
        self._ignored: Counter[tuple[str, str]] = Counter()
        self._lost = 0

    def count(self, route: str, client: str) -> TrafficCount:
        """The counts of a route and a client, to be added to."""
        pair = _bounded(self._routes, route, MAX_ROUTES), _bounded(self._clients, client[:MAX_CLIENT_LENGTH], MAX_CLIENTS)
        if pair not in self._pairs and len(self._pairs) >= MAX_PAIRS:
            pair = pair[0], OTHERS
        return self._pairs.setdefault(pair, TrafficCount())

    def count_lost(self, number: int) -> None:
        """Counts exchanges that the queue had no room for."""
        self._lost += number

    def count_ignored(self, rule: str, reason: str) -> None:
        self._ignored[rule, reason] += 1

    def count_difference(self, route: str, kind: str, place: str, client: str) -> DifferenceCount:
        """Counts a difference, and returns its row, which has no example at first."""
        rows = self._differences.setdefault(_bounded(self._routes, route, MAX_ROUTES), {})
        if (kind, place) not in rows and len(rows) >= MAX_DIFFERENCES_OF_A_ROUTE:
            kind, place = "further", OTHERS
        row = rows.setdefault((kind, place), DifferenceCount(kind, place))
        row.count += 1
        if client in row.clients or len(row.clients) < MAX_CLIENTS:
            row.clients[client[:MAX_CLIENT_LENGTH]] += 1
        return row

    def as_json(self) -> dict[str, Any]:
        """The whole report; its examples have no tokens."""
        settings = self._settings
        total = TrafficCount()
        for count in self._pairs.values():
            total.add(count)
        return {
            "began": _format_time(self._began),
            "written": _format_time(datetime.now(UTC)),
            "old": settings.old,
            "new": settings.new,
            "answers": "new" if settings.is_switched else "old",
            "replays_writes": settings.replays_writes,
            "masks_values": settings.masks_values,
            "total": {**total.as_json(), "lost": self._lost, "comparison_restarts": self._restarts},
            "routes": [
                {"route": name, **count.as_json(), "clients": clients, "differences": self._differences_of(name)}
                for name, count, clients in self._grouped(0)
            ],
            "clients": [{"client": name, **count.as_json(), "routes": routes} for name, count, routes in self._grouped(1)],
            "ignored": [{"rule": rule, "reason": reason, "count": count} for (rule, reason), count in self._ignored.most_common()],
        }

    def _grouped(self, index: int) -> Iterable[tuple[str, TrafficCount, list[dict[str, Any]]]]:
        """The counts by route (0) or client (1), those with differences first, each with those of the other."""
        groups: dict[str, TrafficCount] = {}
        parts: dict[str, list[dict[str, Any]]] = {}
        for pair, count in self._pairs.items():
            groups.setdefault(pair[index], TrafficCount()).add(count)
            other = {("client", "route")[index]: pair[1 - index], "seen": count.seen, "equal": count.equal, "different": count.different}
            parts.setdefault(pair[index], []).append(other)
        ordered = sorted(groups.items(), key=lambda item: (-item[1].different, -item[1].seen, item[0]))
        return [(name, count, sorted(parts[name], key=lambda part: -part["seen"])) for name, count in ordered]

    def _differences_of(self, route: str) -> list[dict[str, Any]]:
        rows = sorted(self._differences.get(route, {}).values(), key=lambda row: -row.count)
        return [
            {"kind": row.kind, "place": row.place, "count": row.count, "clients": dict(row.clients.most_common(5)), "example": row.example}
            for row in rows
        ]


def _bounded(names: set[str], name: str, limit: int) -> str:
    if name not in names:
        if len(names) >= limit:
            return OTHERS
        names.add(name)
    return name


def _format_time(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
