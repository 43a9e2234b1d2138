"""How a runner of the time comes and goes."""

from typing import Any

import httpx
import pytest
from sqlalchemy import select

from storage import tables
from tests.ci_v1.conftest import INFO, OldRunner
from tests.ci_v1.shapes import check
from tests.make import Make, token_of
from tests.world import registration_token

FORBIDDEN = {"message": "403 Forbidden"}


async def registered(make: Make) -> list[tables.Runner]:
    async with make.services.database.reading() as session:
        return [row for (row,) in await session.read(select(tables.Runner))]


class TestRegister:
    """POST /runners/register"""

    async def test_makes_a_shared_runner_by_the_token_of_the_instance(self, ci: httpx.AsyncClient, make: Make) -> None:
        token = await registration_token(make, 0)

        response = await ci.post(
            "runners/register.json", json={"token": token, "description": "old box", "tag_list": "ruby, linux", "info": INFO}
        )

        assert response.status_code == 201
        answer = check("Registered", response.json())
        (row,) = await registered(make)
        assert (answer["id"], row.description, row.shared, row.tags, row.active) == (row.id, "old box", True, ["linux", "ruby"], True)
        assert {key: getattr(row, key) for key in INFO} == INFO
        assert (await OldRunner(ci, answer["token"]).claim()).status_code == 404

    async def test_makes_a_runner_of_a_project_by_its_token(self, ci: httpx.AsyncClient, make: Make, project: tables.Project) -> None:
        await make.waiting_build(await make.project())
        mine = await make.waiting_build(project)

        response = await ci.post("runners/register", data={"token": await registration_token(make, project.id), "info[name]": "box"})

        assert response.status_code == 201
        runner = OldRunner(ci, response.json()["token"])
        assert (await runner.claim()).json()["id"] == mine.id
        assert (await runner.claim()).status_code == 404
        (row,) = await registered(make)
        assert (row.shared, row.description, row.name) == (False, "box", INFO["name"])

    async def test_needs_a_token(self, ci: httpx.AsyncClient) -> None:
        response = await ci.post("runners/register.json", json={"info": INFO})

        assert (response.status_code, response.json()) == (400, {"message": '400 (Bad request) "token" not given'})

    async def test_refuses_another_token(self, ci: httpx.AsyncClient, make: Make, runner: OldRunner) -> None:
        admin = await make.admin()
        for token in ("wrong", token_of(admin), runner.token, "x" * 300):
            response = await ci.post("runners/register.json", json={"token": token})
            assert (response.status_code, response.json()) == (403, FORBIDDEN)

    async def test_has_who_guesses_wait_and_nobody_else(self, ci: httpx.AsyncClient, make: Make) -> None:
        token = await registration_token(make, 0)
        for _ in range(60):
            await ci.post("runners/register.json", json={"token": "wrong"})

        guess = await ci.post("runners/register.json", json={"token": "wrong"})
        right = await ci.post("runners/register.json", json={"token": token})

        assert guess.status_code == 429
        assert int(guess.headers["retry-after"]) > 0
        assert right.status_code == 201

    async def test_refuses_a_token_that_was_reset(self, ci: httpx.AsyncClient, make: Make, ask: Any) -> None:
        old = await registration_token(make, 0)
        mutation = "mutation { resetRunnersToken(input: {}) { runnersToken { value } userErrors { code } } }"
        fresh = (await ask.data(mutation, await make.admin()))["resetRunnersToken"]["runnersToken"]["value"]

        statuses = [(await ci.post("runners/register.json", json={"token": token})).status_code for token in (old, fresh)]

        assert statuses == [403, 201]


class TestDelete:
    """DELETE /runners/delete"""

    async def test_forgets_the_runner(self, ci: httpx.AsyncClient, make: Make, runner: OldRunner) -> None:
        response = await ci.request("DELETE", "runners/delete.json", json={"token": runner.token})

        assert response.status_code == 200
        check("Runner", response.json())
        assert await registered(make) == []
        assert (await runner.claim()).status_code == 403

    async def test_takes_the_token_in_the_query_too(self, ci: httpx.AsyncClient, make: Make, runner: OldRunner) -> None:
        assert (await ci.delete("runners/delete", params={"token": runner.token})).status_code == 200
        assert await registered(make) == []

    async def test_gives_back_what_the_runner_has(self, ci: httpx.AsyncClient, make: Make, running: OldRunner) -> None:
        await ci.request("DELETE", "runners/delete", json={"token": running.token})

        build = await make.fetch(tables.Build, running.build["id"])
        assert build is not None and build.status is tables.CheckStatus.PENDING

    @pytest.mark.parametrize("token", ["wrong", "fr-" + "x" * 20, "fb-1-" + "x" * 20])
    async def test_refuses_another_token(self, ci: httpx.AsyncClient, token: str) -> None:
        response = await ci.delete("runners/delete", params={"token": token})

        assert (response.status_code, response.json()) == (403, FORBIDDEN)

    async def test_refuses_the_token_of_a_build(self, ci: httpx.AsyncClient, make: Make, running: OldRunner) -> None:
        response = await ci.delete("runners/delete", params={"token": running.build["token"]})

        assert response.status_code == 403
        assert len(await registered(make)) == 1

    async def test_needs_a_token(self, ci: httpx.AsyncClient) -> None:
        assert (await ci.delete("runners/delete")).status_code == 400
