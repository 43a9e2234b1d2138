"""Subscriptions resume after the service was stopped or killed: no event is missed or repeated.

`tests/reliability/test_restarts.py` does the same through twenty restarts.
"""

from pathlib import Path

import pytest

from tests.forgefront.support.browser import CHROMIUM, open_chromium
from tests.forgefront.support.restart_scenario import (
    AsyncStreamClient,
    NodeStreamClient,
    PageStreamClient,
    RestartScenario,
    ThreadStreamClient,
    generated_client,
)
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.npm import install_packages
from tests.support.servers.server_process import create_data_folder

CLIENTS = Path(__file__).parents[1] / "clients"


@pytest.fixture
def dialect() -> str:
    """The streams are the same over either."""
    return "sqlite"


@pytest.fixture
async def restarts(make: DataFactory, ask: Ask, database_url: str, tmp_path: Path) -> RestartScenario:
    owner = await make.user("olga")
    project = await make.project(owner=owner, builds_enabled=True)
    return RestartScenario(make, ask, database_url, create_data_folder(tmp_path), owner, project)


async def test_generated_clients_resume_after_a_stop_and_a_kill(restarts: RestartScenario, tmp_path: Path) -> None:
    with generated_client(tmp_path) as module:

        async def start(forge: RestartScenario) -> None:
            forge.clients["asynchronous"] = AsyncStreamClient(module, forge.url, forge.token)
            forge.clients["synchronous"] = ThreadStreamClient(module, forge.url, forge.token)

        await restarts.run(2, start)


@pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: chromium (apt install chromium)")
async def test_pages_resume_after_a_stop_and_a_kill(restarts: RestartScenario) -> None:
    async with open_chromium() as page:

        async def start(forge: RestartScenario) -> None:
            path = f"olga/{forge.project.path}"
            forge.clients["page"] = await PageStreamClient.start(page, forge.url, forge.token, path)

        await restarts.run(2, start)


async def test_clients_of_npm_resume_after_a_stop_and_a_kill(restarts: RestartScenario) -> None:
    folder = install_packages(CLIENTS, "npm's graphql-sse and graphql-ws, and GraphiQL's fetcher")

    async def start(forge: RestartScenario) -> None:
        for kind in ("sse", "ws", "graphiql"):
            forge.clients[f"graphql-{kind}"] = await NodeStreamClient.start(folder, kind, forge.url, forge.token)

    await restarts.run(2, start)
