"""Fan-out: one answer is shared by all subscribers for whom it would be equal, and by no others."""

import asyncio
import signal
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update
from sqlmodel import col

from graph.context import Context, Services
from graph.live import fanout
from graph.live.answer_sharing import TrackingContext
from graph.live.broadcaster import ChangeBroadcaster
from graph.live.subscription_streams import SubscriptionStream
from graph.operations.execution import Graph
from graph.operations.transaction import commit_and_notify, session_for
from graph.rules.builds import builds
from graph.rules.permissions.policy import Action, can
from storage import tables
from storage.tables import AccessLevel, CheckStatus, Visibility
from tests.make import DataFactory
from tests.support.database.statements import StatementRecorder
from tests.support.servers.streams import next_event, open_stream

WALL = "subscription { buildChanged { seq to build { databaseId project { path } commit { shortOid rollup { state } } } } }"
RESUMED = "subscription($after: String) { buildChanged(afterSeq: $after) { seq build { databaseId } } }"
CAN = "subscription { buildChanged { seq build { viewerCan { cancel } } } }"
OWN = "subscription { buildChanged { seq build { project { viewerCan { createIssue } } user { username email } mergeRequest { title } } } }"


async def start_build(services: Services, build: tables.Build, to: CheckStatus = CheckStatus.RUNNING) -> None:
    async with session_for(services.database, writing=True) as session:
        context = Context(services, session, None, "test")
        assert await builds.change_status(context, build, to) is not None
        await session.flush()
        await commit_and_notify(context)
    await services.broadcaster.catch_up(services.database)


async def collect_events(graph: Graph, viewers: list[tables.User], query: str, build: tables.Build) -> list[dict[str, Any]]:
    """The event that each of these receives when the build starts."""
    streams = [await open_stream(graph, viewer, query) for viewer in viewers]
    await start_build(graph.services, build)
    found = await asyncio.gather(*(next_event(stream) for stream in streams if isinstance(stream, SubscriptionStream)))
    for stream in streams:
        assert isinstance(stream, SubscriptionStream)
        stream.close()
    return found


@pytest.fixture
async def people(make: DataFactory) -> list[tables.User]:
    return [await make.user() for _ in range(12)]


@pytest.fixture
async def build(make: DataFactory, people: list[tables.User]) -> tables.Build:
    """Half of them are reporters, the others developers; the first made it."""
    levels = [AccessLevel.DEVELOPER if number % 2 else AccessLevel.REPORTER for number in range(len(people))]
    project = await make.project(history={"commits": 2}, members=list(zip(people, levels, strict=True)), builds_enabled=True)
    head = await make.services.repositories.read(project.id, lambda repository: repository.find_ref("refs/heads/master"))
    assert head is not None
    return await make.build(project, head, user_id=people[0].id)


async def test_cost_does_not_grow_with_streams(
    graph: Graph, people: list[tables.User], build: tables.Build, statements: StatementRecorder
) -> None:
    streams = [await open_stream(graph, viewer, WALL) for viewer in people]
    await start_build(graph.services, build)
    with statements.assert_at_most(9):
        found = await asyncio.gather(*(next_event(stream) for stream in streams if isinstance(stream, SubscriptionStream)))
    assert [event["build"]["databaseId"] for event in found] == [build.id] * len(people)
    assert found[0]["build"]["commit"]["rollup"] == {"state": "RUNNING"}
    for stream in streams:
        assert isinstance(stream, SubscriptionStream)
        stream.close()


async def test_permissions_are_evaluated_per_viewer(graph: Graph, people: list[tables.User], build: tables.Build) -> None:
    found = await collect_events(graph, people, CAN, build)
    assert [event["build"]["viewerCan"]["cancel"] for event in found] == [bool(number % 2) for number in range(len(people))]


