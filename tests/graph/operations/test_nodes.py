"""`node`: branches, tags, runners and memberships by id: who can read them, and which changes preserve an id."""

from typing import Any

import pytest

from graph.context import Services
from graph.fields.entities import global_id
from storage import tables
from storage.tables import AccessLevel, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

NODE = "query ($id: ID!) { node(id: $id) { __typename id } }"
NAMED = """query ($id: ID!) { node(id: $id) {
  ... on Branch { id name target { title } }
  ... on Tag { id name target { title } }
  ... on Runner { id description }
  ... on GroupMember { id user { username } level: accessLevel path: restPath }
  ... on ProjectMember { id user { username } level: accessLevel } } }"""
NODES = "query ($ids: [ID!]!) { nodes(ids: $ids) { id } }"
MISSING_IDS = ["0", "-1", "x", "999999", "", "999999:master", "1:", "x:master", "1:no/such", str(2**70)]


async def node_typename(ask: Ask, viewer: tables.User, id: str) -> Any:
    return (await ask.data(NODE, viewer, id=id))["node"]


@pytest.fixture
async def ada(make: DataFactory) -> tables.User:
    return await make.user("ada")


@pytest.mark.parametrize("key", MISSING_IDS)
@pytest.mark.parametrize("kind", ["Branch", "Tag", "Runner", "GroupMember", "ProjectMember"])
async def test_missing_nodes_are_null(ask: Ask, make: DataFactory, kind: str, key: str) -> None:
    await make.project(owner=(root := await make.admin()), history={"commits": 1})

    assert await node_typename(ask, root, global_id(kind, key)) is None


class TestBranch:
    LIST = "query ($p: String!) { project(path: $p) { branches { nodes { id name } } } }"

    @pytest.fixture
    async def project(self, make: DataFactory, ada: tables.User) -> tables.Project:
        return await make.project(owner=ada, path="mill", history={"commits": 2})

    async def ids(self, ask: Ask, viewer: tables.User, project: tables.Project) -> dict[str, str]:
        nodes = (await ask.data(self.LIST, viewer, p=str(project.id)))["project"]["branches"]["nodes"]
        return {node["name"]: node["id"] for node in nodes}

    async def test_is_found_by_its_id(self, ask: Ask, ada: tables.User, project: tables.Project) -> None:
        for name, id in (await self.ids(ask, ada, project)).items():
            node = (await ask.data(NAMED, ada, id=id))["node"]
            assert (node["id"], node["name"]) == (id, name)
            assert node["target"]["title"]

    async def test_one_branch_has_the_same_id_everywhere(self, ask: Ask, ada: tables.User, project: tables.Project) -> None:
        query = "query ($p: String!) { project(path: $p) { branch { id name } } }"
        branch = (await ask.data(query, ada, p=str(project.id)))["project"]["branch"]

        assert branch["id"] == (await self.ids(ask, ada, project))[branch["name"]]

    async def test_preserves_its_id_when_the_project_is_renamed(self, ask: Ask, ada: tables.User, project: tables.Project) -> None:
        before = await self.ids(ask, ada, project)
        rename = 'mutation ($p: String!) { updateProject(input: {projectPath: $p, path: "works"}) { userErrors { message } } }'
        assert (await ask.data(rename, ada, p=str(project.id)))["updateProject"]["userErrors"] == []

        assert await self.ids(ask, ada, project) == before

    async def test_is_null_without_permission_to_read_code(
        self, ask: Ask, make: DataFactory, ada: tables.User, project: tables.Project
    ) -> None:
        guest, stranger = await make.user("guest"), await make.user("stranger")
        await make.member(project, guest, AccessLevel.GUEST)

        for id in (await self.ids(ask, ada, project)).values():
            assert await node_typename(ask, guest, id) is None
            assert await node_typename(ask, stranger, id) is None

    async def test_statement_count_does_not_grow_with_rows(
        self, ask: Ask, ada: tables.User, project: tables.Project, make: DataFactory, statements: StatementRecorder
    ) -> None:
        other = await make.project(owner=ada, history={"commits": 1})
        ids = list((await self.ids(ask, ada, project)).values())
        more = [*ids, *(await self.ids(ask, ada, other)).values()]
        for _ in range(2):
            await ask.data(NODES, ada, ids=more)
        with statements.record() as few:
            await ask.data(NODES, ada, ids=ids[:1])
        with statements.assert_at_most(len(few)):
            assert [node["id"] for node in (await ask.data(NODES, ada, ids=more))["nodes"]] == more

    async def test_an_unreadable_repository_nulls_only_its_own_nodes(
        self, ask: Ask, services: Services, ada: tables.User, project: tables.Project, make: DataFactory
    ) -> None:
        other = await make.project(owner=ada, history={"commits": 1})
        (good, *_), (bad, *_) = [list((await self.ids(ask, ada, each)).values()) for each in (project, other)]
        path = services.repositories.path_of(other.id)
        path.rename(path.with_name("gone"))

        outcome = await ask(NODES, ada, ids=[good, bad])

        assert outcome.data == {"nodes": [{"id": good}, None]}
        assert [str(problem.code) for problem in outcome.errors] == ["UNAVAILABLE"]


