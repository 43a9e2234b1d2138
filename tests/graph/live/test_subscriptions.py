"""Subscriptions: which events are sent to whom, in which order, and what ends a stream."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from sqlalchemy import delete, insert, update
from sqlmodel import col

from graph.context import Context, Services
from graph.errors import Code, Unavailable
from graph.live import broadcaster
from graph.live.broadcaster import ChangeBroadcaster, ChangeFilter, Subscriber
from graph.live.change_log import CommittedLogReader
from graph.live.subscription_streams import SubscriptionStream
from graph.live.subscriptions import subscribe
from graph.operations.execution import Graph, prepare
from graph.operations.results import OperationResult
from graph.operations.transaction import commit_and_notify, session_for
from graph.rules.builds import builds
from storage import tables
from storage.database.engine import Database
from storage.database.pg_notify import Notifications
from storage.tables import AccessLevel, ChangeKind, CheckStatus, Visibility
from tests.make import DataFactory, token_of
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.servers.streams import background_tasks, end_code, next_event, open_stream, rejection_code, subscribed

SHA = "f" * 40
CHANGED = "subscription($projects: [String!], $refs: [String!], $after: String) { "
CHANGED += "buildChanged(projects: $projects, refs: $refs, afterSeq: $after) { seq from to build { databaseId status project { path } } } }"


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user("olga")


@pytest.fixture
async def project(make: DataFactory, owner: tables.User) -> tables.Project:
    return await make.project(owner=owner, builds_enabled=True)


@dataclass(frozen=True)
class BuildScenario:
    """A project with builds, its owner, and subscriptions to the builds' changes."""

    graph: Graph
    services: Services
    make: DataFactory
    owner: tables.User
    project: tables.Project

    def subscribed(self, **variables: Any) -> AbstractAsyncContextManager[SubscriptionStream]:
        return subscribed(self.graph, self.owner, CHANGED, **variables)

    async def build(self, **columns: Any) -> tables.Build:
        return await self.make.build(self.project, SHA, **columns)

    async def change(self, build: tables.Build, status: CheckStatus = CheckStatus.RUNNING) -> None:
        """Changes the status of a build in a transaction of its own."""
        async with session_for(self.services.database, writing=True) as session:
            context = Context(self.services, session, self.owner, "test")
            assert await builds.change_status(context, build, status) is not None
            await session.flush()
            await commit_and_notify(context)

    async def catch_up(self) -> None:
        await self.services.broadcaster.catch_up(self.services.database)

    async def execute(self, statement: Any) -> None:
        async with self.services.database.write_session() as session:
            await session.execute(statement)
            await session.commit()

    async def block(self, user: tables.User) -> None:
        await self.execute(update(tables.User).where(col(tables.User.id) == user.id).values(state=tables.UserState.BLOCKED))


@pytest.fixture
def forge(graph: Graph, services: Services, make: DataFactory, owner: tables.User, project: tables.Project) -> BuildScenario:
    return BuildScenario(graph, services, make, owner, project)


def reading(services: Services) -> AbstractAsyncContextManager[None]:
    """The background tasks of a process that read the events."""
    notifications = Notifications(services.database, {services.broadcaster.channel: services.broadcaster.wake})
    return background_tasks(notifications.run(), services.broadcaster.run(services.database, notifications))


@pytest.fixture
async def reader(services: Services) -> AsyncIterator[None]:
    """The process reads the events, as the service does."""
    async with reading(services):
        yield


