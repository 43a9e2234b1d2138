"""Measures how long the event loop of a test is blocked: the maximum CPU time of its thread in one iteration.

CPU time is independent of other work on the machine. Everything else that is ready, such as the response to a health check, waits for the
end of the iteration.
"""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any


@dataclass
class LoopLag:
    """`milliseconds` is the longest iteration so far, without garbage collection, which scans the heap of all tests."""

    milliseconds: float = 0.0


@asynccontextmanager
async def measure_loop_lag() -> AsyncIterator[LoopLag]:
    """Measures the iterations of the running loop."""
    loop: Any = asyncio.get_running_loop()
    lag, run_once = LoopLag(), type(loop)._run_once
    collection_started, collection_seconds = 0.0, 0.0

    def collector(phase: str, _: dict[str, int]) -> None:
        nonlocal collection_started, collection_seconds
        if phase == "start":
            collection_started = time.thread_time()
        else:
            collection_seconds += time.thread_time() - collection_started

    def measured_run_once() -> None:
        nonlocal collection_seconds
        started, collection_seconds = time.thread_time(), 0.0
        run_once(loop)
        lag.milliseconds = max(lag.milliseconds, (time.thread_time() - started - collection_seconds) * 1000)

    loop._run_once = measured_run_once
    gc.callbacks.append(collector)
    # The iterations in which the measurement begins and ends are excluded.
    await asyncio.sleep(0)
    try:
        yield lag
        await asyncio.sleep(0)
    finally:
        gc.callbacks.remove(collector)
        del loop._run_once
