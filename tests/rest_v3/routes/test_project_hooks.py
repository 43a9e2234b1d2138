"""Hooks of projects, under both profiles."""

from typing import Any

from storage import tables
from tests.make import DataFactory
from tests.support.api_clients import Api
from tests.support.database.statements import StatementRecorder

NOT_FOUND = {"message": "404 Not found"}
URL = "http://hooks.example/"


class TestProjectHooks:
    async def make_hook(self, make: DataFactory, project: tables.Project | None, **columns: Any) -> tables.Hook:
        hook = tables.Hook(url=URL, project_id=project and project.id, **columns)
        await make.save(hook)
        return hook

    async def test_are_of_one_project(self, any_api: Api, make: DataFactory, statements: StatementRecorder) -> None:
        owner = await make.user()
        project, other = await make.project(owner=owner), await make.project(owner=owner)
        first, second = await self.make_hook(make, project, build_events=True), await self.make_hook(make, project)
        theirs, system = await self.make_hook(make, other), await self.make_hook(make, None)
        path = f"/projects/{project.id}/hooks"

        with statements.record() as few:
            page = await any_api.get(path, owner, per_page=1)
        with statements.assert_at_most(len(few)):
            every = await any_api.get(path, owner)

        assert (page.headers["X-Total"], page.headers["X-Next-Page"]) == ("2", "2")
        assert [(each["id"], each["build_events"], each["project_id"]) for each in every.json()] == [
            (first.id, True, project.id),
            (second.id, False, project.id),
        ]
        assert (await any_api.get(f"{path}/{first.id}", owner)).json() == every.json()[0]
        for absent in (theirs.id, system.id, 4711, "ASDF"):
            for method in ("GET", "PUT", "DELETE"):
                missing = await any_api.request(method, f"{path}/{absent}", owner, params={"url": URL})
                assert (missing.status_code, missing.json()) == (404, NOT_FOUND)
        assert await make.count(tables.Hook) == 4

    async def test_are_created_changed_and_deleted(self, any_api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        path = f"/projects/{project.id}/hooks"

        created = await any_api.post(path, owner, url=URL, issues_events=True, push_events="false", token="t")

        assert created.status_code == 201
        switches = {key: value for key, value in created.json().items() if key.endswith("_events") and value}
        assert (switches, created.json()["enable_ssl_verification"]) == ({"issues_events": True}, True)
        assert (await any_api.post(path, owner, url=URL)).json()["push_events"] is True
        one = f"{path}/{created.json()['id']}"
        changed = await any_api.put(one, owner, url="http://hooks.example/2", issues_events=False, enable_ssl_verification=False)
        assert (changed.status_code, changed.json()["url"]) == (200, "http://hooks.example/2")
        assert (changed.json()["issues_events"], changed.json()["enable_ssl_verification"]) == (False, False)
        for method, target in (("POST", path), ("PUT", one)):
            for values, status, message in (
                ({}, 400, '400 (Bad request) "url" not given'),
                ({"url": "ftp://hooks.example/"}, 422, "Invalid url given"),
                ({"url": "http://169.254.169.254/"}, 422, "Invalid url given"),
            ):
                refused = await any_api.request(method, target, owner, json=values)
                assert (refused.status_code, refused.json()) == (status, {"message": message})
        deleted = await any_api.delete(one, owner)
        assert (deleted.status_code, deleted.json()["id"]) == (200, created.json()["id"])
        assert (await any_api.delete(one, owner)).status_code == 404
        assert await make.count(tables.Hook) == 1

    async def test_keep_the_credentials_of_an_address_that_is_sent_back(self, any_api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        path = f"/projects/{project.id}/hooks"
        created = (await any_api.post(path, owner, url="http://u:p@hooks.example/x#here")).json()
        before = await make.fetch(tables.Hook, created["id"])
        assert before is not None and before.sealed_credentials is not None

        changed = await any_api.put(f"{path}/{created['id']}", owner, url=created["url"], note_events=True)

        assert (changed.status_code, changed.json()["url"], changed.json()["note_events"]) == (200, "http://hooks.example/x", True)
        after = await make.fetch(tables.Hook, created["id"])
        assert after is not None and after.sealed_credentials == before.sealed_credentials
        # Another address does not get the password of this one.
        await any_api.put(f"{path}/{created['id']}", owner, url="http://hooks.example/y")
        moved = await make.fetch(tables.Hook, created["id"])
        assert moved is not None and moved.sealed_credentials is None

    async def test_with_another_address_are_enabled(self, any_api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        failed = {"failing_since": project.created_at, "disabled_at": project.created_at, "disabled_reason": "x"}
        hook = await self.make_hook(make, project, **failed)
        path = f"/projects/{project.id}/hooks/{hook.id}"

        for url, is_disabled in ((URL, True), ("http://hooks.example/new", False)):
            assert (await any_api.put(path, owner, url=url)).status_code == 200
            row = await make.fetch(tables.Hook, hook.id)
            assert row is not None
            assert [value is not None for value in (row.failing_since, row.disabled_at, row.disabled_reason)] == [is_disabled] * 3

    async def test_have_an_address_that_can_be_stored(self, any_api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))

        # Each of these characters takes six when it is escaped.
        refused = await any_api.post(f"/projects/{project.id}/hooks", owner, url="http://hooks.example/" + "ü" * 500)

        assert (refused.status_code, refused.json()) == (422, {"message": "Invalid url given"})