class TestTag:
    async def test_is_found_by_its_id_and_is_no_branch(self, ask: Ask, make: DataFactory, ada: tables.User) -> None:
        project = await make.project(owner=ada, history={"commits": 1})
        query = "query ($p: String!) { project(path: $p) { tags { nodes { id name } } } }"

        tag = (await ask.data(query, ada, p=str(project.id)))["project"]["tags"]["nodes"][0]

        assert (await ask.data(NAMED, ada, id=tag["id"]))["node"] | {"target": None} == {**tag, "target": None}
        assert await node_typename(ask, ada, global_id("Branch", f"{project.id}:{tag['name']}")) is None
        assert await node_typename(ask, await make.user(), tag["id"]) is None


class TestRunner:
    async def test_is_visible_to_administrators_and_masters_of_its_projects(self, ask: Ask, make: DataFactory) -> None:
        master, developer, stranger = await make.user(), await make.user(), await make.user()
        members = [(master, AccessLevel.MASTER), (developer, AccessLevel.DEVELOPER)]
        project = await make.project(owner=await make.user(), members=members, visibility=Visibility.PUBLIC)
        runner = await make.runner(project, await make.project(owner=stranger), shared=False, description="In the cellar")
        id = global_id("Runner", runner.id)

        for viewer in (master, stranger, await make.admin()):
            assert (await ask.data(NAMED, viewer, id=id))["node"] == {"id": id, "description": "In the cellar"}
        for viewer in (developer, await make.user()):
            assert await node_typename(ask, viewer, id) is None

    async def test_a_shared_runner_is_visible_to_administrators_only(self, ask: Ask, make: DataFactory) -> None:
        id = global_id("Runner", (await make.runner()).id)

        assert await node_typename(ask, await make.admin(), id) == {"__typename": "Runner", "id": id}
        assert await node_typename(ask, await make.user(), id) is None


class TestMembers:
    async def test_project_members_are_visible_with_the_project(self, ask: Ask, make: DataFactory, ada: tables.User) -> None:
        bob = await make.user("bob")
        project = await make.project(owner=ada, members=[(bob, AccessLevel.REPORTER)])
        query = "query ($p: String!) { project(path: $p) { members { nodes { id user { username } } } } }"
        (member,) = (await ask.data(query, ada, p=str(project.id)))["project"]["members"]["nodes"]

        assert (await ask.data(NAMED, bob, id=member["id"]))["node"] == {**member, "level": "REPORTER"}
        assert await node_typename(ask, await make.user(), member["id"]) is None

    async def test_group_members_are_visible_with_the_group(self, ask: Ask, make: DataFactory, ada: tables.User) -> None:
        group = await make.group(owner=ada, path="mills")
        query = "query ($g: String!) { group(path: $g) { members { nodes { id user { username } } } } }"
        (member,) = (await ask.data(query, ada, g="mills"))["group"]["members"]["nodes"]

        shown = (await ask.data(NAMED, ada, id=member["id"]))["node"]

        assert shown == {**member, "level": "OWNER", "path": f"/api/v3/groups/{group.id}/members/{ada.id}"}
        assert await node_typename(ask, await make.admin(), member["id"]) is not None

    async def test_a_level_that_is_changed_preserves_the_id(self, ask: Ask, make: DataFactory, ada: tables.User) -> None:
        bob = await make.user("bob")
        project = await make.project(owner=ada, members=[(bob, AccessLevel.REPORTER)])
        change = """mutation ($p: String!, $level: AccessLevel!) { updateProjectMember(
          input: {projectPath: $p, username: "bob", accessLevel: $level}) { member { id } userErrors { message } } }"""

        ids = [
            (await ask.data(change, ada, p=str(project.id), level=level))["updateProjectMember"]["member"]["id"]
            for level in ("DEVELOPER", "GUEST")
        ]

        assert ids[0] == ids[1]
