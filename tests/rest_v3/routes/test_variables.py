"""Variables of projects, which GitLab 8.5 served and the interface document leaves out."""

import pytest

from storage import tables
from tests.make import DataFactory
from tests.support.api_clients import Api
from tests.support.database.statements import StatementRecorder

NOT_FOUND = {"message": "404 Variable Not Found"}


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user()


class TestVariables:
    async def test_are_created_listed_changed_and_deleted(self, any_api: Api, make: DataFactory, owner: tables.User) -> None:
        project = await make.project(owner=owner)
        path = f"/projects/{project.id}/variables"
        value = '-----BEGIN KEY-----\nü "quoted"\n'

        created = await any_api.post(path, owner, key="DEPLOY_KEY", value=value)
        assert (created.status_code, created.json()) == (201, {"key": "DEPLOY_KEY", "value": value})
        assert created.headers["cache-control"] == "no-store"
        assert (await any_api.post(path, owner, key="Deploy_Key", value="other")).status_code == 201
        assert (await any_api.get(f"{path}/DEPLOY_KEY", owner)).json() == created.json()

        for sent, expected in (({"value": "new"}, "new"), ({}, "new"), ({"value": " "}, "new")):
            changed = await any_api.put(f"{path}/DEPLOY_KEY", owner, **sent)
            assert (changed.status_code, changed.json()) == (200, {"key": "DEPLOY_KEY", "value": expected})
        listed = await any_api.get(path, owner, per_page=1)
        assert (listed.json(), listed.headers["x-total"]) == ([{"key": "DEPLOY_KEY", "value": "new"}], "2")

        deleted = await any_api.delete(f"{path}/DEPLOY_KEY", owner)
        assert (deleted.status_code, deleted.json()) == (200, {"key": "DEPLOY_KEY", "value": "new"})
        assert [row["key"] for row in (await any_api.get(path, owner)).json()] == ["Deploy_Key"]

    async def test_invalid_values_are_rejected(self, api: Api, make: DataFactory, owner: tables.User) -> None:
        project = await make.project(owner=owner)
        path = f"/projects/{project.id}/variables"
        await make.variable(project, "TAKEN")
        for sent, message in (
            ({}, '400 (Bad request) "key" not given'),
            ({"key": "A"}, '400 (Bad request) "value" not given'),
            ({"key": "A", "value": "  "}, '400 (Bad request) "value" not given'),
            ({"key": "TAKEN", "value": "v"}, {"key": ["has already been taken"]}),
            ({"key": "a-b", "value": "v"}, {"key": ["can contain only letters, digits and '_'."]}),
            ({"key": "ÄÖ", "value": "v"}, {"key": ["can contain only letters, digits and '_'."]}),
            ({"key": "K" * 256, "value": "v"}, {"key": ["is too long (maximum is 255 characters)"]}),
            ({"key": "A", "value": "ü" * 8193}, {"value": ["is too long (maximum is 16384 bytes)"]}),
            ({"key": ["A"], "value": "v"}, {"key": ["is invalid"]}),
            ({"key": "A", "value": {"a": 1}}, {"value": ["is invalid"]}),
        ):
            response = await api.post(path, owner, **sent)
            assert (sent, response.status_code, response.json()) == (sent, 400, {"message": message})
        too_long = await api.put(f"{path}/TAKEN", owner, value="x" * 16385)
        assert (too_long.status_code, too_long.json()) == (400, {"message": {"value": ["is too long (maximum is 16384 bytes)"]}})
        unknown = await api.put(f"{path}/UNKNOWN", owner, value={"a": 1})
        assert (unknown.status_code, unknown.json()) == (404, NOT_FOUND)
        assert await make.count(tables.Variable) == 1

    async def test_a_project_has_a_limit(self, api: Api, make: DataFactory, owner: tables.User) -> None:
        large, many = [await make.project(owner=owner) for _ in range(2)]
        for number in range(4):
            await make.variable(large, f"K{number}", "x" * 16000)
        for number in range(100):
            await make.variable(many, f"K{number}", "v")

        sent = {"key": "MORE", "value": "x" * 1600}
        for project, message in (
            (large, {"value": ["is too long (the values of a project can have 65536 bytes together)"]}),
            (many, {"key": ["is one too many (a project can have 100 variables)"]}),
        ):
            response = await api.post(f"/projects/{project.id}/variables", owner, **sent)
            assert (response.status_code, response.json()) == (400, {"message": message})
        # What it replaces does not count.
        assert (await api.put(f"/projects/{large.id}/variables/K0", owner, value="y" * 16384)).status_code == 200

    async def test_what_is_not_there_is_not_found(self, api: Api, make: DataFactory, owner: tables.User) -> None:
        project, other = [await make.project(owner=owner) for _ in range(2)]
        await make.variable(other, "OTHER")
        for key in ("OTHER", "other", "%00", "a%2Fb", "0"):
            for method in ("GET", "PUT", "DELETE"):
                response = await api.request(method, f"/projects/{project.id}/variables/{key}", owner)
                if key == "%00" and response.status_code == 400:
                    continue
                assert (method, key, response.status_code, response.json()) == (method, key, 404, NOT_FOUND)

    async def test_builds_that_are_disabled_have_none(self, api: Api, make: DataFactory, owner: tables.User) -> None:
        project = await make.project(owner=owner, builds_enabled=False)
        assert (await api.get(f"/projects/{project.id}/variables", owner)).status_code == 403

    async def test_statement_count_does_not_grow_with_rows(
        self, api: Api, make: DataFactory, owner: tables.User, statements: StatementRecorder
    ) -> None:
        project, counts = await make.project(owner=owner), []
        for number in range(1, 12):
            await make.variable(project)
            if number in (2, 11):
                with statements.record() as seen:
                    assert len((await api.get(f"/projects/{project.id}/variables", owner)).json()) == number
                counts.append(len(seen))
        assert counts[0] == counts[1]
