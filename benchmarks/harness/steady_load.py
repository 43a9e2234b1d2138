"""Requests at a steady rate: how long each answer takes, counted from when its request was due."""

import asyncio
import time
from collections.abc import Sequence

import httpx

from benchmarks.harness.load import BadAnswersError, LoadRequest


async def run_steadily(api: httpx.AsyncClient, requests: Sequence[LoadRequest], per_second: float, seconds: float) -> list[float]:
    """The milliseconds of each answer, in ascending order. Raises BadAnswersError."""
    count, begun = round(per_second * seconds), time.perf_counter()

    async def ask(number: int) -> float:
        due = begun + number / per_second
        await asyncio.sleep(due - time.perf_counter())
        request = requests[number % len(requests)]
        response = await api.request(request.method, request.paths[0], content=request.body, headers=request.headers)
        if response.status_code != request.status or b'"errors"' in response.content[:200]:
            raise BadAnswersError(f"{request.method} {request.paths[0]}: {response.status_code} {response.text[:300]}")
        return 1000 * (time.perf_counter() - due)

    return sorted(await asyncio.gather(*(ask(number) for number in range(count))))
