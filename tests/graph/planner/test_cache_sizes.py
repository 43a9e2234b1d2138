"""The sizes that caches report are within a factor of two of the memory that they use."""

import gc
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from graph.documents.document_cache import BYTES_PER_CHARACTER
from graph.documents.documents import DocumentStore
from graph.http.known_requests import KNOWN_REQUESTS, request_size
from graph.http.requests import parse_json, parse_request
from graph.operations.execution import Graph
from graph.operations.token_cache import TokenCache
from graph.planner import cache
from graph.planner.coerce.arguments import ARGUMENT_CACHE_BOUNDS, value_size
from graph.planner.sql import statements as plan_statements
from graph.schema import graphql_schema
from graph.types.issues.issues import IssueFilter
from storage import tables
from storage.caches import LruCache
from storage.database.clock import now
from storage.database.statements.statement_cache import StatementCache
from storage.secrets import digest_token
from storage.tables import IssueState
from tests.make import DataFactory, token_of
from tests.support.measuring.measured_memory import measure_memory
from tests.support.queries.arguments import ArgumentPool, collect_arguments
from tests.support.queries.edge_case_data import EdgeCaseData, create_edge_cases
from tests.support.queries.query_generator import QueryGenerator

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    # Measuring collects garbage, also what earlier tests have left.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
FACTOR = 2.0
QUERIES = 12


@pytest.fixture
async def edge_cases(make: DataFactory, tmp_path: Path) -> EdgeCaseData:
    return await create_edge_cases(make, tmp_path / "town.git")


@pytest.fixture
async def argument_pool(edge_cases: EdgeCaseData, make: DataFactory) -> ArgumentPool:
    return await collect_arguments(edge_cases, Graph(make.services, planner=False), cursors=False)


async def measure_bytes(work: Callable[[], Awaitable[Any]]) -> tuple[int, Any]:
    """The bytes that work leaves allocated, and what it gives."""
    with measure_memory() as measured:
        found = await work()
        gc.collect()
    return measured.bytes, found


def assert_close(name: str, estimated: int, measured: int) -> None:
    print(f"{name}: said {estimated:,}, true {measured:,}, {estimated / measured:.2f}")
    assert measured / FACTOR <= estimated <= measured * FACTOR, f"{name}: {estimated:,} are said to be used, {measured:,} are"


class TestQueries:
    async def test_documents_plans_and_statements(self, edge_cases: EdgeCaseData, argument_pool: ArgumentPool, make: DataFactory) -> None:
        # Full caches of the process would drop entries of other tests for each new one.
        for full in (plan_statements._STATEMENTS, cache._TEXT_PLAN_SIZES):
            for key in [*full._entries]:
                full.pop(key)  # type: ignore[arg-type]
        graph, token = Graph(make.services, planner=True), token_of(edge_cases.viewers["admin"])
        graph._documents = DocumentStore()
        generator = QueryGenerator(graphql_schema, argument_pool)
        statements = make.services.database.statement_cache._selects

        async def ask(numbers: range, times: int) -> list[Any]:
            stored = []
            for number in numbers:
                text, variables = generator.query(number)
                for _ in range(times):
                    await graph.run_document(text, variables, None, token, request_id="size")
                stored.append(graph._documents.find(text, None))
            return stored

        # What all share is made before.
        await ask(range(20), 2)
        bytes_of: list[Callable[[], int]] = [
            lambda: statements.bytes,
            lambda: plan_statements._STATEMENTS.bytes,
            lambda: cache._TEXT_PLAN_SIZES.bytes,
        ]
        documents: Callable[[], int] = lambda: graph._documents._cache._in_use.bytes + graph._documents._cache._new.bytes  # noqa: E731

        texts = [generator.query(number)[0] for number in range(1000, 1000 + QUERIES)]

        async def read() -> list[Any]:
            return [await graph._documents.parse(text, None) for text in texts]

        true, held = await measure_bytes(read)
        assert_close("documents", sum(BYTES_PER_CHARACTER * len(text) for text in texts), true)

        before = [each() for each in bytes_of]
        true, again = await measure_bytes(lambda: ask(range(1000, 1000 + QUERIES), 3))
        output = [each() - old for each, old in zip(bytes_of, before, strict=True)]
        assert_close(f"plans and statements {output} {documents()}", sum(output), true)
        del held, again


class TestTokens:
    async def test_tokens(self, make: DataFactory) -> None:
        users = [await make.user(bio="b" * 200) for _ in range(50)]
        viewers, database = TokenCache(), make.services.database
        for user in users[:5]:
            await viewers.find(database, digest_token(token_of(user)), now())

        async def find() -> None:
            for user in users:
                await viewers.find(database, digest_token(token_of(user)), now())

        true, _ = await measure_bytes(find)
        cache: LruCache[Any, Any] = viewers._entries
        assert_close("tokens", cache.bytes * 45 // 50, true)


class TestStatements:
    async def test_statements_by_their_structure(self, make: DataFactory) -> None:
        """Of different conditions, tables and orders, with lists of one value and of several."""
        database = make.services.database
        plans = StatementCache(database.engine.dialect)
        issue, request = tables.Issue, tables.MergeRequest

        async def bind(numbers: range) -> None:
            for number in numbers:
                table: Any = (issue, request)[number % 2]
                keys = [
                    each
                    for index, each in enumerate((table.iid, table.author_id, table.assignee_id, table.milestone_id))
                    if number >> index & 1
                ]
                statement = select(table, tables.User).join(tables.User, col(tables.User.id) == col(table.author_id))
                for values in ([1], [1, 2]):
                    some = statement.where(*(col(key).in_(values) for key in keys), *(col(table.title) != "" for _ in range(number % 7)))
                    plans.bind(some.order_by(col(table.id)).limit(number % 50 + 1), None)

        await bind(range(20))
        before = plans._selects.bytes
        true, _ = await measure_bytes(lambda: bind(range(20, 120)))
        assert_close("statements", plans._selects.bytes - before, true)

    async def test_requests(self, make: DataFactory) -> None:
        """The body, the text in it, and the variables, with what was found out about them."""
        query = "query Titles($path: String!) { project(path: $path) { issues(first: 20) { nodes { title description } } } }"
        graph, token = Graph(make.services), token_of(await make.user())
        bodies = [json.dumps({"query": query, "variables": {"path": str(number)}}).encode() for number in range(1, 200)]
        cache: LruCache[Any, Any] = LruCache(KNOWN_REQUESTS, request_size)

        async def ask(bodies: list[bytes]) -> None:
            for body in bodies:
                request = parse_request(parse_json(body, "The body"))
                await graph.run_document(request.query, request.variables, None, token, request_id="size", checks=request.checks)
                cache.put(bytes(bytearray(body)), request)

        await ask(bodies[:10])
        before = cache.bytes
        true, _ = await measure_bytes(lambda: ask(bodies[10:]))
        assert_close("requests", cache.bytes - before, true)

    async def test_argument_values(self) -> None:
        """Of filters with a list and a word, by the values of their variables."""

        def value(number: int) -> tuple[tuple[int, str], dict[str, Any]]:
            values = {
                "labels": [f"label {number} {index}" for index in range(number % 10)],
                "state": [IssueState.OPENED],
                "search": f"w{number}",
            }
            return (1, repr(values)), {"filter": IssueFilter(**values)}

        cache: LruCache[Any, Any] = LruCache(ARGUMENT_CACHE_BOUNDS, value_size)

        async def put() -> None:
            for number in range(200):
                cache.put(*value(number))

        value(0)
        true, _ = await measure_bytes(put)
        assert_close("argument values", cache.bytes, true)
