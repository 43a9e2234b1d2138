"""Subscriptions: what is told, to whom, in which order, and what ends a stream."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import delete, insert, update
from sqlmodel import col

from graph import live as living
from graph.context import Context, Services
from graph.errors import Code
from graph.execute import Graph, prepare
from graph.live import Live
from graph.outcomes import Outcome
from graph.rules import builds
from graph.settled import Settled
from graph.subscribing import Stream
from graph.transaction import keep, session_for
from storage import tables
from storage.database import Database
from storage.tables import AccessLevel, ChangeKind, CheckStatus, Visibility
from tests.followed import code, ends, following, opened, told
from tests.forge import Ask
from tests.make import Make, token_of
from tests.statements import Statements

SHA = "f" * 40
CHANGED = "subscription($projects: [String!], $refs: [String!], $after: String) { "
CHANGED += "buildChanged(projects: $projects, refs: $refs, afterSeq: $after) { seq from to build { databaseId status project { path } } } }"

Change = Callable[[tables.Build, CheckStatus], Awaitable[None]]


@pytest.fixture
async def owner(make: Make) -> tables.User:
    return await make.user("olga")


@pytest.fixture
async def project(make: Make, owner: tables.User) -> tables.Project:
    return await make.project(owner=owner, builds_enabled=True)


@pytest.fixture
def change(services: Services, owner: tables.User) -> Change:
    """Brings a build to another status, in a transaction of its own."""

    async def change(build: tables.Build, to: CheckStatus) -> None:
        async with session_for(services.database, writing=True) as session:
            context = Context(services, session, owner, "test")
            assert await builds.change(context, build, to) is not None
            await session.flush()
            await keep(context)

    return change


@pytest.fixture
async def reader(services: Services) -> AsyncIterator[None]:
    """The process reads the events, as the service does."""
    task = asyncio.create_task(services.live.run(services.database))
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class TestTelling:
    @pytest.mark.usefixtures("reader")
    async def test_what_changes_is_told_in_order(
        self, graph: Graph, make: Make, owner: tables.User, project: tables.Project, change: Change
    ) -> None:
        build = await make.build(project, SHA)
        async with following(graph, owner, CHANGED) as stream:
            await change(build, CheckStatus.RUNNING)
            first = await told(stream)
            await change(build, CheckStatus.FAILED)
            second = await told(stream)
        assert (first["from"], first["to"], first["build"]["status"]) == ("PENDING", "RUNNING", "RUNNING")
        assert first["build"]["project"]["path"] == project.path
        assert (second["from"], second["to"]) == ("RUNNING", "FAILED")
        assert int(first["seq"]) < int(second["seq"])

    @pytest.mark.usefixtures("reader")
    async def test_a_new_build_was_nothing(self, graph: Graph, ask: Ask, owner: tables.User, make: Make) -> None:
        project = await make.project(owner=owner, history={}, builds_enabled=True)
        async with following(graph, owner, CHANGED, projects=[str(project.id)]) as stream:
            create = "mutation($i: CreateBuildInput!) { createBuild(input: $i) { build { databaseId } userErrors { code message field } } }"
            sent = {"projectPath": str(project.id), "sha": "master", "name": "lint", "status": "PENDING"}
            made = await ask.data(create, owner, i=sent)
            event = await told(stream)
        assert (event["from"], event["to"]) == (None, "PENDING")
        assert event["build"]["databaseId"] == made["createBuild"]["build"]["databaseId"]

    async def test_what_was_before_is_not_told(
        self, graph: Graph, services: Services, make: Make, owner: tables.User, project: tables.Project, change: Change
    ) -> None:
        await change(await make.build(project, SHA), CheckStatus.RUNNING)
        async with following(graph, owner, CHANGED) as stream:
            await services.live.settle(services.database)
            assert await stream.next(0.05) is None
            assert not stream.ended

    async def test_only_what_was_asked_for(
        self, graph: Graph, services: Services, make: Make, owner: tables.User, project: tables.Project, change: Change
    ) -> None:
        other = await make.project(owner=owner, builds_enabled=True)
        group = await make.fetch(tables.Namespace, project.namespace_id)
        assert group is not None
        wanted = await make.build(project, SHA, ref="release")
        async with following(graph, owner, CHANGED, projects=[f"{group.path}/{project.path}"], refs=["release", "next"]) as stream:
            for build in (await make.build(other, SHA, ref="release"), await make.build(project, SHA), wanted):
                await change(build, CheckStatus.RUNNING)
            await services.live.settle(services.database)
            assert (await told(stream))["build"]["databaseId"] == wanted.id
            assert await stream.next(0.05) is None

    async def test_equal_streams_share_the_answer(
        self,
        graph: Graph,
        services: Services,
        make: Make,
        owner: tables.User,
        project: tables.Project,
        change: Change,
        statements: Statements,
    ) -> None:
        build = await make.build(project, SHA)
        streams = [await opened(graph, owner, CHANGED, after=None if number else "0") for number in range(20)]
        await change(build, CheckStatus.RUNNING)
        await services.live.settle(services.database)
        assert all(isinstance(stream, Stream) for stream in streams)
        with statements.counted() as sent:
            found = await asyncio.gather(*(told(stream) for stream in streams if isinstance(stream, Stream)))
        assert len({event["seq"] for event in found}) == 1
        assert len(sent) <= 8
        for stream in streams:
            assert isinstance(stream, Stream)
            stream.close()
        assert services.live.open == 0


class TestResuming:
    async def test_nothing_is_missed_and_nothing_comes_twice(
        self,
        graph: Graph,
        services: Services,
        make: Make,
        owner: tables.User,
        project: tables.Project,
        change: Change,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("graph.subscribing.PAGE", 3)
        made = [await make.build(project, SHA) for _ in range(8)]
        for build in made:
            await change(build, CheckStatus.RUNNING)
        seen: list[int] = []
        last = "0"
        for _ in range(3):
            async with following(graph, owner, CHANGED, after=last) as stream:
                for _ in range(2):
                    event = await told(stream)
                    seen.append(event["build"]["databaseId"])
                    last = event["seq"]
        async with following(graph, owner, CHANGED, after=last) as stream:
            seen += [(await told(stream))["build"]["databaseId"] for _ in range(2)]
            later = await make.build(project, SHA)
            await change(later, CheckStatus.RUNNING)
            assert await stream.next(0.02) is None
            await services.live.settle(services.database)
            seen.append((await told(stream))["build"]["databaseId"])
            assert await stream.next(0.02) is None
        assert seen == [*(build.id for build in made), later.id]

    @pytest.mark.usefixtures("reader")
    async def test_while_others_write(
        self, graph: Graph, make: Make, owner: tables.User, project: tables.Project, change: Change, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is read of the past meets what comes now without a seam."""
        monkeypatch.setattr("graph.subscribing.PAGE", 2)
        made = [await make.build(project, SHA) for _ in range(30)]
        for build in made[:10]:
            await change(build, CheckStatus.RUNNING)

        async def write(part: list[tables.Build]) -> None:
            for build in part:
                await change(build, CheckStatus.RUNNING)

        writing = asyncio.gather(write(made[10:20]), write(made[20:]))
        async with following(graph, owner, CHANGED, after="0") as stream:
            seen = [await told(stream) for _ in made]
            assert await stream.next(0.02) is None
        await writing
        assert sorted(event["build"]["databaseId"] for event in seen) == sorted(build.id for build in made)
        numbers = [int(event["seq"]) for event in seen]
        assert numbers == sorted(set(numbers))

    @pytest.mark.parametrize("after", ["", "-1", "1.5", "x", "99999999999", "2147483648", "é"])
    async def test_what_is_no_number(self, graph: Graph, owner: tables.User, after: str) -> None:
        assert await code(graph, owner, CHANGED, after=after) == Code.BAD_REQUEST


