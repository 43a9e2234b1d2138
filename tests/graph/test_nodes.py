"""Branches, tags, runners and memberships by their ids: who is given them, and what an id stays the same through."""

from typing import Any

import pytest

from graph.context import Services
from graph.declare import global_id
from storage import tables
from storage.tables import AccessLevel, Visibility
from tests.forge import Ask
from tests.make import Make
from tests.statements import Statements

NODE = "query ($id: ID!) { node(id: $id) { __typename id } }"
NAMED = """query ($id: ID!) { node(id: $id) {
  ... on Branch { id name target { title } }
  ... on Tag { id name target { title } }
  ... on Runner { id description }
  ... on GroupMember { id user { username } level: accessLevel path: restPath }
  ... on ProjectMember { id user { username } level: accessLevel } } }"""
NODES = "query ($ids: [ID!]!) { nodes(ids: $ids) { id } }"
NO_SUCH = ["0", "-1", "x", "999999", "", "999999:master", "1:", "x:master", "1:no/such", str(2**70)]


async def given(ask: Ask, viewer: tables.User, id: str) -> Any:
    return (await ask.data(NODE, viewer, id=id))["node"]


@pytest.fixture
async def ada(make: Make) -> tables.User:
    return await make.user("ada")


@pytest.mark.parametrize("key", NO_SUCH)
@pytest.mark.parametrize("kind", ["Branch", "Tag", "Runner", "GroupMember", "ProjectMember"])
async def test_what_is_not_there_is_null(ask: Ask, make: Make, kind: str, key: str) -> None:
    await make.project(owner=(root := await make.admin()), history={"commits": 1})

    assert await given(ask, root, global_id(kind, key)) is None


class TestBranch:
    LIST = "query ($p: String!) { project(path: $p) { branches { nodes { id name } } } }"

    @pytest.fixture
    async def project(self, make: Make, ada: tables.User) -> tables.Project:
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

    async def test_keeps_its_id_when_the_project_is_renamed(self, ask: Ask, ada: tables.User, project: tables.Project) -> None:
        before = await self.ids(ask, ada, project)
        rename = 'mutation ($p: String!) { updateProject(input: {projectPath: $p, path: "works"}) { userErrors { message } } }'
        assert (await ask.data(rename, ada, p=str(project.id)))["updateProject"]["userErrors"] == []

        assert await self.ids(ask, ada, project) == before

    async def test_is_null_for_who_may_not_read_code(self, ask: Ask, make: Make, ada: tables.User, project: tables.Project) -> None:
        guest, stranger = await make.user("guest"), await make.user("stranger")
        await make.member(project, guest, AccessLevel.GUEST)

        for id in (await self.ids(ask, ada, project)).values():
            assert await given(ask, guest, id) is None
            assert await given(ask, stranger, id) is None

    async def test_many_cost_as_few_statements_as_one(
        self, ask: Ask, ada: tables.User, project: tables.Project, make: Make, statements: Statements
    ) -> None:
        other = await make.project(owner=ada, history={"commits": 1})
        ids = list((await self.ids(ask, ada, project)).values())
        more = [*ids, *(await self.ids(ask, ada, other)).values()]
        for _ in range(2):
            await ask.data(NODES, ada, ids=ids)
        with statements.counted() as few:
            await ask.data(NODES, ada, ids=ids[:1])
        with statements.at_most(len(few)):
            assert [node["id"] for node in (await ask.data(NODES, ada, ids=more))["nodes"]] == more

    async def test_of_a_repository_that_cannot_be_read_leaves_the_others_alone(
        self, ask: Ask, services: Services, ada: tables.User, project: tables.Project, make: Make
    ) -> None:
        other = await make.project(owner=ada, history={"commits": 1})
        (good, *_), (bad, *_) = [list((await self.ids(ask, ada, each)).values()) for each in (project, other)]
        path = services.repositories.path_of(other.id)
        path.rename(path.with_name("gone"))

        outcome = await ask(NODES, ada, ids=[good, bad])

        assert outcome.data == {"nodes": [{"id": good}, None]}
        assert [str(problem.code) for problem in outcome.errors] == ["UNAVAILABLE"]


