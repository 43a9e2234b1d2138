"""One answer for many who follow: given to all for whom it would be the same, and to nobody else."""

import asyncio
import signal
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update
from sqlmodel import col

from graph import telling
from graph.context import Context, Services
from graph.execute import Graph
from graph.live import Live
from graph.rules import builds
from graph.rules.policy import Action, may
from graph.subscribing import Stream
from graph.transaction import keep, session_for
from graph.watched import Watched
from storage import tables
from storage.tables import AccessLevel, CheckStatus, Visibility
from tests.followed import opened, told
from tests.make import Make
from tests.statements import Statements

WALL = "subscription { buildChanged { seq to build { databaseId project { path } commit { shortOid rollup { state } } } } }"
RESUMED = "subscription($after: String) { buildChanged(afterSeq: $after) { seq build { databaseId } } }"
CAN = "subscription { buildChanged { seq build { viewerCan { cancel } } } }"
OWN = "subscription { buildChanged { seq build { project { viewerCan { createIssue } } user { username email } mergeRequest { title } } } }"


async def start(services: Services, build: tables.Build, to: CheckStatus = CheckStatus.RUNNING) -> None:
    async with session_for(services.database, writing=True) as session:
        context = Context(services, session, None, "test")
        assert await builds.change(context, build, to) is not None
        await session.flush()
        await keep(context)
    await services.live.settle(services.database)


async def all_told(graph: Graph, viewers: list[tables.User], query: str, build: tables.Build) -> list[dict[str, Any]]:
    """What each of these is told when the build begins to run."""
    streams = [await opened(graph, viewer, query) for viewer in viewers]
    await start(graph.services, build)
    found = await asyncio.gather(*(told(stream) for stream in streams if isinstance(stream, Stream)))
    for stream in streams:
        assert isinstance(stream, Stream)
        stream.close()
    return found


@pytest.fixture
async def people(make: Make) -> list[tables.User]:
    return [await make.user() for _ in range(12)]


@pytest.fixture
async def build(make: Make, people: list[tables.User]) -> tables.Build:
    """Half of them are reporters, the others developers; the first made it."""
    levels = [AccessLevel.DEVELOPER if number % 2 else AccessLevel.REPORTER for number in range(len(people))]
    project = await make.project(history={"commits": 2}, members=list(zip(people, levels, strict=True)), builds_enabled=True)
    head = await make.services.repositories.read(project.id, lambda repository: repository.find("refs/heads/master"))
    assert head is not None
    return await make.build(project, head, user_id=people[0].id)


async def test_many_cost_what_few_do(graph: Graph, people: list[tables.User], build: tables.Build, statements: Statements) -> None:
    streams = [await opened(graph, viewer, WALL) for viewer in people]
    await start(graph.services, build)
    with statements.at_most(9):
        found = await asyncio.gather(*(told(stream) for stream in streams if isinstance(stream, Stream)))
    assert [event["build"]["databaseId"] for event in found] == [build.id] * len(people)
    assert found[0]["build"]["commit"]["rollup"] == {"state": "RUNNING"}
    for stream in streams:
        assert isinstance(stream, Stream)
        stream.close()


async def test_who_may_more_is_told_so(graph: Graph, people: list[tables.User], build: tables.Build) -> None:
    found = await all_told(graph, people, CAN, build)
    assert [event["build"]["viewerCan"]["cancel"] for event in found] == [bool(number % 2) for number in range(len(people))]


async def test_what_is_of_one_alone_is_told_to_that_one(graph: Graph, people: list[tables.User], build: tables.Build) -> None:
    """An e-mail address is shown to its owner; merge requests are those of projects that the viewer sees."""
    found = await all_told(graph, people, OWN, build)
    assert [event["build"]["user"]["email"] is not None for event in found] == [number == 0 for number in range(len(people))]


async def test_one_who_is_blocked_meanwhile_ends_nobody_else(
    graph: Graph, people: list[tables.User], build: tables.Build, make: Make
) -> None:
    streams = [await opened(graph, viewer, WALL) for viewer in people]
    async with make.services.database.writing() as session:
        await session.execute(update(tables.User).where(col(tables.User.id) == people[0].id).values(state=tables.UserState.BLOCKED))
        await session.commit()
    await start(graph.services, build)
    found = await asyncio.gather(*(stream.next(5) for stream in streams if isinstance(stream, Stream)))
    assert [told.seq if told else None for told in found] == [None, *[1] * (len(people) - 1)]
    for stream in streams:
        assert isinstance(stream, Stream)
        stream.close()


class TestWatched:
    async def test_what_an_answer_hangs_on(self, services: Services, make: Make, people: list[tables.User], build: tables.Build) -> None:
        outsider, public = await make.user(), await make.project(visibility=Visibility.PUBLIC)
        async with services.database.reading() as session:

            def seen_by(user: tables.User) -> Context:
                return Context(services, session, user, "test")

            watched = Watched(services, session, people[1], "test")
            assert await watched.is_for(seen_by(outsider))
            assert await may(watched, Action.READ_PROJECT, public)
            assert await watched.is_for(seen_by(outsider))
            assert await may(watched, Action.READ_BUILD, build)
            assert [await watched.is_for(seen_by(user)) for user in (outsider, people[0], people[1])] == [False, True, True]
            assert await may(watched, Action.UPDATE_BUILD, build)
            assert not watched.is_personal
            assert [await watched.is_for(seen_by(user)) for user in (outsider, people[0], people[1])] == [False, False, True]
            assert watched.viewer.id == people[1].id
            assert watched.is_personal


class TestAnswers:
    async def test_a_caller_at_the_moment_of_the_answer_does_not_stop_the_event_loop(self, services: Services) -> None:
        """It comes after the answer is made and before any callback of the task that made it has run."""
        nothing: Any = None
        answers = telling._Answers(services, nothing, nothing)
        later: list[asyncio.Task[Any]] = []

        class Made:
            is_personal = False

            async def is_for(self, listener: object) -> bool:
                return True

        async def run(*_: object) -> Any:
            await asyncio.sleep(0)
            later.append(asyncio.create_task(answers.of(nothing, "b", "r")))
            return Made()

        def stopped(*_: object) -> None:
            raise TimeoutError("the event loop stands still")

        answers._run = run  # type: ignore[method-assign]
        before = signal.signal(signal.SIGALRM, stopped)
        signal.setitimer(signal.ITIMER_REAL, 5)
        try:
            first = await answers.of(nothing, "a", "r")
            assert await later[0] is first
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    async def test_streams_that_resume_together_are_all_told(
        self, graph: Graph, services: Services, make: Make, people: list[tables.User], build: tables.Build
    ) -> None:
        """Many processes, one after the other, each with streams that resume at different places at once."""
        for status in (CheckStatus.RUNNING, CheckStatus.FAILED):
            await start(services, build, status)
        for _ in range(30):
            own = Graph(replace(services, live=Live()))
            streams = [await opened(own, viewer, RESUMED, after=str(number % 2)) for number, viewer in enumerate(people)]
            async with asyncio.timeout(10):
                await asyncio.gather(*(told(stream) for stream in streams if isinstance(stream, Stream)))
            for stream in streams:
                assert isinstance(stream, Stream)
                stream.close()
