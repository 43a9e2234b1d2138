"""Runners: who can register and change them, and what their tokens allow."""

from typing import Any

import pytest

from graph.context import Services
from graph.operations.execution import Graph
from storage import tables
from storage.secrets import digest_token
from storage.tables import AccessLevel, CheckStatus
from tests.make import DataFactory, alter_token
from tests.support.api_clients import Api, Ask
from tests.support.database.statements import StatementRecorder

CREATE = """
mutation ($input: CreateRunnerInput!) {
  createRunner(input: $input) {
    token runner { databaseId description shared active tags runUntagged contactedAt projects { databaseId } }
    userErrors { field message code }
  }
}
"""
UPDATE = """
mutation ($input: UpdateRunnerInput!) {
  updateRunner(input: $input) { runner { active tags runUntagged description projects { databaseId } } userErrors { field code } }
}
"""
DELETE = "mutation ($input: RunnerInput!) { deleteRunner(input: $input) { runner { databaseId } userErrors { code } } }"
OF_PROJECT = "query ($path: String!) { project(path: $path) { runners { totalCount nodes { databaseId projects { databaseId } } } } }"
ABILITIES = """query ($path: String!) { project(path: $path) { runners(includeShared: true) {
    nodes { databaseId viewerCan { update delete unassign } } } } }"""
ALL = "query ($shared: Boolean) { runners(shared: $shared) { nodes { databaseId } } }"


