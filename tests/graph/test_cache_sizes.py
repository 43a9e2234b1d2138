"""What caches say they hold is what they take in memory, within a factor of two."""

import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from graph.execute import Graph
from graph.operations import Texts
from graph.planning import keeping, paging
from graph.planning.arguments import ARGUMENT_VALUES, value_size
from graph.remembering import BYTES_PER_CHARACTER
from graph.schema import graphql_schema
from graph.types.issues import IssueFilter
from graph.viewers import Viewers
from storage import tables
from storage.caches import LruCache
from storage.database import now
from storage.reading import Plans
from storage.secrets import digest
from storage.tables import IssueState
from tests.drawn import Drawn, draw
from tests.generated import Generator
from tests.make import Make, token_of
from tests.town import Town, settle

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    # Measuring collects garbage, also what earlier tests have left.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
FACTOR = 2.0
QUERIES = 12


@pytest.fixture
async def town(make: Make, tmp_path: Path) -> Town:
    return await settle(make, tmp_path / "town.git")


@pytest.fixture
async def drawn(town: Town, make: Make) -> Drawn:
    return await draw(town, Graph(make.services, planner=False), cursors=False)


async def taken(work: Callable[[], Awaitable[Any]]) -> tuple[int, Any]:
    """The bytes that work leaves allocated, and what it gives."""
    gc.collect()
    tracemalloc.start()
    try:
        found = await work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0], found
    finally:
        tracemalloc.stop()


def is_close(name: str, said: int, true: int) -> None:
    print(f"{name}: said {said:,}, true {true:,}, {said / true:.2f}")
    assert true / FACTOR <= said <= true * FACTOR, f"{name}: {said:,} are said to be used, {true:,} are"


class TestQueries:
    async def test_documents_plans_and_statements(self, town: Town, drawn: Drawn, make: Make) -> None:
        graph, token = Graph(make.services, planner=True), token_of(town.viewers["admin"])
        graph._texts = Texts()
        generator = Generator(graphql_schema, drawn)
        statements = make.services.database.plans._kept

        async def ask(numbers: range, times: int) -> list[Any]:
            kept = []
            for number in numbers:
                text, variables = generator.query(number)
                for _ in range(times):
                    await graph.run_text(text, variables, None, token, request_id="size")
                kept.append(graph._texts.known(text, None))
            return kept

        # What all share is made before.
        await ask(range(20), 2)
        bytes_of: list[Callable[[], int]] = [lambda: statements.bytes, lambda: paging._STATEMENTS.bytes, lambda: keeping._PLANS.bytes]
        documents: Callable[[], int] = lambda: graph._texts._read._in_use.bytes + graph._texts._read._new.bytes  # noqa: E731

        texts = [generator.query(number)[0] for number in range(1000, 1000 + QUERIES)]

        async def read() -> list[Any]:
            return [await graph._texts.read(text, None) for text in texts]

        true, held = await taken(read)
        is_close("documents", sum(BYTES_PER_CHARACTER * len(text) for text in texts), true)

        before = [each() for each in bytes_of]
        true, again = await taken(lambda: ask(range(1000, 1000 + QUERIES), 3))
        said = [each() - old for each, old in zip(bytes_of, before, strict=True)]
        is_close(f"plans and statements {said} {documents()}", sum(said), true)
        del held, again


class TestTokens:
    async def test_tokens(self, make: Make) -> None:
        users = [await make.user(bio="b" * 200) for _ in range(50)]
        viewers, database = Viewers(), make.services.database
        for user in users[:5]:
            await viewers.find(database, digest(token_of(user)), now())

        async def find() -> None:
            for user in users:
                await viewers.find(database, digest(token_of(user)), now())

        true, _ = await taken(find)
        cache: LruCache[Any, Any] = viewers._known
        is_close("tokens", cache.bytes * 45 // 50, true)


class TestStatements:
    async def test_statements_by_their_structure(self, make: Make) -> None:
        """Of different conditions, tables and orders, with lists of one value and of several."""
        database = make.services.database
        plans = Plans(database.engine.dialect)
        issue, request = tables.Issue, tables.MergeRequest

        async def bind(numbers: range) -> None:
            for number in numbers:
                table: Any = (issue, request)[number % 2]
                keys = [
                    each
                    for place, each in enumerate((table.iid, table.author_id, table.assignee_id, table.milestone_id))
                    if number >> place & 1
                ]
                statement = select(table, tables.User).join(tables.User, col(tables.User.id) == col(table.author_id))
                for values in ([1], [1, 2]):
                    some = statement.where(*(col(key).in_(values) for key in keys), *(col(table.title) != "" for _ in range(number % 7)))
                    plans.bind(some.order_by(col(table.id)).limit(number % 50 + 1), None)

        await bind(range(20))
        before = plans._kept.bytes
        true, _ = await taken(lambda: bind(range(20, 120)))
        is_close("statements", plans._kept.bytes - before, true)

    async def test_argument_values(self) -> None:
        """Of filters with a list and a word, by the values of their variables."""

        def value(number: int) -> tuple[tuple[int, str], dict[str, Any]]:
            given = {
                "labels": [f"label {number} {place}" for place in range(number % 10)],
                "state": [IssueState.OPENED],
                "search": f"w{number}",
            }
            return (1, repr(given)), {"filter": IssueFilter(**given)}

        cache: LruCache[Any, Any] = LruCache(ARGUMENT_VALUES, value_size)

        async def put() -> None:
            for number in range(200):
                cache.put(*value(number))

        value(0)
        true, _ = await taken(put)
        is_close("argument values", cache.bytes, true)
