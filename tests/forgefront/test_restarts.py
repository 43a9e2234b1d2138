"""Subscriptions go on by themselves after the service was stopped or killed: nothing is missed, nothing comes twice.

`tests/reliability/test_restarts.py` does the same through twenty restarts.
"""

from pathlib import Path

import pytest

from tests.forge import Ask
from tests.forgefront.browser import CHROMIUM, chromium
from tests.forgefront.restarts import AsyncFollower, NodeFollower, PageFollower, Restarts, ThreadFollower, generated_client
from tests.make import Make
from tests.npm import install

CLIENTS = Path(__file__).parent / "clients"


@pytest.fixture
def dialect() -> str:
    """The streams are the same over either."""
    return "sqlite"


@pytest.fixture
async def restarts(make: Make, ask: Ask, database_url: str, tmp_path: Path) -> Restarts:
    owner = await make.user("olga")
    project = await make.project(owner=owner, builds_enabled=True)
    (tmp_path / "data").mkdir()
    return Restarts(make, ask, database_url, tmp_path / "data", owner, project)


async def test_generated_clients_resume_after_a_stop_and_a_kill(restarts: Restarts, tmp_path: Path) -> None:
    with generated_client(tmp_path) as module:

        async def start(forge: Restarts) -> None:
            forge.followers["asynchronous"] = AsyncFollower(module, forge.url, forge.token)
            forge.followers["synchronous"] = ThreadFollower(module, forge.url, forge.token)

        await restarts.run(2, start)


@pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: chromium (apt install chromium)")
async def test_pages_resume_after_a_stop_and_a_kill(restarts: Restarts, tmp_path: Path) -> None:
    async with chromium(tmp_path / "profile") as page:

        async def start(forge: Restarts) -> None:
            path = f"olga/{forge.project.path}"
            forge.followers["page"] = await PageFollower.start(page, forge.url, forge.token, path)

        await restarts.run(2, start)


async def test_clients_of_npm_resume_after_a_stop_and_a_kill(restarts: Restarts) -> None:
    folder = install(CLIENTS, "npm's graphql-sse and graphql-ws, and GraphiQL's fetcher")

    async def start(forge: Restarts) -> None:
        for kind in ("sse", "ws", "graphiql"):
            forge.followers[f"graphql-{kind}"] = await NodeFollower.start(folder, kind, forge.url, forge.token)

    await restarts.run(2, start)
