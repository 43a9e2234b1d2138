"""Branches in v3."""

import asyncio
from typing import Any

import pytest

from storage import tables
from storage.tables import AccessLevel
from tests.make import DataFactory
from tests.support.api_clients import Api
from tests.support.database.statements import StatementRecorder


@pytest.fixture
async def people(make: DataFactory) -> dict[str, tables.User]:
    return {"reporter": await make.user(), "developer": await make.user(), "master": await make.user()}


@pytest.fixture
async def project(make: DataFactory, people: dict[str, tables.User]) -> tables.Project:
    members = zip(people.values(), (AccessLevel.REPORTER, AccessLevel.DEVELOPER, AccessLevel.MASTER), strict=True)
    return await make.project(history={"commits": 4}, members=members)


def path_of(project: tables.Project, rest: str = "") -> str:
    return f"/projects/{project.id}/repository/branches{rest}"


async def read_head(make: DataFactory, project: tables.Project, name: str) -> Any:
    return await make.services.repositories.read(project.id, lambda repository: repository.commit(str(repository.resolve(name))))


async def create_refs(make: DataFactory, project: tables.Project, *names: str) -> None:
    def work(repository: Any) -> None:
        oid = repository.resolve("master")
        for name in names:
            repository.move_ref(name, oid, None)

    await make.services.repositories.read(project.id, work)


class TestListBranches:
    """GET /projects/:id/repository/branches"""

    async def test_shows_each_branch_with_its_commit(
        self, any_api: Api, make: DataFactory, project: tables.Project, people: dict[str, tables.User]
    ) -> None:
        await make.save(tables.ProtectedBranch(project_id=project.id, name="topic"))

        response = await any_api.get(path_of(project), people["reporter"], per_page="1")

        assert "link" not in response.headers
        master, topic = response.json()
        assert (master["name"], master["protected"], topic["name"], topic["protected"]) == ("master", False, "topic", True)
        commit = await read_head(make, project, "master")
        assert master["commit"] == {
            "id": commit.oid,
            "message": commit.message,
            "parent_ids": list(commit.parents),
            "authored_date": commit.authored_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "author_name": commit.author_name,
            "author_email": commit.author_email,
            "committed_date": commit.committed_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "committer_name": commit.committer_name,
            "committer_email": commit.committer_email,
        }
        empty = await make.project(members=[(people["master"], AccessLevel.MASTER)])
        assert (await any_api.get(path_of(empty), people["master"])).json() == []

    async def test_statement_count_does_not_grow_with_branches(
        self, api: Api, make: DataFactory, project: tables.Project, people: dict[str, tables.User], statements: StatementRecorder
    ) -> None:
        for path in ("branches", "tags"):
            call = f"/projects/{project.id}/repository/{path}"
            await api.get(call, people["reporter"])
            with statements.record() as few:
                count = len((await api.get(call, people["reporter"])).json())
            await create_refs(make, project, *(f"refs/{'heads' if path == 'branches' else 'tags'}/b{number:03}" for number in range(150)))
            with statements.record() as many:
                names = [each["name"] for each in (await api.get(call, people["reporter"])).json()]
            assert len(names) == count + 150 == len(set(names))
            assert names == sorted(names, reverse=path == "tags")
            assert len(many) == len(few) <= 4


class TestGetBranch:
    """GET /projects/:id/repository/branches/:branch"""

    async def test_a_name_may_hold_slashes_and_dots(
        self, any_api: Api, make: DataFactory, project: tables.Project, people: dict[str, tables.User]
    ) -> None:
        await create_refs(make, project, "refs/heads/fix/a/b.c", "refs/heads/protect")

        for name in ("fix/a/b.c", "fix%2Fa%2Fb.c", "protect", "topic"):
            response = await any_api.get(path_of(project, f"/{name}"), people["reporter"])
            assert (response.status_code, response.json()["name"]) == (200, name.replace("%2F", "/"))

        for name in ("fix", "fix/a", "v1", "HEAD", "refs/heads/master", "master~1"):
            response = await any_api.get(path_of(project, f"/{name}"), people["reporter"])
            assert (response.status_code, response.json()) == (404, {"message": "404 Branch Not Found"})

    async def test_a_name_may_end_like_an_action(
        self, any_api: Api, make: DataFactory, project: tables.Project, people: dict[str, tables.User]
    ) -> None:
        await create_refs(make, project, "refs/heads/fix/protect")
        path = path_of(project, "/fix/protect")

        for written in (path, path_of(project, "/fix%2Fprotect")):
            shown = await any_api.get(written, people["developer"])
            assert (shown.status_code, shown.json()["name"], shown.json()["protected"]) == (200, "fix/protect", False)
        assert (await any_api.put(f"{path}/protect", people["master"])).json()["protected"] is True
        assert (await any_api.put(f"{path}/unprotect", people["master"])).json()["protected"] is False
        # The action on a branch takes precedence.
        assert (await any_api.put(path, people["master"])).status_code == 404
        refused = await any_api.post(path, people["master"])
        assert (refused.status_code, refused.headers["allow"]) == (405, "OPTIONS, PUT")
        assert (await any_api.delete(path, people["developer"])).json() == {"branch_name": "fix/protect"}
        assert (await any_api.delete("/projects/owned", people["master"])).status_code == 405