class TestOrder:
    """A number that is given first may be seen last: it is waited for."""

    @pytest.fixture
    def rows(self, make: Make, project: tables.Project) -> Any:
        async def row(build: tables.Build) -> dict[str, Any]:
            common = {"kind": ChangeKind.BUILD, "became": CheckStatus.RUNNING, "ref": build.ref, "created_at": build.created_at}
            return {**common, "project_id": project.id, "build_id": build.id}

        return row

    @pytest.fixture(autouse=True)
    def only_where_writers_cross(self, dialect: str) -> None:
        if dialect == "sqlite":
            pytest.skip("one writes at a time")

    async def test_a_smaller_number_that_comes_later(self, database: Database, make: Make, project: tables.Project, rows: Any) -> None:
        build = await make.build(project, SHA)
        settled = Settled()
        settled.begin(await settled.newest(database))
        async with database.writing() as early, database.writing() as late:
            await early.execute(insert(tables.Change), [await rows(build)])
            await late.execute(insert(tables.Change), [await rows(build)])
            await late.commit()
            for _ in range(3):
                assert (await settled.read(database))[0] == []
            assert settled.upto == 0
            # One that begins now cannot have the missing number, so nobody waits for it.
            async with database.writing() as unrelated:
                await unrelated.execute(insert(tables.Change), [await rows(build)])
                await early.commit()
                found, _ = await settled.read(database)
                assert [event.seq for event in found] == [1, 2]
                await unrelated.commit()
        assert [event.seq for event in (await settled.read(database))[0]] == [3]

    async def test_a_number_that_never_comes(self, database: Database, make: Make, project: tables.Project, rows: Any) -> None:
        build = await make.build(project, SHA)
        settled = Settled()
        settled.begin(await settled.newest(database))
        async with database.writing() as early, database.writing() as late:
            await early.execute(insert(tables.Change), [await rows(build)])
            await late.execute(insert(tables.Change), [await rows(build)])
            await late.commit()
            assert await settled.read(database) == ([], 0.0)
            assert (await settled.read(database))[0] == []
            await early.rollback()
        assert [event.seq for event in (await settled.read(database))[0]] == [2]

    async def test_who_comes_waits_for_what_is_being_written(
        self, graph: Graph, database: Database, make: Make, owner: tables.User, project: tables.Project, rows: Any
    ) -> None:
        """The past that is read at once must be all there, up to the number that it is read to."""
        build = await make.build(project, SHA)
        async with database.writing() as early, database.writing() as late:
            await early.execute(insert(tables.Change), [await rows(build)])
            await late.execute(insert(tables.Change), [await rows(build)])
            await late.commit()
            opening = asyncio.create_task(opened(graph, owner, CHANGED, after="0"))
            await asyncio.sleep(0.1)
            assert not opening.done()
            await early.commit()
        stream = await opening
        assert isinstance(stream, Stream)
        assert [(await told(stream))["seq"] for _ in range(2)] == ["1", "2"]
        stream.close()


