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
from benchmarks.peers import node_packages
from benchmarks.peers.engine import DATABASE_URL_VARIABLE
from benchmarks.suites import questions
from benchmarks.suites.questions import Question
from storage.database.engine import driver_url


@dataclass(frozen=True)
class SideEnvironment:
    """Where a side runs: the folder of the data set, its database, and the folder of packages of Node."""

    folder: Path
    url: str
    logs: Path
    cache: Path
    pinned: bool


@dataclass(frozen=True)
class BenchmarkSide:
    """`checks_caller`: whether it looks up the caller and what he may see, as the service does. `start` raises PeerUnavailableError.

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
    quiet = ["--no-access-log"] if side.name == "floor" else []
    command = [sys.executable, "-m", "uvicorn", "--factory", f"benchmarks.peers.{side.name}_app:create_app", *quiet]
    url = environment.url if side.name == "floor" else driver_url(environment.url).render_as_string(hide_password=False)
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
    BenchmarkSide("mercurius", "mercurius + graphql-jit (Node)", BOTH[:1], False, questions.graphql_questions, _start_node_peer),
    BenchmarkSide("postgraphile", "PostGraphile 5 (Node)", BOTH[:1], False, questions.generated_graphql_questions, _start_node_peer),
    BenchmarkSide("fastapi", "FastAPI + SQLModel", BOTH, True, questions.route_questions, _start_python_peer),
    BenchmarkSide("strawberry", "strawberry + DataLoaders", BOTH, True, questions.graphql_questions, _start_python_peer),
)
"""In the order of the table."""
UNSUPPORTED_QUESTIONS = {
    ("v3", "join"),
    ("mercurius", "note"),
    ("postgraphile", "note"),
    *((side, "projects") for side in ("floor", "mercurius", "postgraphile", "strawberry")),
}
"""Questions that a side is not asked: v3 has no such call, the peers on Node were written without mutations, and the list of projects is
compared with FastAPI alone."""
