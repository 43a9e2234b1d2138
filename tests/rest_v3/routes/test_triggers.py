"""Triggers of projects, which GitLab 8.5 served and the interface document leaves out."""

from typing import Any

import httpx
import pytest
from sqlalchemy import select

from graph.context import Services
from graph.operations.execution import Graph
from storage import integrity, tables
from storage.tables import Visibility
from tests.graph.runners.test_build_claims import RunnerCalls
from tests.make import EXTERNAL_URL, DataFactory
from tests.support.api_clients import Api, Ask, _mount_app
from tests.support.database.statements import StatementRecorder
from tests.support.merge_requests import commit_text_files

CI_FILE = """
unit: {script: make test}
ship: {stage: deploy, script: make ship, only: [tags, ci]}
never: {script: x, except: [/.*/]}
"""
NO_BUILDS = {"message": "No builds created"}


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user()


@pytest.fixture
async def project(make: DataFactory, owner: tables.User) -> tables.Project:
    project = await make.project(owner=owner, history={"commits": 2})
    await commit_ci_file(make, project, "ci", CI_FILE)
    return project


async def commit_ci_file(make: DataFactory, project: tables.Project, branch: str, content: str, **more: Any) -> str:
    files = {".gitlab-ci.yml": content}
    return str(await make.services.repositories.read(project.id, lambda repository: commit_text_files(repository, branch, files, **more)))


async def rows(make: DataFactory, table: Any) -> list[Any]:
    async with make.services.database.read_session() as session:
        return [row for (row,) in await session.read(select(table).order_by(table.id))]


class TestTriggers:
    async def test_are_created_listed_and_deleted(self, any_api: Api, make: DataFactory, owner: tables.User) -> None:
        project, other = [await make.project(owner=owner) for _ in range(2)]
        path = f"/projects/{project.id}/triggers"

        created = [await any_api.post(path, owner) for _ in range(2)]
        assert [response.status_code for response in created] == [201, 201]
        first, second = [response.json() for response in created]
        assert len(first["token"]) == 30 and first["token"] != second["token"]
        assert (first["deleted_at"], first["last_used"]) == (None, None)
        listed = await any_api.get(path, owner, per_page=1)
        assert (listed.json(), listed.headers["x-total"], listed.headers["cache-control"]) == ([first], "2", "no-store")
        assert (await any_api.get(f"{path}/{second['token']}", owner)).json() == second

        deleted = await any_api.delete(f"{path}/{first['token']}", owner)
        assert (deleted.status_code, deleted.json()) == (200, first)
        for where in (f"{path}/{first['token']}", f"{path}/x", f"/projects/{other.id}/triggers/{second['token']}"):
            for method in ("GET", "DELETE"):
                missing = await any_api.request(method, where, owner)
                assert (missing.status_code, missing.json()) == (404, {"message": "404 Trigger Not Found"})

    async def test_tokens_in_paths_are_not_logged(self, api: Api, make: DataFactory, project: tables.Project) -> None:
        mounted, states = _mount_app(api.app), []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            scope["state"] = {}
            states.append(scope["state"])
            await mounted(scope, receive, send)

        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=EXTERNAL_URL) as client:
            methods = ("GET", "DELETE", "PUT", "OPTIONS")
            for method, path in (*((each, "triggers/x") for each in methods), ("GET", "triggers")):
                await client.request(method, f"/api/v3/projects/{project.id}/{path}")

        assert [state.get("secret_path") for state in states] == [True, True, True, True, None]
        assert {state["route"] for state in states[:4]} == {"/api/v3/projects/:id/triggers/:token"}

    async def test_have_a_limit_and_lose_their_tokens_with_the_key(
        self, api: Api, make: DataFactory, owner: tables.User, services: Services, statements: StatementRecorder
    ) -> None:
        project = await make.project(owner=owner)
        path = f"/projects/{project.id}/triggers"
        token, counts = await make.trigger(project), []
        for number in range(2):
            with statements.record() as seen:
                assert (await api.get(path, owner, per_page=100)).status_code == 200
            counts.append(len(seen))
            for _ in range(99 if number == 0 else 0):
                await make.trigger(project)
        assert counts[0] == counts[1]
        full = await api.post(path, owner)
        assert (full.status_code, full.json()) == (400, {"message": {"id": ["can have 100 triggers"]}})
        await integrity.forget_sealed_tokens(services.database)
        assert (await api.get(f"{path}/{token}", owner)).json()["token"] is None


