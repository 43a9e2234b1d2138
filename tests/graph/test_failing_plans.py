"""What fails in a planned query fails as it does without a plan: the same codes, beside a path, and never a half of an answer."""

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

from graph.answers import result_of
from graph.context import Services
from graph.declare import global_id
from graph.errors import Code
from graph.execute import Graph, prepare
from graph.outcomes import Outcome
from storage.database import Database, ReadingSession
from tests.compared import same
from tests.forge import Ask
from tests.make import Make, token_of
from tests.story import Story, tell

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
AWAY: dict[str, list[Exception]] = {
    "sqlite": [sqlite3.OperationalError("database is locked"), TimeoutError()],
    "postgresql": [
        ConnectionError("the database cannot be reached"),
        asyncpg.exceptions.QueryCanceledError("canceling statement due to statement timeout"),
        asyncpg.exceptions.AdminShutdownError("terminating connection due to administrator command"),
        asyncpg.exceptions.InterfaceError("connection is closed"),
    ],
}
"""What the drivers raise where the database cannot answer; the third and the fourth follow upon each other."""


class Failing:
    """Has statements fail, from the one of this number on, or that one alone; the one that finds the caller does not count."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.error: Exception | None = None
        self.begin, self.once, self.asked = 0, False, 0
        fetch = ReadingSession.fetch

        async def failing(session: ReadingSession, text: str, parameters: Any) -> Any:
            self.asked += "tokens" not in text
            if self.error is not None and (self.asked == self.begin if self.once else self.asked >= self.begin) and "tokens" not in text:
                raise self.error
            return await fetch(session, text, parameters)

        patch.setattr(ReadingSession, "fetch", failing)

    def at(self, number: int, error: Exception, *, once: bool = False) -> None:
        self.error, self.begin, self.once, self.asked = error, number, once, 0


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    return Failing(monkeypatch)


@pytest.fixture
def no_log() -> Iterator[None]:
    def drop(*_: Any) -> Any:
        raise structlog.DropEvent

    structlog.configure(processors=[drop])
    yield
    structlog.reset_defaults()


@pytest.fixture
async def story(make: Make, tmp_path: Path) -> Story:
    return await tell(make, tmp_path / "story.git")


class Asking:
    def __init__(self, services: Services, story: Story) -> None:
        self.planned, self.plain = Graph(services, planner=True), Graph(services, planner=False)
        self.token = token_of(story.ann)

    async def __call__(self, graph: Graph, seconds: float = 10) -> Outcome:
        return await graph.run(QUERY, {}, self.token, request_id="test", seconds=seconds)


@pytest.fixture
def ask(services: Services, story: Story, no_log: None) -> Asking:
    return Asking(services, story)


def codes(outcome: Outcome) -> set[Code]:
    return {problem.code for problem in outcome.errors}


class TestADatabaseThatIsAway:
    async def test_is_told_where_it_was_asked(self, ask: Asking, failing: Failing, dialect: str) -> None:
        whole = await ask(ask.planned)
        statements = failing.asked
        assert whole.errors == [] and statements > 1
        for error in AWAY[dialect]:
            for number in range(1, statements + 1):
                failing.at(number, error)
                found = await ask(ask.planned)
                assert codes(found) == {Code.UNAVAILABLE}
                assert all(problem.path for problem in found.errors)
                if number == 1:
                    failing.at(number, error)
                    assert same(result_of(found, ""), result_of(await ask(ask.plain), ""))

    async def test_for_one_statement_gives_the_answer_or_the_error(self, ask: Asking, failing: Failing, dialect: str) -> None:
        whole = await ask(ask.plain)
        for number in range(1, 5):
            failing.at(number, AWAY[dialect][0], once=True)
            found = await ask(ask.planned)
            assert orjson.dumps(found.data) == orjson.dumps(whole.data) if not found.errors else codes(found) == {Code.UNAVAILABLE}

    async def test_whose_connections_are_ended(self, ask: Asking, database: Database, dialect: str) -> None:
        if dialect != "postgresql":
            return
        whole = await ask(ask.planned)
        for graph in (ask.planned, ask.plain):
            other = await database.connect_alone()
            for reader in database.readers._idle:
                await other.execute("SELECT pg_terminate_backend($1, 5000)", reader._connection.get_server_pid())  # type: ignore[attr-defined]
            await other.close()
            found = await ask(graph)
            assert codes(found) <= {Code.UNAVAILABLE}
            assert found.errors or found.data == whole.data
            assert (await ask(graph)).data == whole.data


class TestAFaultOfTheService:
    async def test_is_masked_the_same(self, ask: Asking, failing: Failing) -> None:
        for number in (1, 2):
            failing.at(number, sqlite3.DatabaseError("malformed"))
            found = await ask(ask.planned)
            assert codes(found) == {Code.INTERNAL}
            failing.at(1, sqlite3.DatabaseError("malformed"))
            assert same(result_of(found, ""), result_of(await ask(ask.plain), ""))


class TestADeadline:
    async def test_ends_the_whole_operation(self, ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
        fetch = ReadingSession.fetch

        async def slow(session: ReadingSession, text: str, parameters: Any) -> Any:
            found = await fetch(session, text, parameters)
            await asyncio.sleep(30 if "issues" in text else 0)
            return found

        monkeypatch.setattr(ReadingSession, "fetch", slow)
        found, wanted = [await ask(graph, seconds=0.2) for graph in (ask.planned, ask.plain)]
        assert result_of(found, "") == result_of(wanted, "")
        assert found.data is None and codes(found) == {Code.UNAVAILABLE}


class TestNullsOfFieldsThatAreNotReached:
    TEXT = """mutation ($id: ID!, $n: Int = 5) { updateIssue(input: {id: $id, title: ""}) { userErrors { code }
        issue { project { branch(name: "master") { history(first: $n) { nodes { id } } } } } } }"""

    async def test_are_no_failure_of_the_plan(self, services: Services, make: Make) -> None:
        issue = await make.issue(await make.project(owner=(owner := await make.user())))
        ask = Ask(Graph(services, planner=True))

        with capture_logs() as lines:
            outcomes = [await ask(self.TEXT, owner, id=str(global_id("Issue", issue.id)), n=None) for _ in range(4)]

        assert [outcome.errors for outcome in outcomes] == [[]] * 4
        assert lines == []
