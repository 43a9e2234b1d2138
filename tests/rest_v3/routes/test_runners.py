"""Runners, which GitLab 8.5 served and the interface document leaves out."""

from datetime import timedelta

import pytest

from graph.context import Services
from storage import integrity, tables
from storage.database.clock import now
from storage.tables import AccessLevel
from tests.make import DataFactory
from tests.support.api_clients import Api, Ask
from tests.support.database.statements import StatementRecorder

ACCESS = {"message": "403 Forbidden - No access granted"}
SHARED = {"message": "403 Forbidden - Runner is shared"}
SCOPE = {"message": "Scope contains invalid value"}


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user()


async def ids(api: Api, path: str, viewer: tables.User, **params: object) -> list[int]:
    response = await api.get(path, viewer, **params)
    assert response.status_code == 200
    return [row["id"] for row in response.json()]


class TestLists:
    """GET /runners, GET /runners/all, GET /projects/:id/runners"""

    async def test_by_scope(self, any_api: Api, make: DataFactory, owner: tables.User) -> None:
        admin, project = await make.admin(), await make.project(owner=owner)
        watched = await make.project(members=[(owner, AccessLevel.DEVELOPER)])
        online = await make.runner(project, contacted_at=now())
        paused = await make.runner(project, watched, active=False, contacted_at=now() - timedelta(minutes=6))
        other = await make.runner(watched)
        shared = await make.runner(contacted_at=now())
        of_project = f"/projects/{project.id}/runners"

        assert await ids(any_api, "/runners", owner) == [online.id, paused.id]
        assert await ids(any_api, "/runners", admin) == []
        assert await ids(any_api, "/runners/all", admin) == [online.id, paused.id, other.id, shared.id]
        assert await ids(any_api, of_project, owner) == [online.id, paused.id, shared.id]
        for scope, own, all_of_it, of_the_project in (
            ("active", [online], [online, other, shared], [online, shared]),
            ("paused", [paused], [paused], [paused]),
            ("online", [online], [online, shared], [online, shared]),
            ("specific", None, [online, paused, other], [online, paused]),
            ("shared", None, [shared], [shared]),
        ):
            if own is not None:
                assert await ids(any_api, "/runners", owner, scope=scope) == [row.id for row in own]
            assert await ids(any_api, "/runners/all", admin, scope=scope) == [row.id for row in all_of_it]
            assert await ids(any_api, of_project, owner, scope=scope) == [row.id for row in of_the_project]
        for path, viewer, scope in (("/runners", owner, "shared"), ("/runners/all", admin, "x"), (of_project, owner, "unknown")):
            response = await any_api.get(path, viewer, scope=scope)
            assert (response.status_code, response.json()) == (400, SCOPE)
        assert (await any_api.get("/runners/all", owner, scope="x")).status_code == 403
        page = await any_api.get("/runners", owner, per_page=1, page=2)
        assert ([row["id"] for row in page.json()], page.headers["x-total"]) == ([paused.id], "2")

    async def test_statement_count_does_not_grow_with_rows(
        self, api: Api, ask: Ask, make: DataFactory, owner: tables.User, statements: StatementRecorder
    ) -> None:
        project, counts = await make.project(owner=owner), []
        await make.runner(project)
        for more in (1, 9):
            for _ in range(more):
                await make.runner(project, await make.project(owner=owner))
            with statements.record() as seen:
                await ids(api, "/runners", owner)
                await ids(api, f"/projects/{project.id}/runners", owner)
                await ask.data("{ availableRunners { nodes { token projects { fullPath } } } }", owner)
            counts.append(len(seen))
        assert counts[0] == counts[1]


