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

from graph.context import Services
from graph.fields.declarations import ENTITIES
from graph.http.responses import serialize_result
from graph.operations.execution import Graph
from graph.schema import graphql_schema
from storage.database.engine import Database
from storage.migrations import upgrade
from storage.objects.folder_store import FolderStore
from storage.objects.uploads import UploadStore
from storage.secrets import Passwords, TokenCipher, load_key
from tests.make import EXTERNAL_URL, FAST_PASSWORD_HASHER, DataFactory, token_of
from tests.support.arguments import ArgumentPool
from tests.support.databases import share_compiled_statements
from tests.support.oracle import FallbackCountingGraph, answers_equal, prepare_document, require_valid
from tests.support.query_generator import QueryGenerator
from tests.support.repositories import EditableRepositories
from tests.support.scenario import Scenario, create_scenario, valid_mutation_input
from tests.support.week_fixture import NOW

QUERIES = int(os.environ.get("FORGEFRONT_GENERATED_PAYLOADS", "0"))
"""Of each mutation, on each database."""
EXCLUDED_MUTATIONS = {"signIn", "signUp", "importMergeRequests", "registerRunner", "unregisterRunner", "claimBuild"}
"""Asked by nobody who is signed in, or by runners; or what they need is not in this world."""
EXCLUDED_FIELDS = frozenset(
    {
        *("cursor", "startCursor", "endCursor", "privateToken", "token", "value", "url", "secret", "stream", "runnersToken", "markdown"),
        *("runnersRegistrationToken", "webhookId", "durationSeconds", "queuedSeconds"),
    }
)
"""What holds a moment, a secret, or what was drawn by lot."""
MOMENT = re.compile(rb"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
OID = re.compile(rb"[0-9a-f]{40}")


@asynccontextmanager
async def open_scenario(url: str, folder: Path, histories: Path) -> AsyncIterator[Scenario]:
    """A world of its own, made as any other."""
    await asyncio.to_thread(upgrade, url)
    database = Database(url)
    repositories = EditableRepositories(folder / "repositories", database)
    share_compiled_statements(database)
    services = Services(
        database,
        repositories,
        Passwords(FAST_PASSWORD_HASHER),
        TokenCipher(load_key(folder, None)),
        UploadStore(folder / "uploads"),
        FolderStore(folder / "artifacts"),
        external_url=EXTERNAL_URL,
        clock=lambda: NOW,
    )
    try:
        yield await create_scenario(DataFactory(services, histories))
    finally:
        repositories.close()
        await database.close()


def normalized_result(outcome: Any) -> Any:
    return orjson.loads(OID.sub(b"", MOMENT.sub(b"", orjson.dumps(serialize_result(outcome, "")))))


class TestPayloads:
    async def test_are_the_same_with_and_without_plans(
        self, new_database: Callable[[], str], dialect: str, tmp_path: Path, histories: Path
    ) -> None:
        assert graphql_schema.mutation_type is not None
        nowhere = ArgumentPool([], {}, {entity.name: [] for entity in ENTITIES.values()})
        generator = QueryGenerator(graphql_schema, nowhere, EXCLUDED_FIELDS)
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        done = 0
        async with (
            open_scenario(new_database(), tmp_path / "a", histories) as one,
            open_scenario(new_database(), tmp_path / "b", histories) as other,
        ):
            for index, name in enumerate(graphql_schema.mutation_type.fields):
                # In the suite each database has one half of them.
                if name in EXCLUDED_MUTATIONS or (not QUERIES and index % 2 is (dialect == "sqlite")):
                    continue
                for seed in range(QUERIES or 1):
                    answers = []
                    planned = FallbackCountingGraph(one.make.services, planner=True)
                    for world, graph in ((one, planned), (other, Graph(other.make.services, planner=False))):
                        text, variables = generator.mutation(seed * 1000 + index, name, await valid_mutation_input(world, name, "AD"))
                        viewer = world.users["AD"]
                        assert viewer is not None
                        operation = prepare_document(require_valid(parse(text)))
                        answers.append(await graph.run(operation, variables, token_of(viewer), request_id="test"))
                    first, second = map(normalized_result, answers)
                    assert answers_equal(first, second), (text, variables, first, second)
                    assert answers[0].errors or not planned.fallback_count, (
                        f"graphql-core had to answer {text} {variables}: {planned.last_error!r}"
                    )
                    done += not answers[0].errors
        assert done > 25 * (QUERIES or 1)