class TestEvents:
    @pytest.mark.usefixtures("reader")
    async def test_changes_are_sent_in_order(self, forge: BuildScenario) -> None:
        build = await forge.build()
        async with forge.subscribed() as stream:
            await forge.change(build)
            first = await next_event(stream)
            await forge.change(build, CheckStatus.FAILED)
            second = await next_event(stream)
        assert (first["from"], first["to"], first["build"]["status"]) == ("PENDING", "RUNNING", "RUNNING")
        assert first["build"]["project"]["path"] == forge.project.path
        assert (second["from"], second["to"]) == ("RUNNING", "FAILED")
        assert int(first["seq"]) < int(second["seq"])

    @pytest.mark.usefixtures("reader")
    async def test_a_new_build_has_no_previous_status(self, graph: Graph, ask: Ask, owner: tables.User, make: DataFactory) -> None:
        project = await make.project(owner=owner, history={}, builds_enabled=True)
        async with subscribed(graph, owner, CHANGED, projects=[str(project.id)]) as stream:
            create = "mutation($i: CreateBuildInput!) { createBuild(input: $i) { build { databaseId } userErrors { code message field } } }"
            sent = {"projectPath": str(project.id), "sha": "master", "name": "lint", "status": "PENDING"}
            made = await ask.data(create, owner, i=sent)
            event = await next_event(stream)
        assert (event["from"], event["to"]) == (None, "PENDING")
        assert event["build"]["databaseId"] == made["createBuild"]["build"]["databaseId"]

    async def test_earlier_changes_are_not_sent(self, forge: BuildScenario) -> None:
        await forge.change(await forge.build())
        async with forge.subscribed() as stream:
            await forge.catch_up()
            assert await stream.next(0.05) is None
            assert not stream.is_ended

    async def test_only_filtered_builds_are_sent(self, forge: BuildScenario) -> None:
        other = await forge.make.project(owner=forge.owner, builds_enabled=True)
        group = await forge.make.fetch(tables.Namespace, forge.project.namespace_id)
        assert group is not None
        expected = await forge.build(ref="release")
        async with forge.subscribed(projects=[f"{group.path}/{forge.project.path}"], refs=["release", "next"]) as stream:
            for build in (await forge.make.build(other, SHA, ref="release"), await forge.build(), expected):
                await forge.change(build)
            await forge.catch_up()
            assert (await next_event(stream))["build"]["databaseId"] == expected.id
            assert await stream.next(0.05) is None

    async def test_equal_streams_share_the_answer(self, forge: BuildScenario, statements: StatementRecorder) -> None:
        build = await forge.build()
        streams = [await open_stream(forge.graph, forge.owner, CHANGED, after=None if number else "0") for number in range(20)]
        await forge.change(build)
        await forge.catch_up()
        assert all(isinstance(stream, SubscriptionStream) for stream in streams)
        with statements.record() as sent:
            found = await asyncio.gather(*(next_event(stream) for stream in streams if isinstance(stream, SubscriptionStream)))
        assert len({event["seq"] for event in found}) == 1
        assert len(sent) <= 8
        for stream in streams:
            assert isinstance(stream, SubscriptionStream)
            stream.close()
        assert len(forge.services.broadcaster._open_slots) == 0


