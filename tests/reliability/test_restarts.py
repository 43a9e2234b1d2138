"""Subscriptions through twenty restarts: every client goes on by itself, misses nothing, and is told nothing twice."""

from collections.abc import Callable
from pathlib import Path

from tests.forge import Ask
from tests.forgefront.restarts import AsyncFollower, NodeFollower, Restarts, ThreadFollower, generated_client
from tests.forgefront.test_restarts import CLIENTS
from tests.make import Make
from tests.npm import install
from tests.promises import promise, promised

RESTARTS = promised(20)


@promise("R20")
async def test_clients_resume_through_stops_and_kills(
    make: Make, ask: Ask, database_url: str, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    owner = await make.user("olga")
    project = await make.project(owner=owner, builds_enabled=True)
    (tmp_path / "data").mkdir()
    folder = install(CLIENTS, "npm's graphql-sse and graphql-ws")
    forge = Restarts(make, ask, database_url, tmp_path / "data", owner, project)
    with generated_client(tmp_path) as module:

        async def start(forge: Restarts) -> None:
            forge.followers["asynchronous"] = AsyncFollower(module, forge.url, forge.token)
            forge.followers["synchronous"] = ThreadFollower(module, forge.url, forge.token)
            for kind in ("sse", "ws", "graphiql"):
                forge.followers[f"graphql-{kind}"] = await NodeFollower.start(folder, kind, forge.url, forge.token)

        await forge.run(RESTARTS, start)
    figure(
        f"{RESTARTS} restarts, by turns SIGTERM and SIGKILL: {len(forge.started)} events to each of {len(forge.followers)} clients, "
        "0 missed, 0 doubled"
    )
