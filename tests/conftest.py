"""The fixtures of the suite live in modules of their own; this names them."""

import gc
from collections.abc import Iterator

import pytest
import structlog

pytest_plugins = ["tests.databases", "tests.statements", "tests.make", "tests.forge", "tests.world"]

# What is imported stays, and is half a million objects: looking through it again and again is a quarter of the suite's time.
gc.set_threshold(50_000, 20, 100)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def logs_end_with_their_test() -> Iterator[None]:
    """What a command set up writes to a stream that is closed with its test."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