class TestTriggerBuilds:
    """POST /projects/:id/trigger/builds"""

    async def test_creates_builds_with_variables(
        self, any_api: Api, ask: Ask, graph: Graph, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        token = await make.trigger(project)
        await make.variable(project, "TARGET", "of the project")
        path = f"/projects/{project.id}/trigger/builds"

        plain = await any_api.post(path, None, token=token, ref="ci")
        assert (plain.status_code, plain.json()["variables"]) == (201, None)
        form = await any_api.request(
            "POST", path, None, data={"token": token, "ref": "refs/heads/ci", "variables[TARGET]": "staging area", "variables[EMPTY]": ""}
        )
        assert (form.status_code, form.json()["variables"]) == (201, {"TARGET": "staging area", "EMPTY": ""})

        builds, pipelines = await rows(make, tables.Build), await rows(make, tables.Pipeline)
        assert [(build.name, build.ref, build.user_id, build.pipeline_id) for build in builds] == [
            ("unit", "ci", None, pipeline.id) for pipeline in pipelines
        ]
        runner = RunnerCalls(graph, make.runner_token(await make.runner()))
        jobs = [await runner.claim() for _ in range(2)]
        given = [{each["key"]: (each["value"], each["public"]) for each in job["variables"]} for job in jobs if job is not None]
        assert [each["TARGET"] for each in given] == [("of the project", False), ("staging area", False)]
        assert [each["CI_BUILD_TRIGGERED"] for each in given] == [("true", True)] * 2
        shown = await ask.data(
            "query ($id: String!) { project(path: $id) { pipelines { nodes { triggered } } } }", owner, id=str(project.id)
        )
        assert shown["project"]["pipelines"]["nodes"] == [{"triggered": True}] * 2
        assert (await any_api.get(f"/projects/{project.id}/triggers/{token}", owner)).json()["last_used"] is not None
        assert "staging area" not in str([vars(row) for row in await rows(make, tables.TriggerRequest)])

    async def test_makes_the_health_of_its_branch_due(self, api: Api, make: DataFactory, project: tables.Project) -> None:
        token = await make.trigger(project)
        assert (await api.post(f"/projects/{project.id}/trigger/builds", None, token=token, ref="ci")).status_code == 201
        (build,) = await rows(make, tables.Build)
        due = [(each.project_id, each.name or each.sha) for each in await rows(make, tables.HealthCheckDue)]
        assert set(due) & {(project.id, "ci"), (project.id, build.sha)}

    async def test_ignores_a_message_that_skips_builds_and_takes_tags(self, api: Api, make: DataFactory, project: tables.Project) -> None:
        oid = await commit_ci_file(make, project, "quiet", CI_FILE, message="Quiet [ci skip]")
        await make.services.repositories.read(project.id, lambda repository: repository.move_ref("refs/tags/v9", oid, None))
        token = await make.trigger(project)
        for ref in ("quiet", "v9"):
            assert (await api.post(f"/projects/{project.id}/trigger/builds", None, token=token, ref=ref)).status_code == 201
        assert [(build.name, build.ref, build.tag) for build in await rows(make, tables.Build)] == [
            ("unit", "quiet", False),
            ("unit", "v9", True),
        ]

    async def test_what_cannot_be_built_creates_nothing(
        self, api: Api, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        await commit_ci_file(make, project, "broken", "unit: {script: [")
        await commit_ci_file(make, project, "none", "unit: {script: x, only: [other]}")
        await commit_ci_file(make, project, "later", "unit: {script: x, when: on_failure}")
        token = await make.trigger(project)
        path = f"/projects/{project.id}/trigger/builds"
        sha = await commit_ci_file(make, project, "ci", CI_FILE)
        await make.services.repositories.read(project.id, lambda repository: repository.move_ref("refs/merge-requests/1/head", sha, None))

        for ref in ("unknown", "master", "broken", "none", "later", sha, "refs/tags/ci", "refs/merge-requests/1/head", "x" * 300, "a\nb"):
            response = await api.post(path, None, token=token, ref=ref)
            assert (ref, response.status_code, response.json()) == (ref, 400, NO_BUILDS)
        for sent, message in (
            ({}, '400 (Bad request) "ref" not given'),
            ({"token": token}, '400 (Bad request) "ref" not given'),
            ({"ref": "ci"}, '400 (Bad request) "token" not given'),
            ({"variables": "value"}, "variables needs to be a hash"),
            ({"variables": {"key": ["1", "2"]}}, "variables needs to be a map of key-valued strings"),
            ({"variables": {"a b": "x"}}, {"variables": ["can have only letters, digits and '_' in their names, at most 255"]}),
            ({"variables": {"A": "x" * 16385}}, {"variables": ["is too long (maximum is 16384 bytes)"]}),
            ({"variables": {f"A{n}": "x" * 16000 for n in range(5)}}, {"variables": ["are too long (maximum is 65536 bytes together)"]}),
            ({"variables": {f"A{n}": "" for n in range(101)}}, {"variables": ["can have at most 100 entries"]}),
        ):
            values = sent if message in ('400 (Bad request) "ref" not given', '400 (Bad request) "token" not given') else None
            response = await api.post(path, None, **({"token": token, "ref": "ci", **sent} if values is None else values))
            assert (response.status_code, response.json()) == (400, {"message": message})
        await make.save(project.sqlmodel_update({"builds_enabled": False}))
        assert (await api.post(path, None, token=token, ref="ci")).json() == NO_BUILDS
        assert (await make.count(tables.Build), await make.count(tables.Pipeline), await make.count(tables.TriggerRequest)) == (0, 0, 0)

    async def test_token_is_the_only_credential(
        self, api: Api, make: DataFactory, owner: tables.User, project: tables.Project, statements: StatementRecorder
    ) -> None:
        public = await make.project(owner=owner, visibility=Visibility.PUBLIC)
        own, other = await make.trigger(project), await make.trigger(public)
        unknown, counts = "0" * 30, []
        for project_id, token, status, message in (
            (project.id, unknown, 404, "404 Not Found"),
            (999999, own, 404, "404 Not Found"),
            (999999, unknown, 404, "404 Not Found"),
            (public.id, unknown, 404, "404 Not Found"),
            (project.id, other, 401, "401 Unauthorized"),
            (public.id, own, 401, "401 Unauthorized"),
        ):
            with statements.record() as seen:
                response = await api.post(f"/projects/{project_id}/trigger/builds", owner, token=token, ref="ci")
            assert (response.status_code, response.json()) == (status, {"message": message})
            counts.append(len(seen))
        # Whichever is missing, the same is read.
        assert len(set(counts)) == 1
        assert await make.count(tables.Build) == 0

    async def test_a_push_of_the_same_commit_is_still_built(self, api: Api, make: DataFactory, project: tables.Project) -> None:
        token = await make.trigger(project)
        for _ in range(2):
            assert (await api.post(f"/projects/{project.id}/trigger/builds", None, token=token, ref="ci")).status_code == 201
        (first, _) = await rows(make, tables.Pipeline)
        await make.save(tables.Pipeline(project_id=project.id, sha=first.sha, ref=first.ref))
        with pytest.raises(Exception, match=r"(?i)unique"):
            await make.save(tables.Pipeline(project_id=project.id, sha=first.sha, ref=first.ref))