class TestCreateBranch:
    """POST /projects/:id/repository/branches"""

    async def test_starts_at_the_given_ref(
        self, any_api: Api, make: DataFactory, project: tables.Project, people: dict[str, tables.User]
    ) -> None:
        for name, ref in (("new/one", "topic"), ("new/two", "v1"), ("new/three", (await read_head(make, project, "master")).oid)):
            response = await any_api.post(path_of(project), people["developer"], branch_name=name, ref=ref)

            assert (response.status_code, response.json()["name"]) == (201, name)
            assert response.json()["commit"]["id"] == (await read_head(make, project, ref)).oid
            assert (await read_head(make, project, name)).oid == response.json()["commit"]["id"]

    async def test_reports_why_it_was_not_created(self, any_api: Api, project: tables.Project, people: dict[str, tables.User]) -> None:
        for name, ref, message in (
            ("master", "topic", "Branch already exists"),
            ("new", "unknown", "Invalid reference name"),
            ("new", "master~1", "Invalid reference name"),
            ("a b", "master", "Branch name is invalid"),
            ("../x", "master", "Branch name is invalid"),
            ("--all", "master", "Branch name is invalid"),
            ("a" * 300, "master", "Branch name is invalid"),
            ("master/x", "topic", "The name conflicts with an existing branch or tag."),
            ("", "master", '400 (Bad request) "branch_name" not given'),
            ("new", "", '400 (Bad request) "ref" not given'),
        ):
            response = await any_api.post(path_of(project), people["developer"], branch_name=name, ref=ref)
            assert (response.status_code, response.json()) == (400, {"message": message})


class TestProtectBranch:
    """PUT /projects/:id/repository/branches/:branch/protect and /unprotect"""

    async def test_protects_and_unprotects_again_and_again(
        self, any_api: Api, make: DataFactory, project: tables.Project, people: dict[str, tables.User]
    ) -> None:
        await create_refs(make, project, "refs/heads/fix/a")
        for name in ("topic", "fix/a", "fix%2Fa"):
            for change, protected in (("protect", True), ("protect", True), ("unprotect", False), ("unprotect", False)):
                response = await any_api.put(path_of(project, f"/{name}/{change}"), people["master"])
                assert (response.status_code, response.json()["protected"]) == (200, protected)
        for change in ("protect", "unprotect"):
            response = await any_api.put(path_of(project, f"/unknown/{change}"), people["master"])
            assert (response.status_code, response.json()) == (404, {"message": "404 Branch Not Found"})

    async def test_keeps_a_branch_that_developers_can_push_to(
        self, api: Api, make: DataFactory, project: tables.Project, people: dict[str, tables.User]
    ) -> None:
        row = tables.ProtectedBranch(project_id=project.id, name="topic", developers_can_push=True)
        await make.save(row)
        await api.put(path_of(project, "/topic/protect"), people["master"])
        kept = await make.fetch(tables.ProtectedBranch, row.id)
        assert kept is not None and kept.developers_can_push


class TestDeleteBranch:
    """DELETE /projects/:id/repository/branches/:branch"""

    async def test_deletes_what_is_neither_protected_nor_the_default(
        self, any_api: Api, make: DataFactory, project: tables.Project, people: dict[str, tables.User]
    ) -> None:
        await make.save(tables.ProtectedBranch(project_id=project.id, name="topic"))
        await create_refs(make, project, "refs/heads/fix/a")
        for viewer in ("developer", "master"):
            for name, status, message in (
                ("topic", 405, "Protected branch cant be removed"),
                ("master", 405, "Cannot remove HEAD branch"),
                ("unknown", 404, "No such branch"),
            ):
                response = await any_api.delete(path_of(project, f"/{name}"), people[viewer])
                assert (response.status_code, response.json()) == (status, {"message": message})

        response = await any_api.delete(path_of(project, "/fix/a"), people["developer"])

        assert (response.status_code, response.json()) == (200, {"branch_name": "fix/a"})
        names = [each["name"] for each in (await any_api.get(path_of(project), people["reporter"])).json()]
        assert names == ["master", "topic"]

    async def test_concurrent_deletions_succeed_once(
        self, any_api: Api, make: DataFactory, project: tables.Project, people: dict[str, tables.User]
    ) -> None:
        await create_refs(make, project, "refs/heads/gone")

        responses = await asyncio.gather(*(any_api.delete(path_of(project, "/gone"), people["developer"]) for _ in range(8)))

        assert sorted(each.status_code for each in responses) == [200] + [404] * 7
        assert [each.json() for each in responses if each.status_code == 404] == [{"message": "No such branch"}] * 7
