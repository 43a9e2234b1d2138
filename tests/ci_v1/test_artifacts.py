"""Upload and download of artifacts by a runner of 2016."""

from dataclasses import replace
from typing import Any

import httpx
import pytest
from sqlalchemy import select

import ci_v1
from graph.artifact_access import ArtifactAccess
from graph.operations.execution import Graph
from storage import tables
from storage.tables import CheckStatus
from tests.ci_v1.conftest import LegacyRunner
from tests.ci_v1.shapes import check_shape
from tests.make import EXTERNAL_URL, DataFactory, token_of

NOT_RUNNING = {"message": "403 Forbidden - Build is not running!"}


async def artifact_bytes(make: DataFactory) -> list[tuple[int, str, bytes]]:
    async with make.services.database.read_session() as session:
        rows = [row for (row,) in await session.read(select(tables.Artifact))]
    return [(row.build_id, row.filename, await make.services.objects.read(row.key)) for row in rows]


async def objects(make: DataFactory) -> list[str]:
    return [key async for keys in make.services.objects.list_older_than(-10) for key in keys]


class TestSend:
    """POST /builds/:id/artifacts"""

    async def test_stores_the_file_with_the_build(self, make: DataFactory, runner_with_build: LegacyRunner) -> None:
        response = await runner_with_build.upload_artifact(b"PK\x03\x04", "bin.zip")

        assert response.status_code == 201
        answer = response.json()
        assert answer["artifacts_file"] == {"filename": "bin.zip", "size": 4}
        assert {key: answer[key] for key in runner_with_build.build} == runner_with_build.build
        assert await artifact_bytes(make) == [(runner_with_build.build["id"], "bin.zip", b"PK\x03\x04")]

    async def test_accepts_the_token_as_a_parameter_too(
        self, make: DataFactory, ci: httpx.AsyncClient, runner_with_build: LegacyRunner
    ) -> None:
        token = {"token": runner_with_build.build["token"]}

        in_form = await ci.post(runner_with_build.artifacts_path, data=token, files={"file": ("a.zip", b"1")})
        in_query = await ci.post(f"{runner_with_build.artifacts_path}.json", params=token, files={"file": ("b.zip", b"2")})

        assert (in_form.status_code, in_query.status_code) == (201, 201)

    async def test_puts_a_second_file_in_the_place_of_the_first(self, make: DataFactory, runner_with_build: LegacyRunner) -> None:
        for content in (b"one", b"two"):
            assert (await runner_with_build.upload_artifact(content)).status_code == 201

        assert await artifact_bytes(make) == [(runner_with_build.build["id"], "artifacts.zip", b"two")]
        assert len(await objects(make)) == 1

    async def test_requires_a_file(self, ci: httpx.AsyncClient, runner_with_build: LegacyRunner) -> None:
        message = {"message": '400 (Bad request) "Missing artifacts file!" not given'}
        sent: list[dict[str, Any]] = [{}, {"data": {"file": "text"}}, {"files": {"other": ("a", b"x")}}, {"json": {"file": "a"}}]
        for settings in sent:
            response = await ci.post(runner_with_build.artifacts_path, headers=runner_with_build.build_token_headers, **settings)
            assert (response.status_code, response.json()) == (400, message)

    async def test_rejects_one_for_a_build_that_has_ended(self, make: DataFactory, runner_with_build: LegacyRunner) -> None:
        await runner_with_build.update(state="success")

        response = await runner_with_build.upload_artifact(b"late")

        assert (response.status_code, response.json()) == (403, NOT_RUNNING)
        assert (await artifact_bytes(make), await objects(make)) == ([], [])

    async def test_rejects_other_tokens(
        self, ci: httpx.AsyncClient, make: DataFactory, project: tables.Project, runner_with_build: LegacyRunner
    ) -> None:
        other = LegacyRunner(ci, make.runner_token(await make.runner()))
        await make.pending_build(project)
        await other.claim()
        users = token_of(await make.admin())
        for token in ("wrong", "", users, other.build["token"], other.token, f"fb-{runner_with_build.build['id']}-{'x' * 20}"):
            response = await ci.post(runner_with_build.artifacts_path, headers={"BUILD-TOKEN": token}, files={"file": ("a", b"x")})
            assert response.status_code in (403, 404), token
        assert await artifact_bytes(make) == []

    async def test_rejects_a_file_that_is_too_large(self, graph: Graph, make: DataFactory, runner_with_build: LegacyRunner) -> None:
        small = Graph(replace(graph.services, max_artifact_bytes=10))
        app: Any = ci_v1.create_app(small, ArtifactAccess(small.services), external_url=EXTERNAL_URL)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"{EXTERNAL_URL}/ci/api/v1/") as client:
            sender = LegacyRunner(client, runner_with_build.token, runner_with_build.build)
            large, small_enough = await sender.upload_artifact(b"x" * 11), await sender.upload_artifact(b"x" * 10)

        assert (large.status_code, large.json()) == (413, {"message": "413 Request Entity Too Large"})
        assert small_enough.status_code == 201
        assert len(await objects(make)) == 1

    async def test_stores_nothing_of_an_interrupted_form(
        self, ci: httpx.AsyncClient, make: DataFactory, runner_with_build: LegacyRunner
    ) -> None:
        part = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nbytes'
        headers = {**runner_with_build.build_token_headers, "Content-Type": "multipart/form-data; boundary=x"}

        response = await ci.post(runner_with_build.artifacts_path, headers=headers, content=part)

        assert response.status_code == 400
        assert (await artifact_bytes(make), await objects(make)) == ([], [])


