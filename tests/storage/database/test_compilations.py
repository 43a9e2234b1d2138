"""Statements are compiled one in an iteration of the event loop, so that compiling several blocks it no longer than one."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import Select, literal, select

from storage.database.engine import Database
from storage.database.statements import compiled_statements
from storage.database.statements.compiled_statements import COMPILATIONS
from storage.database.statements.statement_cache import StatementCache, mark_constant


class EventLoopIterations:
    """Counts the iterations of the event loop."""

    def __init__(self) -> None:
        self.number = 0
        self._next = asyncio.get_running_loop().call_soon(self._count)

    def _count(self) -> None:
        self.number += 1
        self._next = asyncio.get_running_loop().call_soon(self._count)

    def stop(self) -> None:
        self._next.cancel()


def new_statement(number: int) -> Select[int]:
    """A statement with a structure of its own."""
    return select(literal(number).label(f"number_{number}"))


@pytest.fixture
async def iterations() -> AsyncIterator[EventLoopIterations]:
    found = EventLoopIterations()
    yield found
    found.stop()


@pytest.fixture
def compiled_at(monkeypatch: pytest.MonkeyPatch, iterations: EventLoopIterations) -> list[int]:
    """In which iterations statements were compiled."""
    found: list[int] = []
    read_compiled = StatementCache._read_compiled

    def record(*arguments: Any) -> Any:
        found.append(iterations.number)
        return read_compiled(*arguments)

    monkeypatch.setattr(StatementCache, "_read_compiled", record)
    return found


class TestCompilations:
    async def test_reads_at_once_compile_one_after_another(self, database: Database, compiled_at: list[int]) -> None:
        async def read(number: int) -> None:
            async with database.read_session() as session:
                assert await session.read(new_statement(number)) == [(number,)]

        await asyncio.gather(*map(read, range(4)))
        assert len(compiled_at) == len(set(compiled_at)) == 4

    async def test_a_constant_statement_is_compiled_after_the_iteration_in_which_it_was_built(
        self, database: Database, compiled_at: list[int], iterations: EventLoopIterations
    ) -> None:
        async with database.read_session() as session:
            await session.read(new_statement(4))
            built_at, statement = iterations.number, mark_constant(new_statement(5))
            assert await session.read(statement) == [(5,)]
        assert compiled_at[-1] > built_at

    async def test_what_is_compiled_already_waits_for_nothing(self, database: Database, iterations: EventLoopIterations) -> None:
        async with database.read_session() as session:
            await session.read(new_statement(6))
            await COMPILATIONS.let_others_run()
            assert not COMPILATIONS.are_new
            if database.dialect == "sqlite":
                before = iterations.number
                await session.read(new_statement(6))
                assert iterations.number == before

    async def test_others_that_compile_all_the_time_delay_a_read_only_briefly(self, iterations: EventLoopIterations) -> None:
        async def compile_always() -> None:
            while True:
                COMPILATIONS.add()
                await asyncio.sleep(0)

        always = asyncio.create_task(compile_always())
        await asyncio.sleep(0)
        before = iterations.number
        await COMPILATIONS.let_others_run()
        always.cancel()
        assert iterations.number - before == compiled_statements.MAX_WAITING_ITERATIONS