async def test_viewer_specific_answers_are_not_shared(graph: Graph, people: list[tables.User], build: tables.Build) -> None:
    """An e-mail address is shown to its owner; merge requests are those of projects that the viewer sees."""
    found = await collect_events(graph, people, OWN, build)
    assert [event["build"]["user"]["email"] is not None for event in found] == [number == 0 for number in range(len(people))]


async def test_blocking_one_viewer_does_not_end_other_streams(
    graph: Graph, people: list[tables.User], build: tables.Build, make: DataFactory
) -> None:
    streams = [await open_stream(graph, viewer, WALL) for viewer in people]
    async with make.services.database.write_session() as session:
        await session.execute(update(tables.User).where(col(tables.User.id) == people[0].id).values(state=tables.UserState.BLOCKED))
        await session.commit()
    await start_build(graph.services, build)
    found = await asyncio.gather(*(stream.next(5) for stream in streams if isinstance(stream, SubscriptionStream)))
    assert [event.seq if event else None for event in found] == [None, *[1] * (len(people) - 1)]
    for stream in streams:
        assert isinstance(stream, SubscriptionStream)
        stream.close()


class TestTrackingContext:
    async def test_tracks_what_an_answer_depends_on(
        self, services: Services, make: DataFactory, people: list[tables.User], build: tables.Build
    ) -> None:
        outsider, public = await make.user(), await make.project(visibility=Visibility.PUBLIC)
        async with services.database.read_session() as session:

            def seen_by(user: tables.User) -> Context:
                return Context(services, session, user, "test")

            watched = TrackingContext(services, session, people[1], "test")
            assert await watched.applies_to(seen_by(outsider))
            assert await can(watched, Action.READ_PROJECT, public)
            assert await watched.applies_to(seen_by(outsider))
            assert await can(watched, Action.READ_BUILD, build)
            assert [await watched.applies_to(seen_by(user)) for user in (outsider, people[0], people[1])] == [False, True, True]
            assert await can(watched, Action.UPDATE_BUILD, build)
            assert not watched.is_personal
            assert [await watched.applies_to(seen_by(user)) for user in (outsider, people[0], people[1])] == [False, False, True]
            assert watched.viewer.id == people[1].id
            assert watched.is_personal


class TestSharedAnswers:
    async def test_a_caller_arriving_during_the_answer_does_not_block_the_loop(self, services: Services) -> None:
        """It comes after the answer is made and before any callback of the task that made it has run."""
        nothing: Any = None
        answers = fanout._AnswerSet(services, nothing, nothing)
        later: list[asyncio.Task[Any]] = []

        class StuckAnswer:
            is_personal = False

            async def applies_to(self, listener: object) -> bool:
                return True

        async def run(*_: object) -> Any:
            await asyncio.sleep(0)
            later.append(asyncio.create_task(answers.answer_for(nothing, "b", "r")))
            return StuckAnswer()

        def stopped(*_: object) -> None:
            raise TimeoutError("the event loop stands still")

        answers._run = run  # type: ignore[method-assign]
        before = signal.signal(signal.SIGALRM, stopped)
        signal.setitimer(signal.ITIMER_REAL, 5)
        try:
            first = await answers.answer_for(nothing, "a", "r")
            assert await later[0] is first
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    async def test_streams_resuming_together_all_get_events(
        self, graph: Graph, services: Services, make: DataFactory, people: list[tables.User], build: tables.Build
    ) -> None:
        """Many processes, one after the other, each with streams that resume at different places at once."""
        for status in (CheckStatus.RUNNING, CheckStatus.FAILED):
            await start_build(services, build, status)
        for _ in range(30):
            own = Graph(replace(services, broadcaster=ChangeBroadcaster()))
            streams = [await open_stream(own, viewer, RESUMED, after=str(number % 2)) for number, viewer in enumerate(people)]
            async with asyncio.timeout(10):
                await asyncio.gather(*(next_event(stream) for stream in streams if isinstance(stream, SubscriptionStream)))
            for stream in streams:
                assert isinstance(stream, SubscriptionStream)
                stream.close()
