"""The memory of a served process has an end, whatever is asked of it (R27)."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from graph.execute import Graph
from graph.schema import graphql_schema
from tests.drawn import draw
from tests.generated import Generator
from tests.make import Make, token_of
from tests.promises import promise, promised
from tests.reliability.served import Served, served
from tests.town import Town, settle

QUERIES = promised(5000)
SLICES = 10
"""How often the memory is looked at."""
TIMES = 2
"""How often each query is sent: the second time it may be planned."""
CLIENTS = 4
MAX_MIB = 220
MAX_GROWTH_MIB = 12
"""Over the last 30 % of the queries, when all caches are full."""
FILTERS = ("iid", "labels", "milestone", "authorUsername", "assigneeUsername", "sourceBranch", "targetBranch")
LONG_FILTERS_EVERY = 10
"""Every tenth query has filters of hundreds of values."""
OVERSIZED_EVERY = 250
"""Every 250th query has filters of tens of thousands of values, which are refused."""


@pytest.fixture
async def town(make: Make, tmp_path: Path) -> Town:
    return await settle(make, tmp_path / "town.git")


class TestRandomQueries:
    @promise("R27")
    async def test_memory_is_bounded(
        self, town: Town, make: Make, tmp_path: Path, database_url: str, figure: Callable[[str], None]
    ) -> None:
        generator = Generator(graphql_schema, await draw(town, Graph(make.services, planner=False)))
        with served(tmp_path, database_url) as server:
            idle = resident_mib(server)
            looks: list[float] = []
            statuses: Counter[int] = Counter()
            for part in range(SLICES):
                numbers = range(part * QUERIES // SLICES, (part + 1) * QUERIES // SLICES)
                statuses += await send(server, generator, numbers, [*town.viewers.values()])
                looks.append(resident_mib(server))
            caches = cache_mib(server)
        figure(f"the caches say {sum(caches.values()):.1f} MiB: {caches}")
        shown = " ".join(f"{mib:.0f}" for mib in looks)
        figure(f"{QUERIES} distinct queries, each {TIMES} times: idle {idle:.0f} MiB, then {shown} MiB; {dict(statuses)}")

        assert max(statuses) < 500
        assert looks[-1] <= MAX_MIB
        assert looks[-1] - looks[-4] <= MAX_GROWTH_MIB


class TestLongFilters:
    @promise("R27")
    async def test_one_query_with_many_long_filters_leaves_nothing_behind(
        self, town: Town, tmp_path: Path, database_url: str, figure: Callable[[str], None]
    ) -> None:
        with served(tmp_path, database_url) as server:
            idle = resident_mib(server)
            looks: list[float] = []
            async with client_of(server) as client:
                for turn in range(5):
                    body = oversized(turn, 60_000)
                    for _ in range(TIMES):
                        await post(client, body, town.viewers["admin"])
                    looks.append(resident_mib(server))
        shown = " ".join(f"{mib:.0f}" for mib in looks)
        figure(f"filters of 60,000 numbers: idle {idle:.0f} MiB, then {shown} MiB")

        assert looks[-1] <= MAX_MIB


async def send(server: Served, generator: Generator, numbers: range, viewers: list[Any]) -> Counter[int]:
    """Sends the queries of these numbers, each TIMES in a row; how many were answered with which status."""
    waiting = iter(numbers)
    statuses: Counter[int] = Counter()

    async def work(client: httpx.AsyncClient) -> None:
        for number in waiting:
            body = body_of(generator, number)
            for _ in range(TIMES):
                statuses[await post(client, body, viewers[number % len(viewers)])] += 1

    async with client_of(server) as client, asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(work(client))
    return statuses


def client_of(server: Served) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.url, timeout=60)


async def post(client: httpx.AsyncClient, body: dict[str, Any], viewer: Any) -> int:
    return (await client.post("/graphql", json=body, headers={"PRIVATE-TOKEN": token_of(viewer)})).status_code


def body_of(generator: Generator, number: int) -> dict[str, Any]:
    if number % OVERSIZED_EVERY == OVERSIZED_EVERY - 1:
        return oversized(number, 60_000)
    if number % LONG_FILTERS_EVERY == LONG_FILTERS_EVERY - 1:
        return filtered(number)
    text, variables = generator.query(number)
    # Distinct for certain.
    return {"query": f"{text} # {number}", "variables": variables}


def filtered(number: int) -> dict[str, Any]:
    """A query with filters of up to 1,000 values each, drawn by lot."""
    drawn = random.Random(number)
    fields = []
    values: dict[str, Any] = {}
    declared = []
    for place in range(20):
        name = drawn.choice(FILTERS)
        length = drawn.randint(1, 1000)
        kind = "Int" if name == "iid" else "String"
        values[f"v{place}"] = [drawn.randint(1, 10**6) if kind == "Int" else f"name {drawn.random()}" for _ in range(length)]
        declared.append(f"$v{place}: [{kind}!]")
        several = name in ("iid", "labels", "milestone", "authorUsername", "assigneeUsername") and drawn.random() < 0.5
        field = "issues" if several else "mergeRequests"
        fields.append(f"f{number}x{place}: {field}(filter: {{{name}: $v{place}}}, first: 2) {{ totalCount nodes {{ iid title }} }}")
    text = f'query({", ".join(declared)}) {{ project(path: "acme/web") {{ {" ".join(fields)} }} }}'
    return {"query": text, "variables": values}


def oversized(number: int, length: int) -> dict[str, Any]:
    """A query that uses one list of so many values in many filters."""
    fields = " ".join(f"f{number}x{place}: issues(filter: {{iid: $v}}, first: 2) {{ nodes {{ iid }} }}" for place in range(29))
    text = f'query($v: [Int!]) {{ project(path: "acme/web") {{ {fields} }} }}'
    return {"query": text, "variables": {"v": list(range(number, number + length))}}


def cache_mib(server: Served) -> dict[str, float]:
    """What each cache says that it holds."""
    lines = httpx.get(f"{server.url}/-/metrics", timeout=10).text
    found = re.findall(r'^forgefront_cache_bytes\{cache="([^"]+)"\} (\S+)$', lines, re.MULTILINE)
    return {name: round(float(size) / 2**20, 1) for name, size in found}


def resident_mib(server: Served) -> float:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
