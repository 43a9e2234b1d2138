"""What mutations give is planned, and the same as without a plan: each is done in two equal worlds, one time with, one time without."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from graphql import parse

from graph.answers import result_of
from graph.context import Services
from graph.declare import ENTITIES
from graph.execute import Graph
from graph.schema import graphql_schema
from storage.artifact_folder import FolderStore
from storage.database import Database
from storage.git.repositories import Repositories
from storage.migrations import upgrade
from storage.secrets import Passwords, TokenCipher, load_key
from storage.uploads import Uploads
from tests.compared import Watched, prepared, same, valid
from tests.databases import share_compiled
from tests.drawn import Drawn
from tests.generated import Generator
from tests.make import EXTERNAL_URL, QUICK, Make, token_of
from tests.story import NOW
from tests.world import World, made, mutation_input

QUERIES = int(os.environ.get("FORGEFRONT_GENERATED_PAYLOADS", "0"))
"""Of each mutation, on each database."""
NOT_TRIED = {"signIn", "signUp", "importMergeRequests", "registerRunner", "unregisterRunner", "claimBuild"}
"""Asked by nobody who is signed in, or by runners; or what they need is not in this world."""
NEVER = frozenset(
    {
        *("cursor", "startCursor", "endCursor", "privateToken", "token", "value", "url", "secret", "stream", "runnersToken", "markdown"),
        *("runnersRegistrationToken", "webhookId", "durationSeconds", "queuedSeconds"),
    }
)
"""What holds a moment, a secret, or what was drawn by lot."""
MOMENT = re.compile(rb"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
OID = re.compile(rb"[0-9a-f]{40}")


@asynccontextmanager
async def a_world(url: str, folder: Path, histories: Path) -> AsyncIterator[World]:
    """A world of its own, made as any other."""
    await asyncio.to_thread(upgrade, url)
    database, repositories = Database(url), Repositories(folder / "repositories")
    share_compiled(database)
    services = Services(
        database,
        repositories,
        Passwords(QUICK),
        TokenCipher(load_key(folder, None)),
        Uploads(folder / "uploads"),
        FolderStore(folder / "artifacts"),
        external_url=EXTERNAL_URL,
        clock=lambda: NOW,
    )
    try:
        yield await made(Make(services, histories))
    finally:
        repositories.close()
        await database.close()


def told(outcome: Any) -> Any:
    return orjson.loads(OID.sub(b"", MOMENT.sub(b"", orjson.dumps(result_of(outcome, "")))))


class TestPayloads:
    async def test_are_the_same_with_and_without_plans(
        self, new_database: Callable[[], str], dialect: str, tmp_path: Path, histories: Path
    ) -> None:
        assert graphql_schema.mutation_type is not None
        nowhere = Drawn([], {}, {entity.name: [] for entity in ENTITIES.values()})
        generator = Generator(graphql_schema, nowhere, NEVER)
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        done = 0
        async with a_world(new_database(), tmp_path / "a", histories) as one, a_world(new_database(), tmp_path / "b", histories) as other:
            for place, name in enumerate(graphql_schema.mutation_type.fields):
                # In the suite each database has one half of them.
                if name in NOT_TRIED or (not QUERIES and place % 2 is (dialect == "sqlite")):
                    continue
                for seed in range(QUERIES or 1):
                    answers = []
                    planned = Watched(one.make.services, planner=True)
                    for world, graph in ((one, planned), (other, Graph(other.make.services, planner=False))):
                        text, variables = generator.mutation(seed * 1000 + place, name, await mutation_input(world, name, "AD"))
                        viewer = world.users["AD"]
                        assert viewer is not None
                        operation = prepared(valid(parse(text)))
                        answers.append(await graph.run(operation, variables, token_of(viewer), request_id="test"))
                    first, second = map(told, answers)
                    assert same(first, second), (text, variables, first, second)
                    assert answers[0].errors or not planned.left, f"graphql-core had to answer {text} {variables}: {planned.raised!r}"
                    done += not answers[0].errors
        assert done > 25 * (QUERIES or 1)