class TestResuming:
    async def test_no_event_is_missed_or_repeated(self, forge: BuildScenario, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("graph.live.subscription_streams.PAGE_SIZE", 3)
        made = [await forge.build() for _ in range(8)]
        for build in made:
            await forge.change(build)
        seen: list[int] = []
        last = "0"
        for _ in range(3):
            async with forge.subscribed(after=last) as stream:
                for _ in range(2):
                    event = await next_event(stream)
                    seen.append(event["build"]["databaseId"])
                    last = event["seq"]
        async with forge.subscribed(after=last) as stream:
            seen += [(await next_event(stream))["build"]["databaseId"] for _ in range(2)]
            later = await forge.build()
            await forge.change(later)
            assert await stream.next(0.02) is None
            await forge.catch_up()
            seen.append((await next_event(stream))["build"]["databaseId"])
            assert await stream.next(0.02) is None
        assert seen == [*(build.id for build in made), later.id]

    @pytest.mark.usefixtures("reader")
    async def test_while_others_write(self, forge: BuildScenario, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is read of the past meets what comes now without a seam."""
        monkeypatch.setattr("graph.live.subscription_streams.PAGE_SIZE", 2)
        made = [await forge.build() for _ in range(30)]
        for build in made[:10]:
            await forge.change(build)

        async def write(part: list[tables.Build]) -> None:
            for build in part:
                await forge.change(build)

        writing = asyncio.gather(write(made[10:20]), write(made[20:]))
        async with forge.subscribed(after="0") as stream:
            seen = [await next_event(stream) for _ in made]
            assert await stream.next(0.02) is None
        await writing
        assert sorted(event["build"]["databaseId"] for event in seen) == sorted(build.id for build in made)
        numbers = [int(event["seq"]) for event in seen]
        assert numbers == sorted(set(numbers))

    @pytest.mark.parametrize("after", ["", "-1", "1.5", "x", "99999999999", "2147483648", "é"])
    async def test_rejects_an_invalid_sequence_number(self, graph: Graph, owner: tables.User, after: str) -> None:
        assert await rejection_code(graph, owner, CHANGED, after=after) == Code.BAD_REQUEST

    async def test_rejects_a_last_event_id_of_a_trace(self, graph: Graph, owner: tables.User) -> None:
        outcome = await subscribe(graph, CHANGED, {}, None, token_of(owner), request_id="test", after=2**40)
        assert isinstance(outcome, OperationResult)
        assert [(error.code, "`Last-Event-ID`" in error.message) for error in outcome.errors] == [(Code.BAD_REQUEST, True)]


class TestResumingAfterRestoration:
    """An older backup does not have the last changes that a client has received, and their numbers are given again."""

    async def test_a_number_that_no_change_had_yet_is_rejected(self, forge: BuildScenario) -> None:
        build = await forge.build()
        await forge.change(build)
        async with forge.subscribed() as stream:
            last = stream.position
        async with forge.subscribed(after=str(last + 1)) as stream:
            event = await stream.next(1)
            assert event is not None
            assert [error.code for error in event.result.errors] == [Code.BAD_REQUEST]
            assert "restored" in event.result.errors[0].message and "without `afterSeq`" in event.result.errors[0].message
            assert stream.is_ended

    async def test_a_number_of_an_empty_log_is_rejected(self, forge: BuildScenario) -> None:
        async with forge.subscribed(after="1") as stream:
            assert await end_code(stream) == Code.BAD_REQUEST

    async def test_the_number_of_a_change_that_was_deleted_is_accepted(self, forge: BuildScenario) -> None:
        """A deleted project takes its changes along. A process that starts then knows only lower numbers."""
        build, deleted = await forge.build(), await forge.build()
        await forge.change(build)
        async with forge.subscribed() as stream:
            await forge.change(deleted)
            await forge.catch_up()
            last = (await next_event(stream))["seq"]
        await forge.execute(delete(tables.Build).where(col(tables.Build.id) == deleted.id))
        services = replace(forge.services, broadcaster=ChangeBroadcaster())

        async with subscribed(Graph(services), forge.owner, CHANGED, after=last) as stream:
            assert services.broadcaster.watermark < int(last)
            assert await stream.next(0.02) is None
            assert stream.position == int(last)
            await forge.change(build, CheckStatus.SUCCESS)
            # The first read finds the gap, the second one that nothing will fill it.
            for _ in range(2):
                await services.broadcaster.catch_up(services.database)
            assert (await next_event(stream))["to"] == "SUCCESS"


class TestEventOrder:
    """A number that is given first may be seen last: it is waited for."""

    @pytest.fixture
    def rows(self, make: DataFactory, project: tables.Project) -> Any:
        async def row(build: tables.Build) -> dict[str, Any]:
            common = {"kind": ChangeKind.BUILD, "new_state": CheckStatus.RUNNING, "ref": build.ref, "created_at": build.created_at}
            return {**common, "project_id": project.id, "build_id": build.id}

        return row

    @pytest.fixture(autouse=True)
    def postgresql_only(self, dialect: str) -> None:
        if dialect == "sqlite":
            pytest.skip("one writes at a time")

    async def test_a_smaller_number_committed_later_is_delivered(
        self, database: Database, make: DataFactory, project: tables.Project, rows: Any
    ) -> None:
        build = await make.build(project, SHA)
        reader = CommittedLogReader()
        reader.start_at(await reader.read_newest_seq(database))
        async with database.write_session() as early, database.write_session() as late:
            await early.execute(insert(tables.Change), [await rows(build)])
            await late.execute(insert(tables.Change), [await rows(build)])
            await late.commit()
            for _ in range(3):
                assert (await reader.read(database))[0] == []
            assert reader.watermark == 0
            # One that begins now cannot have the missing number, so nobody waits for it.
            async with database.write_session() as unrelated:
                await unrelated.execute(insert(tables.Change), [await rows(build)])
                await early.commit()
                found, _ = await reader.read(database)
                assert [event.seq for event in found] == [1, 2]
                await unrelated.commit()
        assert [event.seq for event in (await reader.read(database))[0]] == [3]

    async def test_a_rolled_back_number_is_skipped(self, database: Database, make: DataFactory, project: tables.Project, rows: Any) -> None:
        build = await make.build(project, SHA)
        reader = CommittedLogReader()
        reader.start_at(await reader.read_newest_seq(database))
        async with database.write_session() as early, database.write_session() as late:
            await early.execute(insert(tables.Change), [await rows(build)])
            await late.execute(insert(tables.Change), [await rows(build)])
            await late.commit()
            assert await reader.read(database) == ([], 0.0)
            assert (await reader.read(database))[0] == []
            await early.rollback()
        assert [event.seq for event in (await reader.read(database))[0]] == [2]

    async def test_a_new_stream_waits_for_open_transactions(self, forge: BuildScenario, database: Database, rows: Any) -> None:
        """The past that is read at once must be all there, up to the number that it is read to."""
        build = await forge.build()
        async with database.write_session() as early, database.write_session() as late:
            await early.execute(insert(tables.Change), [await rows(build)])
            await late.execute(insert(tables.Change), [await rows(build)])
            await late.commit()
            opening = asyncio.create_task(open_stream(forge.graph, forge.owner, CHANGED, after="0"))
            await asyncio.sleep(0.1)
            assert not opening.done()
            await early.commit()
        stream = await opening
        assert isinstance(stream, SubscriptionStream)
        assert [(await next_event(stream))["seq"] for _ in range(2)] == ["1", "2"]
        stream.close()


class TestCatchingUp:
    """Callers that wait for a read share it, but only one that has succeeded."""

    @pytest.fixture
    def newest_reads(self, monkeypatch: pytest.MonkeyPatch) -> list[BaseException | None]:
        """What reads of the newest number raise, in their order; each takes some time."""
        outcomes: list[BaseException | None] = []
        read_newest_seq = CommittedLogReader.read_newest_seq

        async def read(reader: CommittedLogReader, database: Database) -> int:
            await asyncio.sleep(0.02)
            if outcomes and (outcome := outcomes.pop(0)) is not None:
                raise outcome
            return await read_newest_seq(reader, database)

        monkeypatch.setattr(CommittedLogReader, "read_newest_seq", read)
        return outcomes

    @pytest.mark.parametrize("error", [Unavailable, asyncio.CancelledError])
    async def test_a_read_that_fails_is_not_shared(
        self, forge: BuildScenario, newest_reads: list[BaseException | None], error: type[BaseException]
    ) -> None:
        await forge.change(await forge.build())
        other = ChangeBroadcaster()
        newest_reads += [error(), error(), None]
        tasks = [asyncio.create_task(other.catch_up(forge.services.database))]
        await asyncio.sleep(0.01)
        tasks += [asyncio.create_task(other.catch_up(forge.services.database)) for _ in range(2)]

        found = await asyncio.gather(*tasks, return_exceptions=True)

        assert [type(each) for each in found] == [error, error, type(None)]
        assert other.watermark > 0

    async def test_a_read_that_succeeds_is_shared(self, forge: BuildScenario, newest_reads: list[BaseException | None]) -> None:
        newest_reads += [None] * 4

        await asyncio.gather(*(forge.catch_up() for _ in range(4)))

        assert len(newest_reads) == 2, "one read that had begun, and one for all callers that came later"

    async def test_the_first_read_starts_at_the_end_of_the_log(self, forge: BuildScenario) -> None:
        await forge.change(await forge.build())
        other = ChangeBroadcaster()
        other.subscribe(Subscriber(ChangeFilter(ChangeKind.BUILD, None, None, None)), 0)

        await other.catch_up(forge.services.database)

        assert other.watermark > 0


class TestNotifications:
    async def test_another_process_is_notified(self, forge: BuildScenario, monkeypatch: pytest.MonkeyPatch) -> None:
        """The other process has a broadcaster of its own. On PostgreSQL it does not poll in this test; on SQLite it has to."""
        if forge.services.database.dialect == "postgresql":
            monkeypatch.setattr(broadcaster, "POLL_SECONDS", 60.0)
        other = ChangeBroadcaster()
        build = await forge.build()
        async with (
            reading(forge.services),
            reading(replace(forge.services, broadcaster=other)),
            subscribed(Graph(replace(forge.services, broadcaster=other)), forge.owner, CHANGED) as stream,
        ):
            await asyncio.sleep(0.2)
            await forge.change(build)
            assert (await next_event(stream))["to"] == "RUNNING"


class TestPermissions:
    async def test_hidden_changes_are_not_sent(self, forge: BuildScenario) -> None:
        stranger = await forge.make.user()
        public = await forge.make.project(visibility=Visibility.PUBLIC, builds_enabled=True)
        async with subscribed(forge.graph, stranger, CHANGED) as stream:
            await forge.change(await forge.build())
            seen = await forge.make.build(public, SHA)
            await forge.change(seen)
            await forge.catch_up()
            assert (await next_event(stream))["build"]["databaseId"] == seen.id
            assert await stream.next(0.02) is None

    async def test_nothing_after_a_membership_ended(self, forge: BuildScenario) -> None:
        member = await forge.make.user()
        project = await forge.make.project(owner=forge.owner, members=[(member, AccessLevel.REPORTER)], builds_enabled=True)
        build = await forge.make.build(project, SHA)
        async with subscribed(forge.graph, member, CHANGED, projects=[str(project.id)]) as stream:
            await forge.change(build)
            await forge.catch_up()
            await next_event(stream)
            await forge.execute(delete(tables.ProjectMember).where(col(tables.ProjectMember.user_id) == member.id))
            await forge.change(build, CheckStatus.SUCCESS)
            await forge.catch_up()
            assert await stream.next(0.02) is None

    @pytest.mark.parametrize("how", ["blocked", "token"])
    async def test_a_revoked_viewer_is_disconnected(self, forge: BuildScenario, how: str) -> None:
        stays = await forge.make.user()
        async with forge.subscribed() as stream, subscribed(forge.graph, stays, CHANGED) as other:
            if how == "blocked":
                await forge.block(forge.owner)
            else:
                await forge.execute(delete(tables.Token).where(col(tables.Token.user_id) == forge.owner.id))
            await forge.services.broadcaster.end_invalid_streams(forge.services.database)
            assert await end_code(stream) == Code.UNAUTHENTICATED
            assert await other.next(0.02) is None
            assert not other.is_ended
            assert len(forge.services.broadcaster._open_slots) == 1

    async def test_revocation_is_checked_periodically(self, forge: BuildScenario, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(broadcaster, "TOKEN_CHECK_SECONDS", 0.05)
        monkeypatch.setattr(broadcaster, "POLL_SECONDS", 0.05)
        database = forge.services.database
        async with background_tasks(forge.services.broadcaster.run(database, Notifications(database, {}))), forge.subscribed() as stream:
            forge.owner.state = tables.UserState.BLOCKED
            await forge.block(forge.owner)
            assert await end_code(stream, 3) == Code.UNAUTHENTICATED

    async def test_a_blocked_user_gets_no_event_before_the_check_either(self, forge: BuildScenario) -> None:
        member = await forge.make.user(admin=True)
        build = await forge.build()
        async with subscribed(forge.graph, member, CHANGED) as stream:
            await forge.block(member)
            await forge.change(build)
            await forge.catch_up()
            assert await end_code(stream) == Code.UNAUTHENTICATED

    async def test_rejects_invalid_subscriptions(self, forge: BuildScenario) -> None:
        stranger, blocked = await forge.make.user(), await forge.make.user(state=tables.UserState.BLOCKED)
        reporterless = await forge.make.user()
        quiet = await forge.make.project(owner=forge.owner, members=[(reporterless, AccessLevel.GUEST)], builds_enabled=True)
        assert await rejection_code(forge.graph, None, CHANGED) == Code.UNAUTHENTICATED
        assert await rejection_code(forge.graph, blocked, CHANGED) == Code.UNAUTHENTICATED
        assert await rejection_code(forge.graph, stranger, CHANGED, projects=[str(forge.project.id)]) == Code.NOT_FOUND
        assert await rejection_code(forge.graph, stranger, CHANGED, projects=["no/where"]) == Code.NOT_FOUND
        assert await rejection_code(forge.graph, reporterless, CHANGED, projects=[str(quiet.id)]) == Code.FORBIDDEN
        assert await rejection_code(forge.graph, forge.owner, CHANGED, projects=["1"] * 51) == Code.LIMIT_EXCEEDED
        assert await rejection_code(forge.graph, forge.owner, CHANGED, refs=["a\0b"]) == Code.BAD_REQUEST
        assert await rejection_code(forge.graph, forge.owner, "{ viewer { username } }") == Code.BAD_REQUEST
        assert await rejection_code(forge.graph, forge.owner, "subscription { nothing }") == Code.BAD_REQUEST
        nodes = "project { builds(first: 100) { nodes { attempts(first: 100) { nodes { user { id } } } } } }"
        expensive = f"subscription {{ buildChanged {{ build {{ {nodes} }} }} }}"
        assert await rejection_code(forge.graph, forge.owner, expensive) == Code.LIMIT_EXCEEDED
        assert await rejection_code(forge.graph, forge.owner, CHANGED, refs=3) == Code.BAD_REQUEST


class TestLimits:
    async def test_a_slow_client_is_disconnected_and_resumes(self, forge: BuildScenario, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(broadcaster, "MAX_QUEUED_CHANGES", 3)
        monkeypatch.setattr(broadcaster, "SLOW_CONSUMER_SECONDS", 0.0)
        made = [await forge.build() for _ in range(6)]
        async with forge.subscribed() as slow:
            await forge.change(made[0])
            await forge.catch_up()
            last = (await next_event(slow))["seq"]
            for build in made[1:]:
                await forge.change(build)
            await forge.catch_up()
            found = await slow.next(1)
            assert found is not None
            assert found.result.errors[0].code is Code.LIMIT_EXCEEDED
            assert "afterSeq" in found.result.errors[0].message
            assert slow.is_ended
        async with forge.subscribed(after=last) as again:
            assert [(await next_event(again))["build"]["databaseId"] for _ in made[1:]] == [build.id for build in made[1:]]

    async def test_a_full_queue_falls_back_to_the_log(self, forge: BuildScenario, monkeypatch: pytest.MonkeyPatch) -> None:
        """A reader that keeps up is not cut off for a push that brings many changes."""
        monkeypatch.setattr(broadcaster, "MAX_QUEUED_CHANGES", 3)
        made = [await forge.build() for _ in range(12)]
        async with forge.subscribed() as stream:
            before = stream.position
            for build in made[:8]:
                await forge.change(build)
            await forge.catch_up()
            assert stream.position == before
            seen = [(await next_event(stream))["build"]["databaseId"] for _ in range(2)]
            # Also while it reads there.
            for build in made[8:]:
                await forge.change(build)
                await forge.catch_up()
            seen += [(await next_event(stream))["build"]["databaseId"] for _ in range(10)]
            assert seen == [build.id for build in made]
            assert await stream.next(0.05) is None
            assert stream.position == forge.services.broadcaster.watermark

    async def test_the_number_of_streams_is_limited(self, services: Services, owner: tables.User) -> None:
        counts: list[int] = []
        few = replace(services, broadcaster=ChangeBroadcaster(max_streams=2))
        few.broadcaster.on_count_change = counts.append
        graph = Graph(few)
        async with subscribed(graph, owner, CHANGED), subscribed(graph, owner, CHANGED):
            assert await rejection_code(graph, owner, CHANGED) == Code.UNAVAILABLE
        async with subscribed(graph, owner, CHANGED):
            pass
        assert counts == [1, 2, 1, 0, 1, 0]

    async def test_one_user_takes_no_more_than_a_share(self, services: Services, make: DataFactory, owner: tables.User) -> None:
        other = await make.user()
        graph = Graph(replace(services, broadcaster=ChangeBroadcaster(max_streams=10, max_streams_per_viewer=2)))
        async with subscribed(graph, owner, CHANGED), subscribed(graph, owner, CHANGED):
            refused = await open_stream(graph, owner, CHANGED)
            assert isinstance(refused, OperationResult)
            (problem,) = refused.errors
            assert (problem.code, problem.retry_after) == (Code.LIMIT_EXCEEDED, 5)
            assert problem.message.startswith("You have 2 streams and WebSockets open, the limit for one user.")
            async with subscribed(graph, other, CHANGED):
                pass
        async with subscribed(graph, owner, CHANGED):
            pass

    async def test_a_stream_is_interrupted_while_the_database_is_away(self, forge: BuildScenario, monkeypatch: pytest.MonkeyPatch) -> None:
        """The event is not sent as an error, after which clients would stop: the stream ends, so that they resume before it."""
        build = await forge.build()
        async with forge.subscribed() as stream:
            before = stream.position
            await forge.change(build)
            await forge.catch_up()

            async def away(*_: object) -> None:
                raise ConnectionRefusedError

            with monkeypatch.context() as patched:
                patched.setattr("graph.live.fanout.find_token", away)
                assert await end_code(stream) is None
            assert stream.is_interrupted
        async with forge.subscribed(after=str(before)) as again:
            assert (await next_event(again))["build"]["databaseId"] == build.id

    @pytest.mark.usefixtures("reader")
    async def test_hidden_changes_do_not_prolong_a_wait(self, forge: BuildScenario) -> None:
        """A keep-alive is sent after each wait, without which proxies and clients close the connection."""
        stranger = await forge.make.user()
        is_waiting = True

        async def change_often() -> None:
            while is_waiting:
                await forge.change(await forge.build())

        async with subscribed(forge.graph, stranger, CHANGED) as stream:
            changing = asyncio.create_task(change_often())
            try:
                async with asyncio.timeout(5):
                    assert await stream.next(0.2) is None
                assert not stream.is_ended
            finally:
                is_waiting = False
                await changing

    async def test_hidden_changes_of_the_log_do_not_prolong_a_wait(self, forge: BuildScenario) -> None:
        stranger = await forge.make.user()
        public = await forge.make.project(visibility=Visibility.PUBLIC, builds_enabled=True)
        seen = await forge.make.build(public, SHA)
        for build in (await forge.build(), await forge.build(), seen):
            await forge.change(build)
        async with subscribed(forge.graph, stranger, CHANGED, after="0") as stream:
            for _ in range(2):
                assert await stream.next(0) is None
                # A client that resumes here misses nothing.
                async with subscribed(forge.graph, stranger, CHANGED, after=str(stream.position)) as again:
                    assert (await next_event(again))["build"]["databaseId"] == seen.id
            assert (await next_event(stream))["build"]["databaseId"] == seen.id

    async def test_the_position_precedes_queued_events(self, forge: BuildScenario) -> None:
        async with forge.subscribed() as stream:
            first = stream.position
            await forge.change(await forge.build())
            await forge.catch_up()
            assert stream.position == first
            seq = int((await next_event(stream))["seq"])
            assert stream.position == seq

    async def test_a_stop_ends_streams_and_lets_none_in(self, graph: Graph, services: Services, owner: tables.User) -> None:
        async with subscribed(graph, owner, CHANGED) as stream:
            services.broadcaster.close()
            assert await end_code(stream) is None
            assert stream.is_interrupted
        assert await rejection_code(graph, owner, CHANGED) == Code.UNAVAILABLE

    async def test_never_as_a_query(self, ask: Ask, graph: Graph, owner: tables.User) -> None:
        outcome = await ask(CHANGED, owner)
        assert outcome.is_subscription
        assert outcome.data is None
        prepared = prepare("subscription A { buildChanged { seq } }", "A")
        assert (await graph.run(prepared, {}, token_of(owner), request_id="test")).data is None
