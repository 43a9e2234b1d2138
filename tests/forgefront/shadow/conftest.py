"""Tests of the shadow proxy run on the event loop that serves it."""

from collections.abc import Callable, Mapping
from typing import Any

import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], Any]]:
    return {"uvloop": uvloop.new_event_loop}
