"""Subscriptions through twenty restarts: every client resumes automatically, misses no event and receives none twice."""

from collections.abc import Callable
from pathlib import Path

from tests.forgefront.client.test_restarts import CLIENTS
from tests.forgefront.support.restart_scenario import (
    AsyncStreamClient,
    NodeStreamClient,
    RestartScenario,
    ThreadStreamClient,
    generated_client,
)
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.npm import install_packages
from tests.support.reliability_promises import promise, scaled_count
from tests.support.servers.server_process import create_data_folder

RESTARTS = scaled_count(20)


@promise("R20")
async def test_clients_resume_through_stops_and_kills(
    make: DataFactory, ask: Ask, database_url: str, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    owner = await make.user("olga")
    project = await make.project(owner=owner, builds_enabled=True)
    folder = install_packages(CLIENTS, "npm's graphql-sse and graphql-ws")
    forge = RestartScenario(make, ask, database_url, create_data_folder(tmp_path), owner, project)
    with generated_client(tmp_path) as module:

        async def start(forge: RestartScenario) -> None:
            forge.clients["asynchronous"] = AsyncStreamClient(module, forge.url, forge.token)
            forge.clients["synchronous"] = ThreadStreamClient(module, forge.url, forge.token)
            for kind in ("sse", "ws", "graphiql"):
                forge.clients[f"graphql-{kind}"] = await NodeStreamClient.start(folder, kind, forge.url, forge.token)

        await forge.run(RESTARTS, start)
    figure(
        f"{RESTARTS} restarts, by turns SIGTERM and SIGKILL: {len(forge.changed_build_ids)} events to each of "
        f"{len(forge.clients)} clients, 0 missed, 0 doubled"
    )
