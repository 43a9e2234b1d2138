"""The sides of the table: Forgefront, its peers, and the floor; each is one server process."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import packages, questions, servers
from benchmarks.data import Data
from benchmarks.peers.engine import DATABASE
from benchmarks.questions import Question
from benchmarks.runs import BOTH
from benchmarks.servers import Server
from storage.database import driver_url


@dataclass(frozen=True)
class Place:
    """Where a side runs: the folder of the data set, its database, and the folder of packages of Node."""

    folder: Path
    url: str
    logs: Path
    cache: Path
    pinned: bool


@dataclass(frozen=True)
class Side:
    """`signs_in`: whether it looks up the caller and what he may see, as the service does. `start` raises NotThereError.

    `served_by` names an earlier side whose process answers this one's questions too, so that it has no process of its own.
    """

    name: str
    title: str
    databases: tuple[str, ...]
    signs_in: bool
    asked: Callable[[Data], dict[str, Question]]
    start: Callable[["Side", Place, Callable[[str], None]], AbstractContextManager[Server]]
    served_by: str | None = None


def _ours(side: Side, place: Place, say: Callable[[str], None]) -> AbstractContextManager[Server]:
    return servers.ours(place.folder, place.url, pinned=place.pinned)


def _python(side: Side, place: Place, say: Callable[[str], None]) -> AbstractContextManager[Server]:
    port = servers.free_port()
    quiet = ["--no-access-log"] if side.name == "floor" else []
    command = [sys.executable, "-m", "uvicorn", "--factory", f"benchmarks.peers.{side.name}_app:create_app", *quiet]
    url = place.url if side.name == "floor" else driver_url(place.url).render_as_string(hide_password=False)
    return _running(side, place, [*command, "--host", "127.0.0.1", "--port", str(port)], {DATABASE: url}, port)


def _node(side: Side, place: Place, say: Callable[[str], None]) -> AbstractContextManager[Server]:
    command = packages.command_of(side.name, place.cache, say)
    port = servers.free_port()
    given = {DATABASE: place.url, "PORT": str(port), "NODE_ENV": "production", "GRAPHILE_ENV": "production"}
    return _running(side, place, command, given, port)


def _running(side: Side, place: Place, command: list[str], given: dict[str, str], port: int) -> AbstractContextManager[Server]:
    return servers.running(side.name, command, given, port, "/", place.logs / f"{side.name}.log", pinned=place.pinned)


SIDES = (
    Side("forgefront", "Forgefront, POST /graphql", BOTH, True, questions.of_graph, _ours),
    Side("v3", "Forgefront, REST v3", BOTH, True, questions.of_v3, _ours, served_by="forgefront"),
    Side("floor", "floor: handwritten SQL, orjson, Starlette", BOTH, False, questions.of_routes, _python),
    Side("mercurius", "mercurius + graphql-jit (Node)", BOTH[:1], False, questions.of_graph, _node),
    Side("postgraphile", "PostGraphile 5 (Node)", BOTH[:1], False, questions.of_generated_graph, _node),
    Side("fastapi", "FastAPI + SQLModel", BOTH, True, questions.of_routes, _python),
    Side("strawberry", "strawberry + DataLoaders", BOTH, True, questions.of_graph, _python),
)
"""In the order of the table."""
WITHOUT = {("v3", "join"), ("mercurius", "note"), ("postgraphile", "note")}
"""Questions that a side is not asked: v3 has no such call, and the peers on Node were written without mutations."""
