"""Fixtures of tests of the columnar copy of builds."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from graph.context import Services
from graph.jobs.build_analytics import BuildAnalytics
from graph.rules.statistics import copied_build_stats, copied_flaky_builds
from storage.analytics.build_copy_writer import write_copy
from tests.support.build_copies import Both


@pytest.fixture
async def analytics(services: Services, tmp_path: Path) -> AsyncIterator[BuildAnalytics]:
    # A process takes most of a second to start (`test_copy_process.py`).
    found = BuildAnalytics(services.database, tmp_path / "analytics", min_builds=0, write_copy=write_copy)
    yield found
    await found.close()


@pytest.fixture
def both(services: Services, analytics: BuildAnalytics, monkeypatch: pytest.MonkeyPatch) -> Both:
    found = Both(services, analytics)
    fetch_from_copy = copied_build_stats.fetch_from_copy

    async def count(*arguments: Any) -> Any:
        rows = await fetch_from_copy(*arguments)
        found.copied_count += rows is not None
        return rows

    for module in (copied_build_stats, copied_flaky_builds):
        monkeypatch.setattr(module, "fetch_from_copy", count)
    # Every test has statements of its own, so questions are answered at the time at which the test began.
    moment = datetime(2016, 4, 20, 12, 30, tzinfo=UTC)
    for ask in (found.copied, found.stored):
        object.__setattr__(ask.graph.services, "clock", lambda: moment)
    return found