class TestNotices:
    async def test_another_process_hears(self, graph: Graph, services: Services, make: Make, owner: tables.User, change: Change) -> None:
        """Another process is another `Live` over the same database; where there are no notices it looks by itself."""
        other = Live()
        project = await make.project(owner=owner, builds_enabled=True)
        build = await make.build(project, SHA)
        tasks = [asyncio.create_task(each.run(services.database)) for each in (services.live, other)]
        async with following(Graph(replace(services, live=other)), owner, CHANGED) as stream:
            await asyncio.sleep(0.2)
            started = asyncio.get_running_loop().time()
            await change(build, CheckStatus.RUNNING)
            assert (await told(stream))["to"] == "RUNNING"
            passed = asyncio.get_running_loop().time() - started
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert passed < (0.7 if services.database.dialect == "postgresql" else 2)


class TestRights:
    async def test_nobody_hears_of_what_they_do_not_see(
        self, graph: Graph, services: Services, make: Make, project: tables.Project, change: Change
    ) -> None:
        stranger = await make.user()
        public = await make.project(visibility=Visibility.PUBLIC, builds_enabled=True)
        async with following(graph, stranger, CHANGED) as stream:
            await change(await make.build(project, SHA), CheckStatus.RUNNING)
            seen = await make.build(public, SHA)
            await change(seen, CheckStatus.RUNNING)
            await services.live.settle(services.database)
            assert (await told(stream))["build"]["databaseId"] == seen.id
            assert await stream.next(0.02) is None

    async def test_nothing_after_a_membership_ended(
        self, graph: Graph, services: Services, make: Make, owner: tables.User, change: Change
    ) -> None:
        member = await make.user()
        project = await make.project(owner=owner, members=[(member, AccessLevel.REPORTER)], builds_enabled=True)
        build = await make.build(project, SHA)
        async with following(graph, member, CHANGED, projects=[str(project.id)]) as stream:
            await change(build, CheckStatus.RUNNING)
            await services.live.settle(services.database)
            await told(stream)
            async with services.database.writing() as session:
                await session.execute(delete(tables.ProjectMember).where(col(tables.ProjectMember.user_id) == member.id))
                await session.commit()
            await change(build, CheckStatus.SUCCESS)
            await services.live.settle(services.database)
            assert await stream.next(0.02) is None

    @pytest.mark.parametrize("how", ["blocked", "token"])
    async def test_who_may_not_call_any_more_is_cut_off(
        self, graph: Graph, services: Services, make: Make, owner: tables.User, how: str
    ) -> None:
        stays = await make.user()
        async with following(graph, owner, CHANGED) as stream, following(graph, stays, CHANGED) as other:
            async with services.database.writing() as session:
                if how == "blocked":
                    await session.execute(update(tables.User).where(col(tables.User.id) == owner.id).values(state=tables.UserState.BLOCKED))
                else:
                    await session.execute(delete(tables.Token).where(col(tables.Token.user_id) == owner.id))
                await session.commit()
            await services.live.check(services.database)
            assert await ends(stream) == Code.UNAUTHENTICATED
            assert await other.next(0.02) is None
            assert not other.ended
            assert services.live.open == 1

    async def test_the_check_is_made_by_itself(
        self, graph: Graph, services: Services, make: Make, owner: tables.User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(living, "CHECK_SECONDS", 0.05)
        monkeypatch.setattr(living, "POLL_SECONDS", 0.05)
        task = asyncio.create_task(services.live.run(services.database))
        async with following(graph, owner, CHANGED) as stream:
            owner.state = tables.UserState.BLOCKED
            async with services.database.writing() as session:
                await session.execute(update(tables.User).where(col(tables.User.id) == owner.id).values(state=tables.UserState.BLOCKED))
                await session.commit()
            assert await ends(stream, 3) == Code.UNAUTHENTICATED
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def test_a_blocked_user_gets_no_event_before_the_check_either(
        self, graph: Graph, services: Services, make: Make, project: tables.Project, change: Change
    ) -> None:
        member = await make.user(admin=True)
        build = await make.build(project, SHA)
        async with following(graph, member, CHANGED) as stream:
            async with services.database.writing() as session:
                await session.execute(update(tables.User).where(col(tables.User.id) == member.id).values(state=tables.UserState.BLOCKED))
                await session.commit()
            await change(build, CheckStatus.RUNNING)
            await services.live.settle(services.database)
            assert await ends(stream) == Code.UNAUTHENTICATED

    async def test_what_cannot_be_asked(self, graph: Graph, make: Make, owner: tables.User, project: tables.Project) -> None:
        stranger, blocked = await make.user(), await make.user(state=tables.UserState.BLOCKED)
        reporterless = await make.user()
        quiet = await make.project(owner=owner, members=[(reporterless, AccessLevel.GUEST)], builds_enabled=True)
        assert await code(graph, None, CHANGED) == Code.UNAUTHENTICATED
        assert await code(graph, blocked, CHANGED) == Code.UNAUTHENTICATED
        assert await code(graph, stranger, CHANGED, projects=[str(project.id)]) == Code.NOT_FOUND
        assert await code(graph, stranger, CHANGED, projects=["no/where"]) == Code.NOT_FOUND
        assert await code(graph, reporterless, CHANGED, projects=[str(quiet.id)]) == Code.FORBIDDEN
        assert await code(graph, owner, CHANGED, projects=["1"] * 51) == Code.LIMIT_EXCEEDED
        assert await code(graph, owner, CHANGED, refs=["a\0b"]) == Code.BAD_REQUEST
        assert await code(graph, owner, "{ viewer { username } }") == Code.BAD_REQUEST
        assert await code(graph, owner, "subscription { nothing }") == Code.BAD_REQUEST
        nodes = "project { builds(first: 100) { nodes { attempts(first: 100) { nodes { user { id } } } } } }"
        dear = f"subscription {{ buildChanged {{ build {{ {nodes} }} }} }}"
        assert await code(graph, owner, dear) == Code.LIMIT_EXCEEDED
        assert await code(graph, owner, CHANGED, refs=3) == Code.BAD_REQUEST


class TestBounds:
    async def test_who_is_too_slow_is_cut_off_and_resumes(
        self,
        graph: Graph,
        services: Services,
        make: Make,
        owner: tables.User,
        project: tables.Project,
        change: Change,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(living, "QUEUE", 3)
        monkeypatch.setattr(living, "SLOW_SECONDS", 0.0)
        made = [await make.build(project, SHA) for _ in range(6)]
        async with following(graph, owner, CHANGED) as slow:
            await change(made[0], CheckStatus.RUNNING)
            await services.live.settle(services.database)
            last = (await told(slow))["seq"]
            for build in made[1:]:
                await change(build, CheckStatus.RUNNING)
            await services.live.settle(services.database)
            found = await slow.next(1)
            assert found is not None
            assert found.outcome.errors[0].code is Code.LIMIT_EXCEEDED
            assert "afterSeq" in found.outcome.errors[0].message
            assert slow.ended
        async with following(graph, owner, CHANGED, after=last) as again:
            assert [(await told(again))["build"]["databaseId"] for _ in made[1:]] == [build.id for build in made[1:]]

    async def test_more_at_once_than_a_queue_holds_is_read_from_the_log(
        self,
        graph: Graph,
        services: Services,
        make: Make,
        owner: tables.User,
        project: tables.Project,
        change: Change,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A reader that keeps up is not cut off for a push that brings many changes."""
        monkeypatch.setattr(living, "QUEUE", 3)
        made = [await make.build(project, SHA) for _ in range(12)]
        async with following(graph, owner, CHANGED) as stream:
            before = stream.position
            for build in made[:8]:
                await change(build, CheckStatus.RUNNING)
            await services.live.settle(services.database)
            assert stream.position == before
            seen = [(await told(stream))["build"]["databaseId"] for _ in range(2)]
            # Also while it reads there.
            for build in made[8:]:
                await change(build, CheckStatus.RUNNING)
                await services.live.settle(services.database)
            seen += [(await told(stream))["build"]["databaseId"] for _ in range(10)]
            assert seen == [build.id for build in made]
            assert await stream.next(0.05) is None
            assert stream.position == services.live.upto

    async def test_so_many_and_no_more(self, services: Services, owner: tables.User) -> None:
        counts: list[int] = []
        few = replace(services, live=Live(most=2))
        few.live.counted = counts.append
        graph = Graph(few)
        async with following(graph, owner, CHANGED), following(graph, owner, CHANGED):
            assert await code(graph, owner, CHANGED) == Code.UNAVAILABLE
        async with following(graph, owner, CHANGED):
            pass
        assert counts == [1, 2, 1, 0, 1, 0]

    async def test_one_user_takes_no_more_than_a_share(self, services: Services, make: Make, owner: tables.User) -> None:
        other = await make.user()
        graph = Graph(replace(services, live=Live(most=10, most_per_viewer=2)))
        async with following(graph, owner, CHANGED), following(graph, owner, CHANGED):
            refused = await opened(graph, owner, CHANGED)
            assert isinstance(refused, Outcome)
            (problem,) = refused.errors
            assert (problem.code, problem.retry_after) == (Code.LIMIT_EXCEEDED, 5)
            assert problem.message.startswith("You have 2 streams and WebSockets open, the limit for one user.")
            async with following(graph, other, CHANGED):
                pass
        async with following(graph, owner, CHANGED):
            pass

    async def test_a_stream_is_interrupted_while_the_database_is_away(
        self,
        graph: Graph,
        services: Services,
        make: Make,
        owner: tables.User,
        project: tables.Project,
        change: Change,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The event is not told as an error, after which clients would not go on: the stream ends so that they resume before it."""
        build = await make.build(project, SHA)
        async with following(graph, owner, CHANGED) as stream:
            before = stream.position
            await change(build, CheckStatus.RUNNING)
            await services.live.settle(services.database)

            async def away(*_: object) -> None:
                raise ConnectionRefusedError

            with monkeypatch.context() as patched:
                patched.setattr("graph.telling.viewer_of", away)
                assert await ends(stream) is None
            assert stream.interrupted
        async with following(graph, owner, CHANGED, after=str(before)) as again:
            assert (await told(again))["build"]["databaseId"] == build.id

    async def test_the_position_is_before_what_waits(
        self, graph: Graph, services: Services, make: Make, owner: tables.User, project: tables.Project, change: Change
    ) -> None:
        async with following(graph, owner, CHANGED) as stream:
            first = stream.position
            await change(await make.build(project, SHA), CheckStatus.RUNNING)
            await services.live.settle(services.database)
            assert stream.position == first
            seq = int((await told(stream))["seq"])
            assert stream.position == seq

    async def test_a_stop_ends_streams_and_lets_none_in(self, graph: Graph, services: Services, owner: tables.User) -> None:
        async with following(graph, owner, CHANGED) as stream:
            services.live.close()
            assert await ends(stream) is None
            assert stream.interrupted
        assert await code(graph, owner, CHANGED) == Code.UNAVAILABLE

    async def test_never_as_a_query(self, ask: Ask, graph: Graph, owner: tables.User) -> None:
        outcome = await ask(CHANGED, owner)
        assert outcome.is_stream
        assert outcome.data is None
        prepared = prepare("subscription A { buildChanged { seq } }", "A")
        assert (await graph.run(prepared, {}, token_of(owner), request_id="test")).data is None
