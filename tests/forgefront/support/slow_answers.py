"""A plugin of pytest with which the service answers each request after a random time, as over a slow network.

`pytest -p tests.forgefront.support.slow_answers tests/forgefront/pages` finds what a page, or its test, takes for granted: that one answer
comes before another, or that nothing happens between two of them. `scripts/check --pages` uses it.
FORGEFRONT_SLOW_ANSWERS is the longest delay in seconds (0.6).
"""

import asyncio
import os
import random

from starlette.types import Receive, Scope, Send

from forgefront.app import App

MAX_DELAY_SECONDS = float(os.environ.get("FORGEFRONT_SLOW_ANSWERS", "0.6"))

_answer = App.__call__


async def _answer_late(self: App, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        # The square: most answers come soon, few take long.
        await asyncio.sleep(random.random() ** 2 * MAX_DELAY_SECONDS)
    await _answer(self, scope, receive, send)


def pytest_configure() -> None:
    App.__call__ = _answer_late  # type: ignore[method-assign]
