"""Failures in a planned query are those of an unplanned one: the same codes and paths, never a partial answer."""

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import orjson
import pytest
import structlog
from structlog.testing import capture_logs

from graph.context import Services
from graph.errors import Code
from graph.fields.entities import global_id
from graph.http.responses import serialize_result
from graph.operations.execution import Graph, prepare
from graph.operations.results import OperationResult
from storage.database.engine import Database, ReadSession
from tests.make import DataFactory, token_of
from tests.support.api_clients import Ask
from tests.support.queries.oracle import answers_equal
from tests.support.week_fixture import WeekData, create_week

QUERY = prepare(
    """query Q {
      project(path: "acme/web") {
        name
        issues(first: 2) { totalCount nodes { title author { username } labels notes(first: 1) { nodes { body } } } }
        mergeRequests(first: 2) { nodes { noteCount } }
      }
      user(username: "bob") { name }
    }""",
    "Q",
)
UNAVAILABLE_ERROR: dict[str, list[Exception]] = {
    "sqlite": [sqlite3.OperationalError("database is locked"), TimeoutError()],
    "postgresql": [
        ConnectionError("the database cannot be reached"),
        asyncpg.exceptions.QueryCanceledError("canceling statement due to statement timeout"),
        asyncpg.exceptions.AdminShutdownError("terminating connection due to administrator command"),
        asyncpg.exceptions.InterfaceError("connection is closed"),
    ],
}
"""What the drivers raise where the database cannot answer; the third and the fourth follow upon each other."""


class FailingStatements:
    """Has statements fail, from the one of this number on, or that one alone; the one that finds the caller does not count."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.error: Exception | None = None
        self.begin, self.once, self.asked = 0, False, 0
        fetch = ReadSession.fetch

        async def failing(session: ReadSession, text: str, parameters: Any, *columns: Any) -> Any:
            self.asked += "tokens" not in text
            if self.error is not None and (self.asked == self.begin if self.once else self.asked >= self.begin) and "tokens" not in text:
                raise self.error
            return await fetch(session, text, parameters, *columns)

        patch.setattr(ReadSession, "fetch", failing)

    def fail_at(self, number: int, error: Exception, *, once: bool = False) -> None:
        self.error, self.begin, self.once, self.asked = error, number, once, 0


@pytest.fixture
def failing_statements(monkeypatch: pytest.MonkeyPatch) -> FailingStatements:
    return FailingStatements(monkeypatch)


@pytest.fixture
def no_log() -> Iterator[None]:
    def drop(*_: Any) -> Any:
        raise structlog.DropEvent

    structlog.configure(processors=[drop])
    yield
    structlog.reset_defaults()


@pytest.fixture
async def week(make: DataFactory, tmp_path: Path) -> WeekData:
    return await create_week(make, tmp_path / "story.git")


class FailureScenario:
    def __init__(self, services: Services, story: WeekData) -> None:
        self.planned, self.plain = Graph(services, planner=True), Graph(services, planner=False)
        self.token = token_of(story.ann)

    async def __call__(self, graph: Graph, seconds: float = 10) -> OperationResult:
        return await graph.run(QUERY, {}, self.token, request_id="test", seconds=seconds)


@pytest.fixture
def ask(services: Services, week: WeekData, no_log: None) -> FailureScenario:
    return FailureScenario(services, week)


def codes(outcome: OperationResult) -> set[Code]:
    return {problem.code for problem in outcome.errors}


class TestUnavailableDatabase:
    async def test_is_reported_at_the_field(self, ask: FailureScenario, failing_statements: FailingStatements, dialect: str) -> None:
        whole = await ask(ask.planned)
        statements = failing_statements.asked
        assert whole.errors == [] and statements > 1
        for error in UNAVAILABLE_ERROR[dialect]:
            for number in range(1, statements + 1):
                failing_statements.fail_at(number, error)
                found = await ask(ask.planned)
                assert codes(found) == {Code.UNAVAILABLE}
                assert all(problem.path for problem in found.errors)
                if number == 1:
                    failing_statements.fail_at(number, error)
                    assert answers_equal(serialize_result(found, ""), serialize_result(await ask(ask.plain), ""))

    async def test_one_failed_statement_gives_the_answer_or_the_error(
        self, ask: FailureScenario, failing_statements: FailingStatements, dialect: str
    ) -> None:
        whole = await ask(ask.plain)
        for number in range(1, 5):
            failing_statements.fail_at(number, UNAVAILABLE_ERROR[dialect][0], once=True)
            found = await ask(ask.planned)
            assert orjson.dumps(found.data) == orjson.dumps(whole.data) if not found.errors else codes(found) == {Code.UNAVAILABLE}

    async def test_terminated_connections_are_reported(self, ask: FailureScenario, database: Database, dialect: str) -> None:
        if dialect != "postgresql":
            return
        whole = await ask(ask.planned)
        for graph in (ask.planned, ask.plain):
            other = await database.connect_unpooled()
            for reader in database.reader_pool._idle:
                await other.execute("SELECT pg_terminate_backend($1, 5000)", reader._connection.get_server_pid())  # type: ignore[attr-defined]
            await other.close()
            found = await ask(graph)
            assert codes(found) <= {Code.UNAVAILABLE}
            assert found.errors or found.data == whole.data
            assert (await ask(graph)).data == whole.data


class TestServiceFault:
    @pytest.mark.fails_plans
    async def test_is_masked_identically(self, ask: FailureScenario, failing_statements: FailingStatements) -> None:
        for number in (1, 2):
            failing_statements.fail_at(number, sqlite3.DatabaseError("malformed"))
            found = await ask(ask.planned)
            assert codes(found) == {Code.INTERNAL}
            failing_statements.fail_at(1, sqlite3.DatabaseError("malformed"))
            assert answers_equal(serialize_result(found, ""), serialize_result(await ask(ask.plain), ""))


class TestDeadline:
    async def test_ends_the_whole_operation(self, ask: FailureScenario, monkeypatch: pytest.MonkeyPatch) -> None:
        fetch = ReadSession.fetch

        async def slow(session: ReadSession, text: str, parameters: Any, *columns: Any) -> Any:
            found = await fetch(session, text, parameters, *columns)
            await asyncio.sleep(30 if "issues" in text else 0)
            return found

        monkeypatch.setattr(ReadSession, "fetch", slow)
        found, expected = [await ask(graph, seconds=0.2) for graph in (ask.planned, ask.plain)]
        assert serialize_result(found, "") == serialize_result(expected, "")
        assert found.data is None and codes(found) == {Code.UNAVAILABLE}


class TestUnreachedFields:
    TEXT = """mutation ($id: ID!, $n: Int = 5) { updateIssue(input: {id: $id, title: ""}) { userErrors { code }
        issue { project { branch(name: "master") { history(first: $n) { nodes { id } } } } } } }"""

    async def test_do_not_fail_the_plan(self, services: Services, make: DataFactory) -> None:
        issue = await make.issue(await make.project(owner=(owner := await make.user())))
        ask = Ask(Graph(services, planner=True))

        with capture_logs() as lines:
            outcomes = [await ask(self.TEXT, owner, id=str(global_id("Issue", issue.id)), n=None) for _ in range(4)]

        assert [outcome.errors for outcome in outcomes] == [[]] * 4
        assert lines == []