class TestAuthorize:
    """POST /builds/:id/artifacts/authorize"""

    async def test_authorizes_the_upload(self, ci: httpx.AsyncClient, runner_with_build: LegacyRunner) -> None:
        headers = {**runner_with_build.build_token_headers, "Gitlab-Workhorse": "0.6"}

        response = await ci.post(f"{runner_with_build.artifacts_path}/authorize.json", headers=headers, json={"filesize": 100})

        assert response.status_code == 200
        assert check_shape("Authorized", response.json()) == {"TempPath": ""}

    async def test_requires_the_proxy_header(self, ci: httpx.AsyncClient, runner_with_build: LegacyRunner) -> None:
        assert (
            await ci.post(f"{runner_with_build.artifacts_path}/authorize", headers=runner_with_build.build_token_headers)
        ).status_code == 403

    async def test_rejects_what_an_upload_would_reject(
        self, ci: httpx.AsyncClient, make: DataFactory, graph: Graph, runner_with_build: LegacyRunner
    ) -> None:
        proxy = {"Gitlab-Workhorse": "0.6"}
        path, large = f"{runner_with_build.artifacts_path}/authorize", {"filesize": 2**31 - 1}
        small = Graph(replace(graph.services, max_artifact_bytes=10))
        app: Any = ci_v1.create_app(small, ArtifactAccess(small.services), external_url=EXTERNAL_URL)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"{EXTERNAL_URL}/ci/api/v1/") as client:
            assert (await client.post(path, headers={**runner_with_build.build_token_headers, **proxy}, json=large)).status_code == 413
        assert (await ci.post(path, headers={"BUILD-TOKEN": "wrong", **proxy})).status_code == 403
        await runner_with_build.update(state="success")
        response = await ci.post(path, headers={**runner_with_build.build_token_headers, **proxy})
        assert (response.status_code, response.json()) == (403, NOT_RUNNING)


