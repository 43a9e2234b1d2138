"""How a runner of the time sends what a build left, and fetches what others did."""

from dataclasses import replace
from typing import Any

import httpx
import pytest
from sqlalchemy import select

import ci_v1
from graph.artifact_access import ArtifactAccess
from graph.execute import Graph
from storage import tables
from storage.tables import CheckStatus
from tests.ci_v1.conftest import OldRunner
from tests.ci_v1.shapes import check
from tests.make import EXTERNAL_URL, Make, token_of

NOT_RUNNING = {"message": "403 Forbidden - Build is not running!"}


async def kept(make: Make) -> list[tuple[int, str, bytes]]:
    async with make.services.database.reading() as session:
        rows = [row for (row,) in await session.read(select(tables.Artifact))]
    return [(row.build_id, row.filename, await make.services.objects.read(row.key)) for row in rows]


async def objects(make: Make) -> list[str]:
    return [key async for keys in make.services.objects.older_than(-10) for key in keys]


class TestSend:
    """POST /builds/:id/artifacts"""

    async def test_keeps_the_file_with_the_build(self, make: Make, running: OldRunner) -> None:
        response = await running.send(b"PK\x03\x04", "bin.zip")

        assert response.status_code == 201
        answer = response.json()
        assert answer["artifacts_file"] == {"filename": "bin.zip", "size": 4}
        assert {key: answer[key] for key in running.build} == running.build
        assert await kept(make) == [(running.build["id"], "bin.zip", b"PK\x03\x04")]

    async def test_takes_the_token_as_a_parameter_too(self, make: Make, ci: httpx.AsyncClient, running: OldRunner) -> None:
        token = {"token": running.build["token"]}

        in_form = await ci.post(running.artifacts, data=token, files={"file": ("a.zip", b"1")})
        in_query = await ci.post(f"{running.artifacts}.json", params=token, files={"file": ("b.zip", b"2")})

        assert (in_form.status_code, in_query.status_code) == (201, 201)

    async def test_puts_a_second_file_in_the_place_of_the_first(self, make: Make, running: OldRunner) -> None:
        for content in (b"one", b"two"):
            assert (await running.send(content)).status_code == 201

        assert await kept(make) == [(running.build["id"], "artifacts.zip", b"two")]
        assert len(await objects(make)) == 1

    async def test_needs_a_file(self, ci: httpx.AsyncClient, running: OldRunner) -> None:
        message = {"message": '400 (Bad request) "Missing artifacts file!" not given'}
        sent: list[dict[str, Any]] = [{}, {"data": {"file": "text"}}, {"files": {"other": ("a", b"x")}}, {"json": {"file": "a"}}]
        for settings in sent:
            response = await ci.post(running.artifacts, headers=running.with_token, **settings)
            assert (response.status_code, response.json()) == (400, message)

    async def test_refuses_one_for_a_build_that_has_ended(self, make: Make, running: OldRunner) -> None:
        await running.update(state="success")

        response = await running.send(b"late")

        assert (response.status_code, response.json()) == (403, NOT_RUNNING)
        assert (await kept(make), await objects(make)) == ([], [])

    async def test_refuses_other_tokens(self, ci: httpx.AsyncClient, make: Make, project: tables.Project, running: OldRunner) -> None:
        other = OldRunner(ci, make.runner_token(await make.runner()))
        await make.waiting_build(project)
        await other.claim()
        users = token_of(await make.admin())
        for token in ("wrong", "", users, other.build["token"], other.token, f"fb-{running.build['id']}-{'x' * 20}"):
            response = await ci.post(running.artifacts, headers={"BUILD-TOKEN": token}, files={"file": ("a", b"x")})
            assert response.status_code in (403, 404), token
        assert await kept(make) == []

    async def test_refuses_a_file_that_is_too_large(self, graph: Graph, make: Make, running: OldRunner) -> None:
        small = Graph(replace(graph.services, largest_artifact=10))
        app: Any = ci_v1.application(small, ArtifactAccess(small.services), external_url=EXTERNAL_URL)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"{EXTERNAL_URL}/ci/api/v1/") as client:
            sender = OldRunner(client, running.token, running.build)
            large, small_enough = await sender.send(b"x" * 11), await sender.send(b"x" * 10)

        assert (large.status_code, large.json()) == (413, {"message": "413 Request Entity Too Large"})
        assert small_enough.status_code == 201
        assert len(await objects(make)) == 1

    async def test_keeps_nothing_of_a_form_that_breaks_off(self, ci: httpx.AsyncClient, make: Make, running: OldRunner) -> None:
        part = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nbytes'
        headers = {**running.with_token, "Content-Type": "multipart/form-data; boundary=x"}

        response = await ci.post(running.artifacts, headers=headers, content=part)

        assert response.status_code == 400
        assert (await kept(make), await objects(make)) == ([], [])