class TestCreateRunner:
    async def test_a_master_makes_one_for_the_project(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        values = {"projectPath": str(project.id), "description": " builder ", "tags": ["ruby", "linux", "ruby"], "runUntagged": False}

        payload = (await ask.data(CREATE, owner, input=values))["createRunner"]

        runner = payload["runner"]
        assert runner == {
            "databaseId": runner["databaseId"],
            "description": "builder",
            "shared": False,
            "active": True,
            "tags": ["linux", "ruby"],
            "runUntagged": False,
            "contactedAt": None,
            "projects": [{"databaseId": project.id}],
        }
        row = await make.fetch(tables.Runner, runner["databaseId"])
        assert row is not None and row.token_digest == digest_token(payload["token"])
        assert row.creator_id == owner.id

    async def test_an_administrator_makes_a_shared_one(self, ask: Ask, make: DataFactory) -> None:
        payload = (await ask.data(CREATE, await make.admin(), input={"description": "all", "shared": True}))["createRunner"]

        assert payload["runner"]["shared"] is True
        assert payload["token"].startswith("fr-")

    async def test_a_shared_runner_requires_an_administrator(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        assert await ask.codes(CREATE, owner, input={"description": "all", "shared": True}) == ["FORBIDDEN"]
        assert await ask.codes(CREATE, owner, input={"description": "all"}) == ["FORBIDDEN"]
        assert await ask.codes(CREATE, owner, input={"description": "a", "shared": True, "projectPath": str(project.id)}) == ["FORBIDDEN"]

    async def test_it_serves_one_project_or_all(self, ask: Ask, make: DataFactory) -> None:
        admin, project = await make.admin(), await make.project()

        assert await ask.codes(CREATE, admin, input={"description": "a", "shared": True, "projectPath": str(project.id)}) == ["INVALID"]
        assert await ask.codes(CREATE, admin, input={"description": "a"}) == ["INVALID"]

    async def test_a_runner_must_accept_some_build(self, ask: Ask, make: DataFactory) -> None:
        admin = await make.admin()

        for tags in ([], ["a,b"], [f"t{number}" for number in range(51)]):
            values = {"description": "a", "shared": True, "tags": tags, "runUntagged": False}
            assert await ask.codes(CREATE, admin, input=values) == ["INVALID"]
        assert await ask.codes(CREATE, admin, input={"description": " ", "shared": True}) == ["REQUIRED"]


class TestUpdateRunner:
    async def test_a_master_changes_that_of_the_project(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        runner = await make.runner(project, tags=["a"])
        values = {"databaseId": runner.id, "active": False, "tags": ["b"], "runUntagged": False, "description": "new"}

        payload = (await ask.data(UPDATE, owner, input=values))["updateRunner"]

        changed = {"active": False, "tags": ["b"], "runUntagged": False, "description": "new", "projects": [{"databaseId": project.id}]}
        assert payload == {"runner": changed, "userErrors": []}

    async def test_it_gets_other_projects_of_the_viewer(self, ask: Ask, make: DataFactory) -> None:
        owner = await make.user()
        first, second = await make.project(owner=owner), await make.project(owner=owner)
        foreign = await make.project(members=[(owner, AccessLevel.DEVELOPER)])
        runner = await make.runner(first)

        payload = (await ask.data(UPDATE, owner, input={"databaseId": runner.id, "projectPaths": [str(second.id)]}))["updateRunner"]

        assert payload["runner"]["projects"] == [{"databaseId": second.id}]
        assert await ask.codes(UPDATE, owner, input={"databaseId": runner.id, "projectPaths": [str(foreign.id)]}) == ["FORBIDDEN"]
        assert await ask.codes(UPDATE, owner, input={"databaseId": runner.id, "projectPaths": []}) == ["INVALID"]

    async def test_one_that_serves_others_too_is_not_changed_by_one_master(self, ask: Ask, make: DataFactory) -> None:
        mine = await make.project(owner=(owner := await make.user()))
        runner = await make.runner(mine, await make.project())

        assert await ask.codes(UPDATE, owner, input={"databaseId": runner.id, "active": False}) == ["FORBIDDEN"]
        assert await ask.codes(UPDATE, await make.user(), input={"databaseId": runner.id, "active": False}) == ["FORBIDDEN"]
        assert await ask.codes(UPDATE, owner, input={"databaseId": 999999}) == ["NOT_FOUND"]
        assert await ask.codes(UPDATE, owner, input={"databaseId": (await make.runner()).id}) == ["FORBIDDEN"]

    async def test_a_shared_one_gets_no_projects(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project()

        values = {"databaseId": (await make.runner()).id, "projectPaths": [str(project.id)]}
        assert await ask.codes(UPDATE, await make.admin(), input=values) == ["INVALID"]

    async def test_deleting_a_runner_requeues_its_builds(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        runner, build = await make.runner(project), await make.pending_build(project)
        await ask.graph.run_document(CLAIM, {"input": {}}, None, make.runner_token(runner), request_id="test")

        await ask.data(DELETE, owner, input={"databaseId": runner.id})

        row = await make.fetch(tables.Build, build.id)
        assert row is not None and row.status is CheckStatus.PENDING
        assert row.runner_id is None and row.token_digest is None
        assert await make.fetch(tables.Runner, runner.id) is None


class TestRunnerLists:
    async def test_masters_see_those_of_the_project(self, ask: Ask, make: DataFactory) -> None:
        developer = await make.user()
        project = await make.project(owner=(owner := await make.user()), members=[(developer, AccessLevel.DEVELOPER)])
        runner = await make.runner(project, await make.project())
        await make.runner()

        found = (await ask.data(OF_PROJECT, owner, path=str(project.id)))["project"]["runners"]

        assert found == {"totalCount": 1, "nodes": [{"databaseId": runner.id, "projects": [{"databaseId": project.id}]}]}
        assert await ask.codes(OF_PROJECT, developer, path=str(project.id)) == ["FORBIDDEN"]

    async def test_administrators_see_all(self, ask: Ask, make: DataFactory) -> None:
        admin, shared, own = await make.admin(), await make.runner(), await make.runner(await make.project())

        assert (await ask.data(ALL, admin))["runners"]["nodes"] == [{"databaseId": shared.id}, {"databaseId": own.id}]
        assert (await ask.data(ALL, admin, shared=True))["runners"]["nodes"] == [{"databaseId": shared.id}]
        assert await ask.codes(ALL, await make.user()) == ["FORBIDDEN"]

    async def test_statement_count_does_not_grow_with_rows(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        project = await make.project(owner=(owner := await make.user()))
        counts = []
        for number in (1, 19):
            for _ in range(number):
                await make.runner(project)
            with statements.record() as seen:
                await ask.data(OF_PROJECT, owner, path=str(project.id))
                await ask.data(ABILITIES, owner, path=str(project.id))
            counts.append(len(seen))

        assert counts[0] == counts[1]

    @pytest.mark.parametrize("shared", [False, True])
    @pytest.mark.parametrize("planner", [True, False], ids=["planned", "unplanned"])
    async def test_of_many_projects_take_as_many_statements_as_of_one(
        self, services: Services, make: DataFactory, statements: StatementRecorder, shared: bool, planner: bool
    ) -> None:
        ask, group = Ask(Graph(services, planner=planner)), await make.group(owner=(owner := await make.user()))
        text = f"""{{ projects(first: 50) {{ nodes {{ databaseId
            runners(first: 2, scope: ACTIVE, includeShared: {str(shared).lower()}) {{ totalCount nodes {{ databaseId }} }} }} }} }}"""
        for_all = await make.runner()
        await make.runner(active=False)
        counts: list[int] = []
        expected: dict[int, Any] = {}
        for number in (2, 8):
            for _ in range(number):
                project = await make.project(group=group)
                runners = [await make.runner(project) for _ in range(3)]
                await make.runner(project, active=False)
                ids = [*([for_all.id] if shared else []), *(each.id for each in runners)]
                expected[project.id] = {"totalCount": len(ids), "nodes": [{"databaseId": key} for key in ids[:2]]}
            with statements.record() as seen:
                nodes = (await ask.data(text, owner))["projects"]["nodes"]
            assert {node["databaseId"]: node["runners"] for node in nodes} == expected
            counts.append(len(seen))

        assert counts[0] == counts[1]

    async def test_abilities_are_what_the_mutations_allow(self, ask: Ask, make: DataFactory) -> None:
        master = await make.user()
        owner, admin = await make.user(), await make.admin()
        project = await make.project(owner=owner, members=[(master, AccessLevel.MASTER)])
        second, foreign = await make.project(owner=owner), await make.project()
        runners = {
            "only": await make.runner(project),
            "both": await make.runner(project, second),
            "foreign": await make.runner(project, foreign),
            "shared": await make.runner(),
        }
        unassign = "mutation ($input: RunnerProjectInput!) { unassignRunner(input: $input) { userErrors { code } } }"
        expected: list[tuple[tables.User, dict[str, str]]] = [
            (master, {"only": "ud", "both": "n", "foreign": "n", "shared": ""}),
            (owner, {"only": "ud", "both": "un", "foreign": "n", "shared": ""}),
            (admin, {"only": "ud", "both": "udn", "foreign": "udn", "shared": "ud"}),
        ]
        for viewer, allowed in expected:
            nodes = (await ask.data(ABILITIES, viewer, path=str(project.id)))["project"]["runners"]["nodes"]
            found = {node["databaseId"]: node["viewerCan"] for node in nodes}
            assert {
                name: "".join(sign for sign, ability in zip("udn", ("update", "delete", "unassign"), strict=True) if found[row.id][ability])
                for name, row in runners.items()
            } == allowed
        for viewer, allowed in expected:
            for name in runners:
                may = {"u": UPDATE, "n": unassign, "d": DELETE}
                for sign, text in may.items():
                    fresh = await make.runner(*{"only": [project], "both": [project, second], "foreign": [project, foreign]}.get(name, []))
                    names = {"projectPath": str(project.id), "runnerId": fresh.id} if sign == "n" else {"databaseId": fresh.id}
                    assert ((await ask.codes(text, viewer, input=names)) == []) == (sign in allowed[name]), (name, sign)


CLAIM = "mutation ($input: ClaimBuildInput!) { claimBuild(input: $input) { build { databaseId } job { token } userErrors { code } } }"


class TestRunnerToken:
    async def code(self, graph: Graph, query: str, token: str, **variables: object) -> str:
        outcome = await graph.run_document(query, variables, None, token, request_id="test")
        return str(outcome.errors[0].code) if outcome.errors else "ok"

    async def test_is_valid_only_for_runner_operations(self, graph: Graph, make: DataFactory) -> None:
        await make.project(visibility=tables.Visibility.PUBLIC)
        token = make.runner_token(await make.runner())

        assert await self.code(graph, CLAIM, token, input={}) == "ok"
        for query in ("{ viewer { username } }", "{ projects { totalCount } }", "{ serverInfo { version } }"):
            assert await self.code(graph, query, token) == "UNAUTHENTICATED"
        both = CLAIM.replace("{ claimBuild", '{ signIn(input: {login: "a", password: "b"}) { user { id } } claimBuild')
        assert await self.code(graph, both, token, input={}) != "ok"
        assert await self.code(graph, CLAIM, alter_token(token), input={}) == "UNAUTHENTICATED"

    async def test_is_rejected_by_v3(self, api: Api, make: DataFactory) -> None:
        token = make.runner_token(await make.runner())

        response = await api.request("GET", "/projects/1/issues", headers={"PRIVATE-TOKEN": token})

        assert response.status_code == 401

    async def test_a_user_takes_no_builds(self, ask: Ask, make: DataFactory) -> None:
        assert await ask.codes(CLAIM, await make.admin(), input={}) == ["FORBIDDEN"]

    async def test_an_answer_shows_nothing_that_requires_a_viewer(self, graph: Graph, make: DataFactory) -> None:
        owner = await make.user()
        project = await make.project(owner=owner)
        await make.pending_build(project, user_id=owner.id)
        query = CLAIM.replace("{ databaseId }", "{ project { name issues { totalCount } } }")

        assert await self.code(graph, query, make.runner_token(await make.runner()), input={}) in ("UNAUTHENTICATED", "FORBIDDEN")