class TestFetch:
    """GET /builds/:id/artifacts"""

    async def test_returns_the_file_of_the_build(self, ci: httpx.AsyncClient, runner_with_build: LegacyRunner) -> None:
        await runner_with_build.upload_artifact(b"0123456789", "bin.zip")

        whole = await ci.get(runner_with_build.artifacts_path, headers=runner_with_build.build_token_headers)
        part = await ci.get(
            runner_with_build.artifacts_path, params={"token": runner_with_build.build["token"]}, headers={"Range": "bytes=2-4"}
        )

        assert (whole.status_code, whole.content) == (200, b"0123456789")
        assert whole.headers["content-disposition"] == 'attachment; filename="bin.zip"'
        assert (part.status_code, part.content) == (206, b"234")

    async def test_returns_artifacts_of_earlier_stages(
        self, ci: httpx.AsyncClient, make: DataFactory, project: tables.Project, runner: LegacyRunner
    ) -> None:
        pipelines = [tables.Pipeline(project_id=project.id, sha=letter * 40, ref="master") for letter in "ab"]
        await make.save(*pipelines)
        builds = {}
        for name, pipeline, stage in (("before", 0, 0), ("beside", 0, 1), ("after", 0, 2), ("elsewhere", 1, 0)):
            builds[name] = await make.build(
                project, "a" * 40, status=CheckStatus.SUCCESS, pipeline_id=pipelines[pipeline].id, stage_index=stage
            )
            await make.artifact(builds[name], name.encode())
        await make.pending_build(project, pipeline_id=pipelines[0].id, stage_index=1)
        await runner.claim()

        answers = {name: await ci.get(f"builds/{row.id}/artifacts", headers=runner.build_token_headers) for name, row in builds.items()}

        assert {name: answer.status_code for name, answer in answers.items()} == {
            "before": 200,
            "beside": 404,
            "after": 404,
            "elsewhere": 404,
        }
        assert answers["before"].content == b"before"

    async def test_answers_404_where_there_is_none(self, ci: httpx.AsyncClient, runner_with_build: LegacyRunner) -> None:
        for path in (runner_with_build.artifacts_path, "builds/999/artifacts", "builds/x/artifacts", f"builds/{'9' * 30}/artifacts"):
            response = await ci.get(path, headers=runner_with_build.build_token_headers)
            assert (response.status_code, response.json()) == (404, {"message": "404 Not Found"})

    async def test_rejects_other_tokens(self, ci: httpx.AsyncClient, make: DataFactory, runner_with_build: LegacyRunner) -> None:
        await runner_with_build.upload_artifact(b"secret")
        for token in ("wrong", "", token_of(await make.admin())):
            assert (await ci.get(runner_with_build.artifacts_path, headers={"BUILD-TOKEN": token})).status_code == 403
        assert (await ci.get(runner_with_build.artifacts_path, headers={"BUILD-TOKEN": runner_with_build.token})).status_code == 404

    async def test_rejects_a_runner_that_lost_the_build(self, ci: httpx.AsyncClient, runner_with_build: LegacyRunner) -> None:
        await runner_with_build.upload_artifact(b"bytes")
        await runner_with_build.update(state="failed")

        assert (await ci.get(runner_with_build.artifacts_path, headers=runner_with_build.build_token_headers)).status_code == 403


class TestDelete:
    """DELETE /builds/:id/artifacts"""

    async def test_deletes_the_file(self, ci: httpx.AsyncClient, make: DataFactory, runner_with_build: LegacyRunner) -> None:
        await runner_with_build.upload_artifact(b"bytes")

        response = await ci.delete(runner_with_build.artifacts_path, headers=runner_with_build.build_token_headers)

        assert (response.status_code, response.json()) == (200, None)
        assert (await artifact_bytes(make), await objects(make)) == ([], [])

    async def test_deleting_twice_succeeds(self, ci: httpx.AsyncClient, runner_with_build: LegacyRunner) -> None:
        assert (await ci.delete(runner_with_build.artifacts_path, headers=runner_with_build.build_token_headers)).status_code == 200

    @pytest.mark.parametrize("token", ["wrong", ""])
    async def test_rejects_other_tokens(
        self, ci: httpx.AsyncClient, make: DataFactory, runner_with_build: LegacyRunner, token: str
    ) -> None:
        await runner_with_build.upload_artifact(b"bytes")

        assert (await ci.delete(runner_with_build.artifacts_path, headers={"BUILD-TOKEN": token})).status_code == 403
        assert len(await artifact_bytes(make)) == 1
