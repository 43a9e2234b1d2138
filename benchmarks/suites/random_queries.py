"""`scripts/bench memory --random 5000`: resident memory of a fresh server after distinct random queries of some 40 fields."""

import http.client
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.dataset.seed import Dataset, path_of
from benchmarks.harness import load, runs
from benchmarks.harness.runs import NAMES
from benchmarks.harness.servers import MeasuredServer
from graph.schema import graphql_schema
from tests.support.queries.arguments import ArgumentPool, ProjectArguments
from tests.support.queries.query_generator import QueryGenerator

MEMORY_SAMPLES = 10
"""Number of slices of the queries, after each of which the memory is sampled."""
REPEATS_PER_QUERY = 2
CLIENTS = 4
MAX_MIB = 220
MAX_GROWTH_MIB = 12
"""Maximum growth over the last three slices, when all caches are full."""
SETTLE_SECONDS = 5.0


def measure(server: MeasuredServer, data: Dataset, number: int, sample: Callable[[str], float]) -> dict[str, Any]:
    """The resident memory when idle and after each slice of `number` queries. Raises BadAnswersError for an error of the service."""
    time.sleep(SETTLE_SECONDS)
    idle = sample("idle")
    after = []
    for part in range(MEMORY_SAMPLES):
        numbers = range(part * number // MEMORY_SAMPLES, (part + 1) * number // MEMORY_SAMPLES)
        send_queries(server, data, numbers)
        after.append(sample(f"{numbers.stop:,} random queries"))
    return {"idle_mib": idle, "after_random_mib": after}


def create_bodies(data: Dataset, numbers: range) -> Iterator[bytes]:
    """Bodies of requests with distinct queries that are generated from the schema; many of them name rows that do not exist."""
    projects = [ProjectArguments(path_of(project), {}) for project in data.projects[:20]]
    generator = QueryGenerator(graphql_schema, ArgumentPool(projects, {"paths": [project.path for project in projects]}, {}))
    for number in numbers:
        text, variables = generator.query(number)
        yield json.dumps({"query": f"{text} # {number}", "variables": variables}).encode()


def send_queries(server: MeasuredServer, data: Dataset, numbers: range) -> None:
    """Sends each query REPEATS_PER_QUERY times. Raises BadAnswersError for the status 500.

    Other statuses are valid: most projects of the data set have no repository, for which the answer is 503.
    """
    headers = {"PRIVATE-TOKEN": data.token, "Content-Type": "application/json"}

    def client(mine: list[bytes]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        for body in mine:
            for _ in range(REPEATS_PER_QUERY):
                connection.request("POST", "/graphql", body=body, headers=headers)
                response = connection.getresponse()
                answer = response.read()
                if response.status == 500:
                    raise load.BadAnswersError(f"{body[:300]!r}: {response.status} {answer[:300]!r}")
        connection.close()

    made = [*create_bodies(data, numbers)]
    with ThreadPoolExecutor(CLIENTS) as threads:
        for done in [threads.submit(client, made[offset::CLIENTS]) for offset in range(CLIENTS)]:
            done.result()


def unmet_goals(row: dict[str, Any]) -> list[str]:
    """The goals that a row does not meet."""
    after = row["after_random_mib"]
    found = {"size": after[-1] <= MAX_MIB, "growth": after[-1] - after[-4] <= MAX_GROWTH_MIB}
    return [name for name, met in found.items() if not met]


def render_report(found: dict[str, Any]) -> str:
    number = found["run"]["random"]
    lines = [["resident MiB", "idle", f"during {number:,} random queries", "goal met"]]
    for row in found["results"]:
        after = " ".join(f"{mib:.0f}" for mib in row["after_random_mib"])
        lines.append(
            [NAMES[row["database"]], f"{row['idle_mib']:.0f}", after, f"no: {', '.join(unmet_goals(row))}" if unmet_goals(row) else "yes"]
        )
    goal = (
        f"The goal: at most {MAX_MIB}, and at most {MAX_GROWTH_MIB} more over the last 30 %. Each query is sent {REPEATS_PER_QUERY} times."
    )
    return f"{runs.render_table(lines)}\n\n{goal} {runs.describe_machine(found)}"
