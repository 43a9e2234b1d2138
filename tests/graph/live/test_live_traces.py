"""The subscription to the trace of a running build."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from sqlalchemy import delete
from sqlmodel import col

from graph.context import Context, Services
from graph.live import trace_feeds
from graph.live.subscription_streams import SubscriptionStream
from graph.live.subscriptions import subscribe
from graph.live.trace_feeds import TraceFeed, TraceFeeds
from graph.operations.execution import Graph
from graph.operations.transaction import commit_and_notify, session_for
from graph.rules.builds import builds, traces
from graph.rules.runners import status_reports
from storage import tables
from storage.database.pg_notify import Notifications
from storage.tables import AccessLevel, CheckStatus, Visibility
from tests.make import DataFactory, token_of
from tests.support.database.statements import StatementRecorder
from tests.support.servers.streams import background_tasks, end_code, rejection_code, subscribed

TRACE = """subscription ($project: String!, $id: Int!, $after: String) {
    buildTrace(project: $project, databaseId: $id, afterBytes: $after) { text startBytes endBytes position } }"""
SHA = "a" * 40


class TraceScenario:
    """A running build and its owner."""

    def __init__(self, services: Services, owner: tables.User, build: tables.Build) -> None:
        self.services, self.owner, self.build = services, owner, build
        self.variables = {"project": str(build.project_id), "id": build.id}

    async def change(self, work: Callable[[Context, tables.Build], Any]) -> None:
        async with session_for(self.services.database, writing=True) as session:
            context = Context(self.services, session, self.owner, "test")
            await work(context, await builds.lock_build(context, self.build.id))
            await commit_and_notify(context)

    async def append(self, text: str) -> None:
        await self.change(lambda context, row: traces.append_trace(context, row, text, row.trace_size))

    async def finish(self) -> None:
        await self.change(lambda context, row: builds.change_status(context, row, CheckStatus.SUCCESS))


@pytest.fixture
async def running(services: Services, make: DataFactory) -> TraceScenario:
    owner = await make.user()
    project = await make.project(owner=owner, builds_enabled=True)
    return TraceScenario(services, owner, await make.build(project, SHA, status=CheckStatus.RUNNING, started_at=services.clock()))


async def next_piece(stream: SubscriptionStream, seconds: float = 1.5) -> tuple[str, int, int]:
    """The next piece; the wait is shorter than the interval of polls."""
    found = await stream.next(seconds)
    assert found is not None and found.result.errors == [] and found.result.data is not None
    piece = found.result.data["buildTrace"]
    assert str(found.seq) == piece["position"] == str(stream.position)
    return piece["text"], piece["startBytes"], piece["endBytes"]


class TestPieces:
    async def test_are_sent_until_the_build_has_finished(self, graph: Graph, running: TraceScenario) -> None:
        await running.append("one\n")
        async with subscribed(graph, running.owner, TRACE, **running.variables) as stream:
            waiting = asyncio.create_task(next_piece(stream))
            await asyncio.sleep(0.05)
            await running.append("twö\n")
            assert await waiting == ("twö\n", 4, 9)
            await running.append("three\n")
            await running.finish()
            assert await next_piece(stream) == ("three\n", 9, 15)
            assert await end_code(stream) is None
            assert not stream.is_interrupted

    async def test_resume_after_an_offset(self, graph: Graph, running: TraceScenario) -> None:
        for text in ("one\n", "two\n", "three\n"):
            await running.append(text)
        async with subscribed(graph, running.owner, TRACE, **running.variables, after="4") as stream:
            assert await next_piece(stream) == ("two\nthree\n", 4, 14)

    async def test_have_a_maximum_size_and_whole_characters(
        self, graph: Graph, running: TraceScenario, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("graph.live.trace_feeds.PIECE_BYTES", 4)
        await running.append("abcöde")
        async with subscribed(graph, running.owner, TRACE, **running.variables, after="0") as stream:
            assert [await next_piece(stream) for _ in range(2)] == [("abc", 0, 3), ("öde", 3, 7)]

    async def test_begin_again_after_the_runner_was_lost(self, graph: Graph, running: TraceScenario) -> None:
        await running.append("one\n")
        async with subscribed(graph, running.owner, TRACE, **running.variables) as stream:
            await running.change(lambda context, row: status_reports.return_to_queue(context, row, "Again.\n"))
            assert await next_piece(stream) == ("Again.\n", 0, 7)

    async def test_resume_after_the_last_event_of_a_build_that_started_again(self, graph: Graph, running: TraceScenario) -> None:
        """A client that reconnects sends `afterBytes` as at first, with the offset of its last event."""
        await running.append("one\ntwo\nthree\n")
        variables = {**running.variables, "after": "14"}
        async with subscribed(graph, running.owner, TRACE, **variables) as stream:
            await running.change(lambda context, row: status_reports.return_to_queue(context, row, "Again.\n"))
            assert await next_piece(stream) == ("Again.\n", 0, 7)
        await running.change(lambda context, row: traces.append_trace(context, row, "one\ntwo\nthree\n", row.trace_size))
        resumed = await subscribe(graph, TRACE, variables, None, token_of(running.owner), request_id="test", after=7)
        assert isinstance(resumed, SubscriptionStream)
        assert await next_piece(resumed) == ("one\ntwo\nthree\n", 7, 21)
        resumed.close()

    @pytest.mark.parametrize("restart", ["lost runner", "retry", "replacement"])
    async def test_begin_again_for_a_reader_who_was_disconnected_while_the_build_started_again(
        self, graph: Graph, running: TraceScenario, restart: str
    ) -> None:
        await running.append("one\ntwo\n")
        async with subscribed(graph, running.owner, TRACE, **running.variables, after="0") as stream:
            assert await next_piece(stream) == ("one\ntwo\n", 0, 8)
            position = stream.position
        async with subscribed(graph, running.owner, TRACE, **running.variables, after=str(position)) as stream:
            await running.append("three\n")
            assert await next_piece(stream) == ("three\n", 8, 14)
        if restart == "lost runner":
            await running.change(lambda context, row: status_reports.return_to_queue(context, row, ""))
        elif restart == "retry":
            await running.finish()
            await running.change(builds.retry_build)
        else:
            await running.change(lambda context, row: traces.append_trace(context, row, "", 0, replace=True))
        # The new output is longer, and the old offsets are in its middle.
        await running.append("another output\n")

        async with subscribed(graph, running.owner, TRACE, **running.variables, after=str(position)) as stream:
            assert await next_piece(stream) == ("another output\n", 0, 15)
        resumed = await subscribe(
            graph, TRACE, {**running.variables, "after": "0"}, None, token_of(running.owner), request_id="test", after=position
        )
        assert isinstance(resumed, SubscriptionStream)
        assert await next_piece(resumed) == ("another output\n", 0, 15)
        resumed.close()
        # An offset alone is one of the output as it is now.
        async with subscribed(graph, running.owner, TRACE, **running.variables, after="8") as stream:
            assert await next_piece(stream) == ("output\n", 8, 15)

    async def test_are_not_mixed_when_the_output_is_replaced_while_it_is_read(self, graph: Graph, running: TraceScenario) -> None:
        await running.append("one\n")
        feed = TraceFeed(running.build.id)
        state = await feed.read_state(running.services.database)
        assert state is not None
        await running.change(lambda context, row: traces.append_trace(context, row, "another\n", 0, replace=True))
        assert await feed.read_piece(running.services.database, running.services.objects, state, 2) is None

    async def test_end_when_the_viewer_may_not_read_the_build(self, graph: Graph, running: TraceScenario, make: DataFactory) -> None:
        stranger = await make.user()
        assert await rejection_code(graph, stranger, TRACE, **running.variables) == "NOT_FOUND"
        project = await make.project(owner=running.owner, visibility=Visibility.PUBLIC, public_builds=False)
        build = await make.build(project, SHA, status=CheckStatus.RUNNING)
        assert await rejection_code(graph, stranger, TRACE, project=str(project.id), id=build.id) in ("NOT_FOUND", "FORBIDDEN")

    async def test_are_not_sent_to_a_reader_who_lost_the_right(
        self, graph: Graph, make: DataFactory, services: Services, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Readers of pieces that are sent within a second share one check.
        monkeypatch.setattr("graph.live.fanout.BATCH_SECONDS", 0.0)
        member = await make.user()
        project = await make.project(owner=(owner := await make.user()), members=[(member, AccessLevel.REPORTER)], builds_enabled=True)
        build = await make.build(project, SHA, status=CheckStatus.RUNNING, started_at=services.clock())
        running = TraceScenario(services, owner, build)
        async with (
            subscribed(graph, member, TRACE, **running.variables) as stream,
            subscribed(graph, owner, TRACE, **running.variables) as other,
        ):
            await running.append("one\n")
            assert [await next_piece(each) for each in (stream, other)] == [("one\n", 0, 4)] * 2
            async with services.database.write_session() as session:
                await session.execute(delete(tables.ProjectMember).where(col(tables.ProjectMember.user_id) == member.id))
                await session.commit()
            await running.append("two\n")
            assert await end_code(stream) == "NOT_FOUND"
            assert await next_piece(other) == ("two\n", 4, 8)

    async def test_statements_do_not_depend_on_the_number_of_readers(
        self, graph: Graph, running: TraceScenario, statements: StatementRecorder
    ) -> None:
        async with AsyncExitStack() as stack:
            streams = [await stack.enter_async_context(subscribed(graph, running.owner, TRACE, **running.variables)) for _ in range(20)]
            await running.append("one\n")
            with statements.assert_at_most(12):
                assert set(await asyncio.gather(*map(next_piece, streams))) == {("one\n", 0, 4)}

    async def test_of_other_processes_are_sent_at_once(self, graph: Graph, running: TraceScenario) -> None:
        if running.services.database.dialect == "sqlite":
            pytest.skip("SQLite has one server process")
        feeds = TraceFeeds()
        other = Graph(replace(running.services, trace_feeds=feeds))
        here = running.services
        notifications = [Notifications(here.database, {each.channel: each.receive}) for each in (feeds, here.trace_feeds)]
        async with (
            background_tasks(*(each.run() for each in notifications), here.trace_feeds.run(notifications[1])),
            subscribed(other, running.owner, TRACE, **running.variables) as stream,
        ):
            while not all(each.is_connected for each in notifications):  # noqa: ASYNC110 - a connection
                await asyncio.sleep(0.01)
            waiting = asyncio.create_task(next_piece(stream))
            await asyncio.sleep(0.05)
            await running.append("one\n")
            assert await waiting == ("one\n", 0, 4)

    async def test_are_read_again_after_a_read_that_failed(self, running: TraceScenario, monkeypatch: pytest.MonkeyPatch) -> None:
        """A notification of another process may be lost, so the state is read again after the interval, and sooner if that has failed."""
        await running.append("one\n")
        database = running.services.database
        feed = TraceFeed(running.build.id)
        assert await feed.read_state(database) is not None
        await running.append("two\n")
        feed._read_at -= trace_feeds.POLL_SECONDS

        with monkeypatch.context() as patch:
            patch.setattr(database, "read_session", Mock(side_effect=ConnectionError))
            with pytest.raises(ConnectionError):
                await feed.read_state(database)

        state = await feed.read_state(database)
        assert state is not None
        assert state.end == 8
