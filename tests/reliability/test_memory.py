"""The memory of a running server is bounded, whatever is requested (R27)."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from graph.operations.execution import Graph
from graph.schema import graphql_schema
from tests.make import DataFactory, token_of
from tests.support.queries.arguments import collect_arguments
from tests.support.queries.edge_case_data import EdgeCaseData, create_edge_cases
from tests.support.queries.query_generator import QueryGenerator
from tests.support.reliability_promises import promise, scaled_count
from tests.support.servers.server_process import ServerProcess, run_server

QUERIES = scaled_count(5000)
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
async def edge_cases(make: DataFactory, tmp_path: Path) -> EdgeCaseData:
    return await create_edge_cases(make, tmp_path / "town.git")


class TestRandomQueries:
    @promise("R27")
    async def test_memory_is_bounded(
        self, edge_cases: EdgeCaseData, make: DataFactory, tmp_path: Path, database_url: str, figure: Callable[[str], None]
    ) -> None:
        generator = QueryGenerator(graphql_schema, await collect_arguments(edge_cases, Graph(make.services, planner=False)))
        with run_server(tmp_path, database_url) as server:
            idle = resident_mib(server)
            measurements: list[float] = []
            statuses: Counter[int] = Counter()
            for part in range(SLICES):
                numbers = range(part * QUERIES // SLICES, (part + 1) * QUERIES // SLICES)
                statuses += await send(server, generator, numbers, [*edge_cases.viewers.values()])
                measurements.append(resident_mib(server))
            caches = cache_mib(server)
        figure(f"the caches say {sum(caches.values()):.1f} MiB: {caches}")
        shown = " ".join(f"{mib:.0f}" for mib in measurements)
        figure(f"{QUERIES} distinct queries, each {TIMES} times: idle {idle:.0f} MiB, then {shown} MiB; {dict(statuses)}")

        assert max(statuses) < 500
        assert measurements[-1] <= MAX_MIB
        assert measurements[-1] - measurements[-4] <= MAX_GROWTH_MIB


class TestLongFilters:
    @promise("R27")
    async def test_one_query_with_many_long_filters_does_not_leak(
        self, edge_cases: EdgeCaseData, tmp_path: Path, database_url: str, figure: Callable[[str], None]
    ) -> None:
        with run_server(tmp_path, database_url) as server:
            idle = resident_mib(server)
            measurements: list[float] = []
            async with client_of(server) as client:
                for turn in range(5):
                    body = oversized(turn, 60_000)
                    for _ in range(TIMES):
                        await post(client, body, edge_cases.viewers["admin"])
                    measurements.append(resident_mib(server))
        shown = " ".join(f"{mib:.0f}" for mib in measurements)
        figure(f"filters of 60,000 numbers: idle {idle:.0f} MiB, then {shown} MiB")

        assert measurements[-1] <= MAX_MIB


async def send(server: ServerProcess, generator: QueryGenerator, numbers: range, viewers: list[Any]) -> Counter[int]:
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


def client_of(server: ServerProcess) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.url, timeout=60)


async def post(client: httpx.AsyncClient, body: dict[str, Any], viewer: Any) -> int:
    return (await client.post("/graphql", json=body, headers={"PRIVATE-TOKEN": token_of(viewer)})).status_code


def body_of(generator: QueryGenerator, number: int) -> dict[str, Any]:
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
    for index in range(20):
        name = drawn.choice(FILTERS)
        length = drawn.randint(1, 1000)
        kind = "Int" if name == "iid" else "String"
        values[f"v{index}"] = [drawn.randint(1, 10**6) if kind == "Int" else f"name {drawn.random()}" for _ in range(length)]
        declared.append(f"$v{index}: [{kind}!]")
        several = name in ("iid", "labels", "milestone", "authorUsername", "assigneeUsername") and drawn.random() < 0.5
        field = "issues" if several else "mergeRequests"
        fields.append(f"f{number}x{index}: {field}(filter: {{{name}: $v{index}}}, first: 2) {{ totalCount nodes {{ iid title }} }}")
    text = f'query({", ".join(declared)}) {{ project(path: "acme/web") {{ {" ".join(fields)} }} }}'
    return {"query": text, "variables": values}


def oversized(number: int, length: int) -> dict[str, Any]:
    """A query that uses one list of this number of values in many filters."""
    fields = " ".join(f"f{number}x{index}: issues(filter: {{iid: $v}}, first: 2) {{ nodes {{ iid }} }}" for index in range(29))
    text = f'query($v: [Int!]) {{ project(path: "acme/web") {{ {fields} }} }}'
    return {"query": text, "variables": {"v": list(range(number, number + length))}}


def cache_mib(server: ServerProcess) -> dict[str, float]:
    """What each cache says that it holds."""
    lines = httpx.get(f"{server.url}/-/metrics", timeout=10).text
    found = re.findall(r'^forgefront_cache_bytes\{cache="([^"]+)"\} (\S+)$', lines, re.MULTILINE)
    return {name: round(float(size) / 2**20, 1) for name, size in found}


def resident_mib(server: ServerProcess) -> float:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
