"""Shares what limits have counted between the server processes of an instance, so that a limit holds for all of them together.

PostgreSQL's notifications carry the counts; an instance on SQLite has one server process. Failed attempts are sent immediately, points of
the rate limit once a second. The latest counts of other processes are unknown: a viewer can exceed the rate limit by the points of
one second in each other process, and a name has at most one attempt more in each of them. A process that starts knows only what is counted
from then on, and counts that arrive while its connection is down are missing.
"""

import json
import secrets
from collections import Counter
from functools import partial
from typing import Any, NamedTuple

import structlog

from graph.context import Services
from graph.jobs.wakeup import Wakeup
from graph.operations.rate_limits import MAX_VIEWERS
from storage.database.pg_notify import Notifications

INTERVAL_SECONDS = 1.0
MAX_FAILURES = 10_000
"""Failures that wait for a lost connection; further ones are not sent."""
MAX_COUNTS = 100
"""Counts in one notification. A count takes at most 60 bytes of the payload."""

log = structlog.get_logger("graph")


class CountBatch(NamedTuple):
    """The counts of one notification: failures by kind and name, points by viewer."""

    failures: list[tuple[str, str]]
    points: list[tuple[int, int]]


class LimitSharing:
    """Sends the counts of this process, and adds those of the other processes to the limits of this one."""

    channel = "forgefront_limits"

    def __init__(self, services: Services) -> None:
        self._is_shared = services.database.dialect == "postgresql"
        self._process = secrets.token_hex(4)
        self._clock = services.clock
        self._rates = services.rate_limiter
        self._limiters = {"sign-in": services.sign_in_failures, "sign-up": services.sign_ups, "registration": services.registrations}
        self._failures: list[tuple[str, str]] = []
        self._points: Counter[int] = Counter()
        self._wakeup = Wakeup()
        if self._is_shared:
            self._rates.on_charge = self._add_points
            for kind, limiter in self._limiters.items():
                limiter.on_failure = partial(self._add_failure, kind)

    async def run(self, notifications: Notifications) -> None:
        """Sends the counts until it is canceled. Returns immediately on SQLite."""
        while self._is_shared:
            await self._wakeup.wait(INTERVAL_SECONDS)
            if notifications.is_connected:
                await self._send(notifications)

    def receive(self, payload: str) -> None:
        """Adds the counts of a notification, unless this process sent it. An invalid payload is logged and ignored."""
        if not payload:
            return
        try:
            counts = json.loads(payload)
            if counts["process"] == self._process:
                return
            for kind, name in counts["failures"]:
                self._limiters[kind].add_failure(name)
            for viewer_id, points, age in counts["points"]:
                self._rates.add_points(int(viewer_id), int(points), float(age), self._clock())
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            # A process of another version sent it, or somebody who may use the database.
            log.warning("invalid limit notification", error=type(error).__name__)

    def _add_failure(self, kind: str, name: str) -> None:
        if len(self._failures) < MAX_FAILURES:
            self._failures.append((kind, name))
            self._wakeup.notify()

    def _add_points(self, viewer_id: int, points: int) -> None:
        if viewer_id in self._points or len(self._points) < MAX_VIEWERS:
            self._points[viewer_id] += points

    async def _send(self, notifications: Notifications) -> None:
        """Sends what was counted since the last call. From a notification that may not have been sent on, the counts wait for the next."""
        batches = self._take_batches()
        for number, batch in enumerate(batches):
            if not await notifications.notify(self.channel, self._make_payload(batch)):
                for unsent in batches[number:]:
                    self._return_batch(unsent)
                return

    def _take_batches(self) -> list[CountBatch]:
        failures, self._failures = self._failures, []
        points = list(self._points.items())
        self._points.clear()
        starts = range(0, max(len(failures), len(points)), MAX_COUNTS)
        return [CountBatch(failures[start : start + MAX_COUNTS], points[start : start + MAX_COUNTS]) for start in starts]

    def _return_batch(self, batch: CountBatch) -> None:
        self._failures += batch.failures[: MAX_FAILURES - len(self._failures)]
        for viewer_id, points in batch.points:
            self._add_points(viewer_id, points)

    def _make_payload(self, batch: CountBatch) -> str:
        points = [(viewer_id, points, round(self._rates.window_age(viewer_id), 1)) for viewer_id, points in batch.points]
        counts: dict[str, Any] = {"process": self._process, "failures": batch.failures, "points": points}
        return json.dumps(counts, separators=(",", ":"))
