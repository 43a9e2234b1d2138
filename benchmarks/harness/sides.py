"""The sides of the table: Forgefront, its peers, and the floor; each is one server process."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.dataset.seed import Dataset
from benchmarks.harness import servers
from benchmarks.harness.runs import BOTH
from benchmarks.harness.servers import MeasuredServer
from benchmarks.peers import DATABASE_URL_VARIABLE, node_packages
from benchmarks.suites import goals, questions
from benchmarks.suites.questions import Question
from storage.database.engine import driver_url


@dataclass(frozen=True)
class SideEnvironment:
    """Where a side runs: the data folder, the URL of the database, and the folders of logs and of Node packages (`cache`)."""

    folder: Path
    url: str
    logs: Path
    cache: Path
    pinned: bool


@dataclass(frozen=True)
class BenchmarkSide:
    """`checks_caller`: whether it looks up the caller and checks permissions, as the service does. `start` raises PeerUnavailableError.

    `served_by` names an earlier side whose process answers this one's questions too, so that it has no process of its own.
    """

    name: str
    title: str
    databases: tuple[str, ...]
    checks_caller: bool
    create_questions: Callable[[Dataset], dict[str, Question]]
    start: Callable[["BenchmarkSide", SideEnvironment, Callable[[str], None]], AbstractContextManager[MeasuredServer]]
    served_by: str | None = None


def _start_service(side: BenchmarkSide, environment: SideEnvironment, log: Callable[[str], None]) -> AbstractContextManager[MeasuredServer]:
    return servers.run_service(environment.folder, environment.url, pinned=environment.pinned)


def _start_python_peer(
    side: BenchmarkSide, environment: SideEnvironment, log: Callable[[str], None]
) -> AbstractContextManager[MeasuredServer]:
    port = servers.free_port()
    is_floor = side.name in goals.FLOORS.values()
    quiet = ["--no-access-log"] if is_floor else []
    command = [sys.executable, "-m", "uvicorn", "--factory", f"benchmarks.peers.{side.name}_app:create_app", *quiet]
    url = environment.url if is_floor else driver_url(environment.url).render_as_string(hide_password=False)
    return _run_side(side, environment, [*command, "--host", "127.0.0.1", "--port", str(port)], {DATABASE_URL_VARIABLE: url}, port)


def _start_node_peer(
    side: BenchmarkSide, environment: SideEnvironment, log: Callable[[str], None]
) -> AbstractContextManager[MeasuredServer]:
    command = node_packages.create_command(side.name, environment.cache, log)
    port = servers.free_port()
    variables = {DATABASE_URL_VARIABLE: environment.url, "PORT": str(port), "NODE_ENV": "production", "GRAPHILE_ENV": "production"}
    return _run_side(side, environment, command, variables, port)


def _run_side(
    side: BenchmarkSide, environment: SideEnvironment, command: list[str], variables: dict[str, str], port: int
) -> AbstractContextManager[MeasuredServer]:
    return servers.run_server(side.name, command, variables, port, "/", environment.logs / f"{side.name}.log", pinned=environment.pinned)


SIDES = (
    BenchmarkSide("forgefront", "Forgefront, POST /graphql", BOTH, True, questions.graphql_questions, _start_service),
    BenchmarkSide("v3", "Forgefront, REST v3", BOTH, True, questions.v3_questions, _start_service, served_by="forgefront"),
    BenchmarkSide("floor", "floor: handwritten SQL, orjson, Starlette", BOTH, False, questions.route_questions, _start_python_peer),
    BenchmarkSide("floor_v3", "floor of REST v3: its whole answers", BOTH, False, questions.v3_questions, _start_python_peer),
    BenchmarkSide("mercurius", "mercurius + graphql-jit (Node)", BOTH[:1], False, questions.graphql_questions, _start_node_peer),
    BenchmarkSide("postgraphile", "PostGraphile 5 (Node)", BOTH[:1], False, questions.generated_graphql_questions, _start_node_peer),
    BenchmarkSide("fastapi", "FastAPI + SQLModel", BOTH, True, questions.route_questions, _start_python_peer),
    BenchmarkSide("strawberry", "strawberry + DataLoaders", BOTH, True, questions.graphql_questions, _start_python_peer),
)
"""The sides in the order of the table."""
UNSUPPORTED_QUESTIONS = {
    ("v3", "join"),
    ("floor_v3", "join"),
    ("mercurius", "note"),
    ("postgraphile", "note"),
    *((side, "projects") for side in ("floor", "floor_v3", "mercurius", "postgraphile", "strawberry")),
}
"""Pairs of a side and a question that it does not get: v3 has no call for the join, the peers on Node have no mutations, and the list of
projects is compared with FastAPI only."""