class TestTag:
    async def test_is_found_by_its_id_and_is_no_branch(self, ask: Ask, make: Make, ada: tables.User) -> None:
        project = await make.project(owner=ada, history={"commits": 1})
        query = "query ($p: String!) { project(path: $p) { tags { nodes { id name } } } }"

        tag = (await ask.data(query, ada, p=str(project.id)))["project"]["tags"]["nodes"][0]

        assert (await ask.data(NAMED, ada, id=tag["id"]))["node"] | {"target": None} == {**tag, "target": None}
        assert await given(ask, ada, global_id("Branch", f"{project.id}:{tag['name']}")) is None
        assert await given(ask, await make.user(), tag["id"]) is None


class TestRunner:
    async def test_is_given_to_administrators_and_to_masters_of_a_project_that_it_serves(self, ask: Ask, make: Make) -> None:
        master, developer, stranger = await make.user(), await make.user(), await make.user()
        members = [(master, AccessLevel.MASTER), (developer, AccessLevel.DEVELOPER)]
        project = await make.project(owner=await make.user(), members=members, visibility=Visibility.PUBLIC)
        runner = await make.runner(project, await make.project(owner=stranger), shared=False, description="In the cellar")
        id = global_id("Runner", runner.id)

        for viewer in (master, stranger, await make.admin()):
            assert (await ask.data(NAMED, viewer, id=id))["node"] == {"id": id, "description": "In the cellar"}
        for viewer in (developer, await make.user()):
            assert await given(ask, viewer, id) is None

    async def test_a_shared_one_is_given_to_administrators_alone(self, ask: Ask, make: Make) -> None:
        id = global_id("Runner", (await make.runner()).id)

        assert await given(ask, await make.admin(), id) == {"__typename": "Runner", "id": id}
        assert await given(ask, await make.user(), id) is None


class TestMembers:
    async def test_of_a_project_for_who_sees_the_project(self, ask: Ask, make: Make, ada: tables.User) -> None:
        bob = await make.user("bob")
        project = await make.project(owner=ada, members=[(bob, AccessLevel.REPORTER)])
        query = "query ($p: String!) { project(path: $p) { members { nodes { id user { username } } } } }"
        (member,) = (await ask.data(query, ada, p=str(project.id)))["project"]["members"]["nodes"]

        assert (await ask.data(NAMED, bob, id=member["id"]))["node"] == {**member, "level": "REPORTER"}
        assert await given(ask, await make.user(), member["id"]) is None

    async def test_of_a_group_for_who_sees_the_group(self, ask: Ask, make: Make, ada: tables.User) -> None:
        group = await make.group(owner=ada, path="mills")
        query = "query ($g: String!) { group(path: $g) { members { nodes { id user { username } } } } }"
        (member,) = (await ask.data(query, ada, g="mills"))["group"]["members"]["nodes"]

        shown = (await ask.data(NAMED, ada, id=member["id"]))["node"]

        assert shown == {**member, "level": "OWNER", "path": f"/api/v3/groups/{group.id}/members/{ada.id}"}
        assert await given(ask, await make.admin(), member["id"]) is not None

    async def test_a_level_that_is_changed_keeps_the_id(self, ask: Ask, make: Make, ada: tables.User) -> None:
        bob = await make.user("bob")
        project = await make.project(owner=ada, members=[(bob, AccessLevel.REPORTER)])
        change = """mutation ($p: String!, $level: AccessLevel!) { updateProjectMember(
          input: {projectPath: $p, username: "bob", accessLevel: $level}) { member { id } userErrors { message } } }"""

        ids = [
            (await ask.data(change, ada, p=str(project.id), level=level))["updateProjectMember"]["member"]["id"]
            for level in ("DEVELOPER", "GUEST")
        ]

        assert ids[0] == ids[1]
