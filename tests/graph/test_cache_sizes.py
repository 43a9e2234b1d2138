"""What caches say they hold is what they take in memory, within a factor of two."""

import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from graph.execute import Graph
from graph.operations import Texts
from graph.planning import keeping, paging
from graph.remembering import BYTES_PER_CHARACTER
from graph.schema import graphql_schema
from graph.viewers import Viewers
from storage.caches import LruCache
from storage.database import now
from storage.secrets import digest
from tests.drawn import Drawn, draw
from tests.generated import Generator
from tests.make import Make, token_of
from tests.town import Town, settle

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
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
                kept.append(graph._texts.find(text, None))
            return kept

        # What all share is made before.
        await ask(range(20), 2)
        bytes_of: list[Callable[[], int]] = [lambda: statements.bytes, lambda: paging._STATEMENTS.bytes, lambda: keeping._PLANS.bytes]
        documents: Callable[[], int] = lambda: graph._texts._read._in_use.bytes + graph._texts._read._new.bytes  # noqa: E731

        texts = [generator.query(number)[0] for number in range(1000, 1000 + QUERIES)]

        async def read() -> list[Any]:
            return [graph._texts.find(text, None) for text in texts]

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
