"""Registration tokens: who can see and reset them."""

import re
from dataclasses import replace
from pathlib import Path

from graph.operations.execution import Graph
from storage import tables
from storage.secrets import TokenCipher, load_key
from storage.tables import AccessLevel, Visibility
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

INSTANCE = "query { settings { runnersRegistrationToken } }"
PROJECT = "query ($path: String!) { project(path: $path) { runnersToken } }"
RESET = """
mutation ($input: ResetRunnersTokenInput!) {
  resetRunnersToken(input: $input) { runnersToken { value project { databaseId } } userErrors { field message code } }
}
"""


async def project_token(ask: Ask, project: tables.Project, viewer: tables.User) -> str | None:
    found: str | None = (await ask.data(PROJECT, viewer, path=str(project.id)))["project"]["runnersToken"]
    return found


class TestProjectToken:
    async def test_is_stable(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        first, second = await project_token(ask, project, owner), await project_token(ask, project, owner)

        assert first is not None and re.fullmatch(rf"rt-{project.id}-[\w-]{{20}}", first)
        assert second == first

    async def test_is_another_where_the_key_is_another(self, ask: Ask, make: DataFactory, tmp_path: Path) -> None:
        project = await make.project(owner=(owner := await make.user()))
        token = await project_token(ask, project, owner)
        elsewhere = Graph(replace(make.services, cipher=TokenCipher(load_key(tmp_path, "A" * 43 + "="))))

        assert await project_token(Ask(elsewhere), project, owner) != token

    async def test_is_shown_to_masters_alone(self, ask: Ask, make: DataFactory) -> None:
        master, developer = await make.user(), await make.user()
        members = [(master, AccessLevel.MASTER), (developer, AccessLevel.DEVELOPER)]
        project = await make.project(members=members, visibility=Visibility.PUBLIC)

        assert await project_token(ask, project, master)
        assert await project_token(ask, project, developer) is None
        assert await project_token(ask, project, await make.user()) is None

    async def test_is_another_for_each_project(self, ask: Ask, make: DataFactory) -> None:
        owner = await make.user()

        tokens = {await project_token(ask, await make.project(owner=owner), owner) for _ in range(2)}

        assert len(tokens) == 2

    async def test_statement_count_does_not_grow_with_rows(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        owner = await make.user()
        for _ in range(6):
            await make.project(owner=owner)
        query = "query ($first: Int!) { projects(first: $first) { nodes { runnersToken } } }"
        await ask.data(query, owner, first=6)

        with statements.record() as one:
            await ask.data(query, owner, first=1)
        with statements.record() as many:
            found = await ask.data(query, owner, first=6)

        assert len({project["runnersToken"] for project in found["projects"]["nodes"]}) == 6
        assert len(one) == len(many)


class TestInstanceToken:
    async def test_is_shown_to_administrators(self, ask: Ask, make: DataFactory) -> None:
        admin = await make.admin()

        first, second = [(await ask.data(INSTANCE, admin))["settings"]["runnersRegistrationToken"] for _ in range(2)]

        assert first and first == second

    async def test_is_hidden_from_others(self, ask: Ask, make: DataFactory) -> None:
        assert await ask.codes(INSTANCE, await make.user()) == ["FORBIDDEN"]


class TestReset:
    async def test_replaces_the_token_of_a_project(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        old = await project_token(ask, project, owner)

        data = await ask.data(RESET, owner, input={"projectPath": str(project.id)})

        found = data["resetRunnersToken"]["runnersToken"]
        assert found == {"value": await project_token(ask, project, owner), "project": {"databaseId": project.id}}
        assert found["value"] != old

    async def test_replaces_the_token_of_the_instance(self, ask: Ask, make: DataFactory) -> None:
        admin = await make.admin()

        found = (await ask.data(RESET, admin, input={}))["resetRunnersToken"]["runnersToken"]

        assert found == {"value": (await ask.data(INSTANCE, admin))["settings"]["runnersRegistrationToken"], "project": None}

    async def test_of_the_instance_is_for_administrators(self, ask: Ask, make: DataFactory) -> None:
        assert await ask.codes(RESET, await make.user(), input={}) == ["FORBIDDEN"]


REGISTER = """
mutation ($input: RegisterRunnerInput!) {
  registerRunner(input: $input) { runner { databaseId description shared } token userErrors { field message code } }
}
"""


class TestRegister:
    async def test_takes_no_other_credential(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        token = await project_token(ask, project, owner)

        found = (await ask.data(REGISTER, input={"registrationToken": token, "name": "box", "tags": ["b", "a", "b"]}))["registerRunner"]

        row = await make.fetch(tables.Runner, found["runner"]["databaseId"])
        assert row is not None
        assert (row.description, row.name, row.shared, row.tags, row.creator_id) == ("box", "box", False, ["a", "b"], None)
        assert found["token"].startswith("fr-")

    async def test_rejects_runner_tokens_and_invalid_values(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        token = await project_token(ask, project, owner)

        assert await ask.codes(REGISTER, input={"registrationToken": make.runner_token(await make.runner())}) == ["FORBIDDEN"]
        assert await ask.codes(REGISTER, input={"registrationToken": token, "description": "x" * 300}) == ["INVALID"]
        assert await ask.codes(REGISTER, input={"registrationToken": token, "tags": ["a,b"]}) == ["INVALID"]

    async def test_of_a_project_ends_with_the_project(self, ask: Ask, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        token = await project_token(ask, project, owner)
        delete = "mutation ($path: String!) { deleteProject(input: {projectPath: $path}) { userErrors { code } } }"
        await ask.data(delete, owner, path=str(project.id))

        assert await ask.codes(REGISTER, input={"registrationToken": token}) == ["FORBIDDEN"]


class TestDependencies:
    JOB = "query ($token: String!) { job(token: $token) { name } }"
    ARTIFACT = "query ($id: Int!) { jobArtifact(buildId: $id) { filename } }"

    async def test_require_a_runner(self, ask: Ask, make: DataFactory) -> None:
        admin = await make.admin()
        build = await make.build(await make.project(), "a" * 40, status=tables.CheckStatus.SUCCESS)

        assert await ask.codes(self.JOB, admin, token="fb-1-x") == ["FORBIDDEN"]
        assert await ask.codes(self.ARTIFACT, admin, id=build.id) == ["FORBIDDEN"]
