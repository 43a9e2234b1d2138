"""The fixtures of the suite live in modules of their own; this names them."""

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

pytest_plugins = ["tests.databases", "tests.statements", "tests.make", "tests.forge", "tests.world", "tests.promises"]

# What is imported stays, and is half a million objects: looking through it again and again is a quarter of the suite's time.
gc.set_threshold(50_000, 5, 400)


DEAR = (
    "tests/graph/test_hostile.py",
    "tests/rest_v3/test_hostile.py",
    "tests/forgefront/test_pages.py",
    "tests/forgefront/test_demo.py",
    "tests/forgefront/test_streams.py",
    "tests/forgefront/test_restarts.py",
    "tests/forgefront/test_worker.py",
    "tests/test_races.py",
    "tests/test_permissions.py",
    "tests/graph/test_planted_values.py",
    "tests/test_benchmarks.py",
    "tests/forgefront/test_client.py",
    "tests/forgefront/test_app.py",
    "tests/ci_v1/test_hostile.py",
)
"""Files of half a minute and more. They come first, so that no process is left alone with one of them at the end (scripts/test)."""


PLANNER = "FORGEFRONT_PLANNER"
"""`off` runs the whole suite without plans, as it does the service; tests of the plans themselves ask for them."""
OFTEN = "FORGEFRONT_TEST_OFTEN"
"""At which of its runs a query is planned: 1 plans everything, 2 has graphql-core answer each text once."""


def pytest_configure() -> None:
    from graph.execute import Graph
    from graph.planning import keeping

    settings: Any = Graph.__init__
    if os.environ.get(PLANNER) == "off":
        settings.__kwdefaults__["planner"] = False
    keeping.OFTEN = int(os.environ.get(OFTEN, keeping.OFTEN))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(DEAR)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(DEAR)))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def logs_end_with_their_test() -> Iterator[None]:
    """What a command set up writes to a stream that is closed with its test."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
