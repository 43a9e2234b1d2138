"""Payloads of mutations are equal with and without a plan: each mutation runs on two equal databases."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from graphql import DocumentNode, parse

from graph.fields.entities import ENTITIES
from graph.http.responses import serialize_result
from graph.operations.execution import Graph
from graph.schema import graphql_schema
from storage.key_rotation import list_encrypted_columns
from tests.make import DataFactory, open_services, token_of
from tests.support.database import migrated_databases
from tests.support.database.ciphertexts import find_ciphertexts
from tests.support.queries.arguments import ArgumentPool
from tests.support.queries.oracle import FallbackCountingGraph, answers_equal, prepare_document, require_valid
from tests.support.queries.query_generator import QueryGenerator
from tests.support.scenario import Scenario, create_scenario, valid_mutation_input
from tests.support.week_fixture import NOW

QUERIES = int(os.environ.get("FORGEFRONT_GENERATED_PAYLOADS", "0"))
"""Of each mutation, on each database."""
EXCLUDED_MUTATIONS = {
    *("signIn", "signInByLink", "finishOpenIdSignIn", "signUp"),
    *("importMergeRequests", "registerRunner", "unregisterRunner", "claimBuild"),
}
"""Mutations for anonymous callers or runners, or whose objects are not in this data."""
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
    await asyncio.to_thread(migrated_databases.upgrade, url)
    async with open_services(url, folder, clock=lambda: NOW) as services:
        yield await create_scenario(DataFactory(services, histories))


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
                    answers, valid = [], dict[str, DocumentNode]()
                    planned = FallbackCountingGraph(one.make.services, planner=True)
                    for world, graph in ((one, planned), (other, Graph(other.make.services, planner=False))):
                        text, variables = generator.mutation(seed * 1000 + index, name, await valid_mutation_input(world, name, "AD"))
                        viewer = world.users["AD"]
                        assert viewer is not None
                        # Validating takes longer than running, and both have the same text.
                        document = valid[text] = valid.get(text) or require_valid(parse(text))
                        answers.append(await graph.run(prepare_document(document), variables, token_of(viewer), request_id="test"))
                    assert len(valid) == 1
                    first, second = map(normalized_result, answers)
                    assert answers_equal(first, second), (text, variables, first, second)
                    assert answers[0].errors or not planned.fallback_count, (
                        f"graphql-core had to answer {text} {variables}: {planned.last_error!r}"
                    )
                    done += not answers[0].errors
            declared = {f"{table.name}.{column.name}" for table, columns in list_encrypted_columns().items() for column in columns}
            assert (await find_ciphertexts(one.make.services.database)).keys() <= declared, "declare them by encrypted_text()"
        assert done > 25 * (QUERIES or 1)
