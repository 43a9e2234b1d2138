"""Streams end when their viewer can follow none of their projects any more."""

import pytest
from sqlalchemy import delete, update
from sqlmodel import col

from graph.context import Services
from graph.errors import Code
from graph.live import stream_access
from graph.live.stream_access import end_hidden_streams
from graph.live.subscription_streams import SubscriptionStream
from graph.operations.execution import Graph
from storage import tables
from storage.tables import AccessLevel, CheckStatus
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder
from tests.support.servers.streams import end_code, open_stream, subscribed

CHANGED = "subscription ($projects: [String!]) { buildChanged(projects: $projects) { seq } }"
TRACE = "subscription ($project: String!, $id: Int!) { buildTrace(project: $project, databaseId: $id) { text } }"
DELETE = "mutation ($path: String!) { deleteProject(input: {projectPath: $path}) { userErrors { code } } }"


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user("olga")


@pytest.fixture
async def member(make: DataFactory) -> tables.User:
    return await make.user("mia")


@pytest.fixture
async def projects(make: DataFactory, owner: tables.User, member: tables.User) -> list[str]:
    """The ids of two private projects of which both are members."""
    made = [await make.project(owner=owner, members=[(member, AccessLevel.REPORTER)], builds_enabled=True) for _ in range(2)]
    return [str(project.id) for project in made]


async def execute(services: Services, statement: object) -> None:
    async with services.database.write_session() as session:
        await session.execute(statement)
        await session.commit()


async def leave(services: Services, user: tables.User, project_id: str) -> None:
    of_user = col(tables.ProjectMember.user_id) == user.id, col(tables.ProjectMember.project_id) == int(project_id)
    await execute(services, delete(tables.ProjectMember).where(*of_user))


async def set_level(services: Services, user: tables.User, level: AccessLevel) -> None:
    of_user = col(tables.ProjectMember.user_id) == user.id
    await execute(services, update(tables.ProjectMember).where(of_user).values(access_level=level))


async def is_silent(stream: SubscriptionStream) -> bool:
    return await stream.next(0.02) is None and not stream.is_ended


class TestStreams:
    async def test_end_when_the_project_is_deleted(self, graph: Graph, ask: Ask, owner: tables.User, projects: list[str]) -> None:
        async with (
            subscribed(graph, owner, CHANGED, projects=projects[:1]) as deleted,
            subscribed(graph, owner, CHANGED, projects=projects[1:]) as other,
        ):
            await ask.data(DELETE, owner, path=projects[0])
            await end_hidden_streams(graph.services)
            assert await end_code(deleted) == Code.NOT_FOUND
            assert not deleted.is_interrupted
            assert await is_silent(other)

    async def test_end_when_the_viewer_is_no_member_any_more(
        self, graph: Graph, owner: tables.User, member: tables.User, projects: list[str]
    ) -> None:
        async with (
            subscribed(graph, member, CHANGED, projects=projects[:1]) as left,
            subscribed(graph, owner, CHANGED, projects=projects[:1]) as other,
        ):
            await leave(graph.services, member, projects[0])
            await end_hidden_streams(graph.services)
            assert await end_code(left) == Code.NOT_FOUND
            assert await is_silent(other)

    async def test_end_when_the_viewer_may_no_longer_see_builds(self, graph: Graph, member: tables.User, projects: list[str]) -> None:
        async with subscribed(graph, member, CHANGED, projects=projects[:1]) as stream:
            await set_level(graph.services, member, AccessLevel.GUEST)
            await end_hidden_streams(graph.services)
            assert await end_code(stream) == Code.FORBIDDEN

    async def test_stay_while_one_of_their_projects_is_visible(self, graph: Graph, member: tables.User, projects: list[str]) -> None:
        async with subscribed(graph, member, CHANGED, projects=projects) as stream:
            await leave(graph.services, member, projects[0])
            await end_hidden_streams(graph.services)
            assert await is_silent(stream)
            await leave(graph.services, member, projects[1])
            await end_hidden_streams(graph.services)
            assert await end_code(stream) == Code.NOT_FOUND

    async def test_of_all_projects_stay(self, graph: Graph, member: tables.User, projects: list[str]) -> None:
        async with subscribed(graph, member, CHANGED) as stream:
            for project_id in projects:
                await leave(graph.services, member, project_id)
            await end_hidden_streams(graph.services)
            assert await is_silent(stream)

    async def test_of_administrators_end_with_the_project(
        self, graph: Graph, ask: Ask, make: DataFactory, owner: tables.User, projects: list[str]
    ) -> None:
        admin = await make.user(admin=True)
        async with subscribed(graph, admin, CHANGED, projects=projects[:1]) as stream:
            await end_hidden_streams(graph.services)
            assert await is_silent(stream)
            await ask.data(DELETE, owner, path=projects[0])
            await end_hidden_streams(graph.services)
            assert await end_code(stream) == Code.NOT_FOUND

    @pytest.mark.parametrize("level", [None, AccessLevel.GUEST])
    async def test_of_a_silent_build_end(
        self, graph: Graph, make: DataFactory, member: tables.User, owner: tables.User, level: AccessLevel | None
    ) -> None:
        project = await make.project(owner=owner, members=[(member, AccessLevel.REPORTER)], builds_enabled=True)
        build = await make.build(project, "f" * 40, status=CheckStatus.RUNNING, started_at=graph.services.clock())
        variables = {"project": str(project.id), "id": build.id}
        async with subscribed(graph, member, TRACE, **variables) as hidden, subscribed(graph, owner, TRACE, **variables) as other:
            if level is None:
                await leave(graph.services, member, str(project.id))
            else:
                await set_level(graph.services, member, level)
            await end_hidden_streams(graph.services)
            found = await hidden.next(5)
            assert found is not None
            assert [(error.code, error.message) for error in found.result.errors] == [(Code.NOT_FOUND, "Build not found.")]
            assert await is_silent(other)


class TestChecks:
    @pytest.mark.parametrize("viewers", [1, 12])
    async def test_the_number_of_statements_does_not_depend_on_the_number_of_viewers(
        self, graph: Graph, make: DataFactory, projects: list[str], statements: StatementRecorder, viewers: int
    ) -> None:
        for _ in range(viewers):
            user = await make.user()
            members = [tables.ProjectMember(project_id=int(key), user_id=user.id, access_level=AccessLevel.REPORTER) for key in projects]
            await make.save(*members)
            assert isinstance(await open_stream(graph, user, CHANGED, projects=projects), SubscriptionStream)
        with statements.record() as sent:
            await end_hidden_streams(graph.services)
        assert len(sent) == 3

    async def test_are_split_by_the_number_of_projects(
        self, graph: Graph, member: tables.User, projects: list[str], statements: StatementRecorder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stream_access, "PROJECTS_PER_CHECK", 2)
        streams = [await open_stream(graph, member, CHANGED, projects=[projects[number % 2]]) for number in range(5)]
        for project_id in projects:
            await leave(graph.services, member, project_id)
        with statements.record() as sent:
            await end_hidden_streams(graph.services)
        assert len(sent) == 9
        for stream in streams:
            assert isinstance(stream, SubscriptionStream)
            assert await end_code(stream) == Code.NOT_FOUND

    async def test_without_streams_send_no_statement(self, graph: Graph, statements: StatementRecorder) -> None:
        with statements.record() as sent:
            await end_hidden_streams(graph.services)
        assert sent == []