class TestAuthorize:
    """POST /builds/:id/artifacts/authorize"""

    async def test_says_that_the_file_may_come(self, ci: httpx.AsyncClient, running: OldRunner) -> None:
        headers = {**running.with_token, "Gitlab-Workhorse": "0.6"}

        response = await ci.post(f"{running.artifacts}/authorize.json", headers=headers, json={"filesize": 100})

        assert response.status_code == 200
        assert check("Authorized", response.json()) == {"TempPath": ""}

    async def test_is_for_proxies(self, ci: httpx.AsyncClient, running: OldRunner) -> None:
        assert (await ci.post(f"{running.artifacts}/authorize", headers=running.with_token)).status_code == 403

    async def test_refuses_what_the_file_would_be_refused_for(
        self, ci: httpx.AsyncClient, make: Make, graph: Graph, running: OldRunner
    ) -> None:
        proxy = {"Gitlab-Workhorse": "0.6"}
        path, large = f"{running.artifacts}/authorize", {"filesize": 2**31 - 1}
        small = Graph(replace(graph.services, largest_artifact=10))
        app: Any = ci_v1.application(small, ArtifactAccess(small.services), external_url=EXTERNAL_URL)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"{EXTERNAL_URL}/ci/api/v1/") as client:
            assert (await client.post(path, headers={**running.with_token, **proxy}, json=large)).status_code == 413
        assert (await ci.post(path, headers={"BUILD-TOKEN": "wrong", **proxy})).status_code == 403
        await running.update(state="success")
        response = await ci.post(path, headers={**running.with_token, **proxy})
        assert (response.status_code, response.json()) == (403, NOT_RUNNING)


class TestFetch:
    """GET /builds/:id/artifacts"""

    async def test_gives_the_file_of_the_build(self, ci: httpx.AsyncClient, running: OldRunner) -> None:
        await running.send(b"0123456789", "bin.zip")

        whole = await ci.get(running.artifacts, headers=running.with_token)
        part = await ci.get(running.artifacts, params={"token": running.build["token"]}, headers={"Range": "bytes=2-4"})

        assert (whole.status_code, whole.content) == (200, b"0123456789")
        assert whole.headers["content-disposition"] == 'attachment; filename="bin.zip"'
        assert (part.status_code, part.content) == (206, b"234")

    async def test_gives_those_of_earlier_stages(
        self, ci: httpx.AsyncClient, make: Make, project: tables.Project, runner: OldRunner
    ) -> None:
        pipelines = [tables.Pipeline(project_id=project.id, sha=letter * 40, ref="master") for letter in "ab"]
        await make.save(*pipelines)
        builds = {}
        for name, pipeline, stage in (("before", 0, 0), ("beside", 0, 1), ("after", 0, 2), ("elsewhere", 1, 0)):
            builds[name] = await make.build(
                project, "a" * 40, status=CheckStatus.SUCCESS, pipeline_id=pipelines[pipeline].id, stage_index=stage
            )
            await make.artifact(builds[name], name.encode())
        await make.waiting_build(project, pipeline_id=pipelines[0].id, stage_index=1)
        await runner.claim()

        answers = {name: await ci.get(f"builds/{row.id}/artifacts", headers=runner.with_token) for name, row in builds.items()}

        assert {name: answer.status_code for name, answer in answers.items()} == {
            "before": 200,
            "beside": 404,
            "after": 404,
            "elsewhere": 404,
        }
        assert answers["before"].content == b"before"

    async def test_answers_404_where_there_is_none(self, ci: httpx.AsyncClient, running: OldRunner) -> None:
        for path in (running.artifacts, "builds/999/artifacts", "builds/x/artifacts", f"builds/{'9' * 30}/artifacts"):
            response = await ci.get(path, headers=running.with_token)
            assert (response.status_code, response.json()) == (404, {"message": "404 Not Found"})

    async def test_refuses_other_tokens(self, ci: httpx.AsyncClient, make: Make, running: OldRunner) -> None:
        await running.send(b"secret")
        for token in ("wrong", "", token_of(await make.admin())):
            assert (await ci.get(running.artifacts, headers={"BUILD-TOKEN": token})).status_code == 403
        assert (await ci.get(running.artifacts, headers={"BUILD-TOKEN": running.token})).status_code == 404

    async def test_refuses_who_has_the_build_no_more(self, ci: httpx.AsyncClient, running: OldRunner) -> None:
        await running.send(b"bytes")
        await running.update(state="failed")

        assert (await ci.get(running.artifacts, headers=running.with_token)).status_code == 403


class TestDelete:
    """DELETE /builds/:id/artifacts"""

    async def test_takes_the_file_away(self, ci: httpx.AsyncClient, make: Make, running: OldRunner) -> None:
        await running.send(b"bytes")

        response = await ci.delete(running.artifacts, headers=running.with_token)

        assert (response.status_code, response.json()) == (200, None)
        assert (await kept(make), await objects(make)) == ([], [])

    async def test_may_be_said_again(self, ci: httpx.AsyncClient, running: OldRunner) -> None:
        assert (await ci.delete(running.artifacts, headers=running.with_token)).status_code == 200

    @pytest.mark.parametrize("token", ["wrong", ""])
    async def test_refuses_other_tokens(self, ci: httpx.AsyncClient, make: Make, running: OldRunner, token: str) -> None:
        await running.send(b"bytes")

        assert (await ci.delete(running.artifacts, headers={"BUILD-TOKEN": token})).status_code == 403
        assert len(await kept(make)) == 1
