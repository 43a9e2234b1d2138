"""Waiting for what happens elsewhere: in another process, or in another task."""

import asyncio
import time
from collections.abc import Callable


async def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Waits until the condition holds. Fails after the given seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        await asyncio.sleep(0.02)