class TestRunner:
    """GET, PUT and DELETE /runners/:id"""

    async def test_details(self, any_api: Api, make: DataFactory, owner: tables.User, services: Services) -> None:
        project, other = await make.project(owner=owner), await make.project()
        reported = {"name": "ci", "version": "1.0", "revision": "abc", "platform": "linux", "architecture": "amd64"}
        runner = await make.runner(project, tags=["a"], description="R", contacted_at=now(), **reported)
        both, shared = await make.runner(project, other), await make.runner()
        path = f"/runners/{runner.id}"

        details = (await any_api.get(path, owner)).json()
        assert {key: details[key] for key in reported} == reported
        assert (details["tag_list"], details["is_shared"], details["token"]) == (["a"], False, make.runner_token(runner))
        assert [(each["id"], each["path_with_namespace"]) for each in details["projects"]] == [
            (project.id, f"{owner.username}/{project.path}")
        ]
        # The token of one that serves others too would let the master of one project claim the builds of the other.
        assert [(await any_api.get(f"/runners/{row.id}", owner)).json()["token"] for row in (both, shared)] == [None, None]
        assert (await any_api.get(f"/runners/{shared.id}", await make.user())).status_code == 200
        assert (await any_api.get(f"/runners/{both.id}", await make.admin())).json()["token"] == make.runner_token(both)
        for missing in ("999999", "0", "abc"):
            for method in ("GET", "PUT", "DELETE"):
                response = await any_api.request(method, f"/runners/{missing}", owner)
                assert (response.status_code, response.json()) == (404, {"message": "404 Not found"})
        denied = await any_api.get(path, await make.user())
        assert (denied.status_code, denied.json()) == (403, ACCESS)
        await integrity.forget_sealed_tokens(services.database)
        assert (await any_api.get(path, owner)).json()["token"] is None

    async def test_is_changed(self, any_api: Api, make: DataFactory, owner: tables.User) -> None:
        project = await make.project(owner=owner)
        runner, shared = await make.runner(project), await make.runner()
        path = f"/runners/{runner.id}"

        changed = await any_api.put(path, owner, description="New", active=False, tag_list="ruby, mysql")
        assert (changed.status_code, changed.json()["active"], changed.json()["tag_list"]) == (200, False, ["mysql", "ruby"])
        again = (await any_api.put(path, owner)).json()
        assert (again["description"], again["active"], again["tag_list"]) == ("New", False, ["mysql", "ruby"])
        assert (await any_api.put(path, owner, tag_list="")).json()["tag_list"] == []
        for sent, message in (
            ({"description": "x" * 256}, {"description": ["is too long (maximum is 255 characters)"]}),
            ({"tag_list": ["x" * 256]}, {"tag_list": ["is too long (maximum is 255 characters)"]}),
            ({"active": []}, {"active": ["is invalid"]}),
        ):
            invalid = await any_api.put(path, owner, **sent)
            if sent == {"active": []}:
                assert invalid.status_code in (200, 400)
                continue
            assert (invalid.status_code, invalid.json()) == (400, {"message": message})
        for viewer, number, body in ((await make.user(), runner.id, ACCESS), (owner, shared.id, SHARED)):
            denied = await any_api.put(f"/runners/{number}", viewer, description="x")
            assert (denied.status_code, denied.json()) == (403, body)
        assert (await any_api.put(f"/runners/{shared.id}", await make.admin(), active=False)).json()["active"] is False

    async def test_is_deleted(self, any_api: Api, make: DataFactory, owner: tables.User) -> None:
        projects = [await make.project(owner=owner) for _ in range(2)]
        runner, both, shared = await make.runner(projects[0]), await make.runner(*projects), await make.runner()
        several = {"message": "403 Forbidden - Runner associated with more than one project"}

        for viewer, row, body in ((await make.user(), runner, ACCESS), (owner, both, several), (owner, shared, SHARED)):
            denied = await any_api.delete(f"/runners/{row.id}", viewer)
            assert (denied.status_code, denied.json()) == (403, body)
        assert (await any_api.delete(f"/runners/{runner.id}", owner)).json()["id"] == runner.id
        admin = await make.admin()
        for row in (both, shared):
            assert (await any_api.delete(f"/runners/{row.id}", admin)).status_code == 200
        assert await make.count(tables.Runner) == 0


class TestProjectRunners:
    """POST and DELETE /projects/:id/runners"""

    async def test_are_assigned_and_taken_away(self, any_api: Api, make: DataFactory, owner: tables.User) -> None:
        project, second = [await make.project(owner=owner) for _ in range(2)]
        runner, foreign, shared = await make.runner(project), await make.runner(await make.project()), await make.runner()
        path = f"/projects/{second.id}/runners"

        assigned = await any_api.post(path, owner, runner_id=runner.id)
        assert (assigned.status_code, assigned.json()["id"]) == (201, runner.id)
        for sent, status, body in (
            ({"runner_id": runner.id}, 400, {"message": {"runner_id": ["has already been taken"]}}),
            ({}, 400, {"message": '400 (Bad request) "runner_id" not given'}),
            ({"runner_id": "x"}, 400, {"message": {"runner_id": ["is not a number"]}}),
            ({"runner_id": 999999}, 404, {"message": "404 Not found"}),
            ({"runner_id": shared.id}, 403, SHARED),
            ({"runner_id": foreign.id}, 403, ACCESS),
        ):
            response = await any_api.post(path, owner, **sent)
            assert (response.status_code, response.json()) == (status, body)
        assert (await any_api.post(path, await make.admin(), runner_id=foreign.id)).status_code == 201

        taken = await any_api.delete(f"{path}/{runner.id}", owner)
        assert (taken.status_code, taken.json()["id"]) == (200, runner.id)
        only = "Only one project associated with the runner. Please remove the runner instead"
        last = await any_api.delete(f"/projects/{project.id}/runners/{runner.id}", owner)
        assert (last.status_code, last.json()) == (403, {"message": f"403 Forbidden - {only}"})
        for number in (runner.id, shared.id, 999999, "x"):
            response = await any_api.delete(f"{path}/{number}", owner)
            assert (response.status_code, response.json()) == (404, {"message": "404 Runner Not Found"})
