"""Registration and removal of a runner of 2016."""

from typing import Any

import httpx
import pytest
from sqlalchemy import select

from storage import tables
from tests.ci_v1.conftest import INFO, LegacyRunner
from tests.ci_v1.shapes import check_shape
from tests.make import DataFactory, token_of
from tests.support.scenario import registration_token

FORBIDDEN = {"message": "403 Forbidden"}


async def registered(make: DataFactory) -> list[tables.Runner]:
    async with make.services.database.read_session() as session:
        return [row for (row,) in await session.read(select(tables.Runner))]


class TestRegister:
    """POST /runners/register"""

    async def test_makes_a_shared_runner_by_the_token_of_the_instance(self, ci: httpx.AsyncClient, make: DataFactory) -> None:
        token = await registration_token(make, 0)

        response = await ci.post(
            "runners/register.json", json={"token": token, "description": "old box", "tag_list": "ruby, linux", "info": INFO}
        )

        assert response.status_code == 201
        answer = check_shape("Registered", response.json())
        (row,) = await registered(make)
        assert (answer["id"], row.description, row.shared, row.tags, row.active) == (row.id, "old box", True, ["linux", "ruby"], True)
        assert {key: getattr(row, key) for key in INFO} == INFO
        assert (await LegacyRunner(ci, answer["token"]).claim()).status_code == 404

    async def test_makes_a_runner_of_a_project_by_its_token(
        self, ci: httpx.AsyncClient, make: DataFactory, project: tables.Project
    ) -> None:
        await make.pending_build(await make.project())
        mine = await make.pending_build(project)

        response = await ci.post("runners/register", data={"token": await registration_token(make, project.id), "info[name]": "box"})

        assert response.status_code == 201
        runner = LegacyRunner(ci, response.json()["token"])
        assert (await runner.claim()).json()["id"] == mine.id
        assert (await runner.claim()).status_code == 404
        (row,) = await registered(make)
        assert (row.shared, row.description, row.name) == (False, "box", INFO["name"])

    async def test_requires_a_token(self, ci: httpx.AsyncClient) -> None:
        response = await ci.post("runners/register.json", json={"info": INFO})

        assert (response.status_code, response.json()) == (400, {"message": '400 (Bad request) "token" not given'})

    async def test_rejects_another_token(self, ci: httpx.AsyncClient, make: DataFactory, runner: LegacyRunner) -> None:
        admin = await make.admin()
        for token in ("wrong", token_of(admin), runner.token, "x" * 300):
            response = await ci.post("runners/register.json", json={"token": token})
            assert (response.status_code, response.json()) == (403, FORBIDDEN)

    async def test_throttles_only_the_address_that_guesses(self, ci: httpx.AsyncClient, make: DataFactory) -> None:
        token = await registration_token(make, 0)
        for _ in range(60):
            await ci.post("runners/register.json", json={"token": "wrong"})

        guess = await ci.post("runners/register.json", json={"token": "wrong"})
        right = await ci.post("runners/register.json", json={"token": token})

        assert guess.status_code == 429
        assert int(guess.headers["retry-after"]) > 0
        assert right.status_code == 201

    async def test_rejects_a_token_that_was_reset(self, ci: httpx.AsyncClient, make: DataFactory, ask: Any) -> None:
        old = await registration_token(make, 0)
        mutation = "mutation { resetRunnersToken(input: {}) { runnersToken { value } userErrors { code } } }"
        fresh = (await ask.data(mutation, await make.admin()))["resetRunnersToken"]["runnersToken"]["value"]

        statuses = [(await ci.post("runners/register.json", json={"token": token})).status_code for token in (old, fresh)]

        assert statuses == [403, 201]


class TestDelete:
    """DELETE /runners/delete"""

    async def test_deletes_the_runner(self, ci: httpx.AsyncClient, make: DataFactory, runner: LegacyRunner) -> None:
        response = await ci.request("DELETE", "runners/delete.json", json={"token": runner.token})

        assert response.status_code == 200
        check_shape("Runner", response.json())
        assert await registered(make) == []
        assert (await runner.claim()).status_code == 403

    async def test_accepts_the_token_in_the_query_too(self, ci: httpx.AsyncClient, make: DataFactory, runner: LegacyRunner) -> None:
        assert (await ci.delete("runners/delete", params={"token": runner.token})).status_code == 200
        assert await registered(make) == []

    async def test_requeues_the_builds_of_the_runner(
        self, ci: httpx.AsyncClient, make: DataFactory, runner_with_build: LegacyRunner
    ) -> None:
        await ci.request("DELETE", "runners/delete", json={"token": runner_with_build.token})

        build = await make.fetch(tables.Build, runner_with_build.build["id"])
        assert build is not None and build.status is tables.CheckStatus.PENDING

    @pytest.mark.parametrize("token", ["wrong", "fr-" + "x" * 20, "fb-1-" + "x" * 20])
    async def test_rejects_another_token(self, ci: httpx.AsyncClient, token: str) -> None:
        response = await ci.delete("runners/delete", params={"token": token})

        assert (response.status_code, response.json()) == (403, FORBIDDEN)

    async def test_rejects_the_token_of_a_build(self, ci: httpx.AsyncClient, make: DataFactory, runner_with_build: LegacyRunner) -> None:
        response = await ci.delete("runners/delete", params={"token": runner_with_build.build["token"]})

        assert response.status_code == 403
        assert len(await registered(make)) == 1

    async def test_requires_a_token(self, ci: httpx.AsyncClient) -> None:
        assert (await ci.delete("runners/delete")).status_code == 400
