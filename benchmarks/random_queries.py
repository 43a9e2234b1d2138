"""`scripts/bench memory --random 5000`: what a fresh server has in memory after distinct random queries of some 40 fields."""

import http.client
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks import load, runs
from benchmarks.data import Data, path_of
from benchmarks.runs import NAMES
from benchmarks.servers import Server
from graph.schema import graphql_schema
from tests.drawn import Drawn, Place
from tests.generated import Generator

SLICES = 10
"""How often the memory is looked at."""
TIMES = 2
CLIENTS = 4
MAX_MIB = 220
MAX_GROWTH_MIB = 12
"""Over the last three slices, when all caches are full."""
SETTLE_SECONDS = 5.0


def measure(server: Server, data: Data, number: int, look: Callable[[str], float]) -> dict[str, Any]:
    """The resident memory at rest and after each slice of the queries. Raises BadAnswersError for a fault of the service."""
    time.sleep(SETTLE_SECONDS)
    idle = look("idle")
    after = []
    for part in range(SLICES):
        numbers = range(part * number // SLICES, (part + 1) * number // SLICES)
        ask(server, data, numbers)
        after.append(look(f"{numbers.stop:,} random queries"))
    return {"idle_mib": idle, "after_random_mib": after}


def bodies(data: Data, numbers: range) -> Iterator[bytes]:
    """Requests whose queries differ from each other, made up of the schema; many ask for what is not there."""
    places = [Place(path_of(project), {}) for project in data.projects[:20]]
    generator = Generator(graphql_schema, Drawn(places, {"paths": [place.path for place in places]}, {}))
    for number in numbers:
        text, variables = generator.query(number)
        yield json.dumps({"query": f"{text} # {number}", "variables": variables}).encode()


def ask(server: Server, data: Data, numbers: range) -> None:
    """Most projects of the data set have no repository, so that 503 is an answer too."""
    headers = {"PRIVATE-TOKEN": data.token, "Content-Type": "application/json"}

    def client(mine: list[bytes]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        for body in mine:
            for _ in range(TIMES):
                connection.request("POST", "/graphql", body=body, headers=headers)
                response = connection.getresponse()
                answer = response.read()
                if response.status == 500:
                    raise load.BadAnswersError(f"{body[:300]!r}: {response.status} {answer[:300]!r}")
        connection.close()

    made = [*bodies(data, numbers)]
    with ThreadPoolExecutor(CLIENTS) as threads:
        for done in [threads.submit(client, made[place::CLIENTS]) for place in range(CLIENTS)]:
            done.result()


def lacking(row: dict[str, Any]) -> list[str]:
    """The goals that a row does not meet."""
    after = row["after_random_mib"]
    found = {"size": after[-1] <= MAX_MIB, "growth": after[-1] - after[-4] <= MAX_GROWTH_MIB}
    return [name for name, met in found.items() if not met]


def report(found: dict[str, Any]) -> str:
    number = found["run"]["random"]
    lines = [["resident MiB", "idle", f"while {number:,} random queries come", "goal met"]]
    for row in found["results"]:
        after = " ".join(f"{mib:.0f}" for mib in row["after_random_mib"])
        lines.append([NAMES[row["database"]], f"{row['idle_mib']:.0f}", after, f"no: {', '.join(lacking(row))}" if lacking(row) else "yes"])
    goal = f"The goal: at most {MAX_MIB}, and at most {MAX_GROWTH_MIB} more over the last 30 %. Each query is sent {TIMES} times."
    return f"{runs.grid(lines)}\n\n{goal} {runs.about(found)}"
