"""Fails a test in which a plan failed: graphql-core then answers, so that only the log shows the defect."""

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from graph.operations import execution


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fails_plans: plans are meant to fail in this test")


@pytest.fixture(autouse=True)
def no_failed_plans(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    failed: list[Any] = []
    log = execution.log

    def record(event: str, *, exc_info: Any = True, **values: Any) -> None:
        failed.append(repr(sys.exc_info()[1]))
        log.error(event, exc_info=exc_info, **values)

    monkeypatch.setattr(execution, "log", SimpleNamespace(error=record, exception=record))
    yield
    assert not failed or request.node.get_closest_marker("fails_plans"), failed
