"""Members of projects, under both profiles."""

import asyncio

from storage import tables
from storage.tables import AccessLevel
from tests.make import DataFactory
from tests.support.api_clients import Api
from tests.support.database.statements import StatementRecorder

NOT_FOUND = {"message": "404 Not found"}


class TestProjectMembers:
    async def test_are_listed_and_searched(self, any_api: Api, make: DataFactory, statements: StatementRecorder) -> None:
        owner, group_member = await make.user(), await make.user("grouped")
        group = await make.group(owner=owner, members=[(group_member, AccessLevel.GUEST)])
        project = await make.project(group=group)
        for name in ("ada", "bob", "Adam", "a_d"):
            await make.member(project, await make.user(name), AccessLevel.DEVELOPER)
        path = f"/projects/{project.id}/members"

        with statements.record() as few:
            first = await any_api.get(path, owner, per_page=1)
        with statements.assert_at_most(len(few)):
            every = await any_api.get(path, owner)

        assert (first.headers["X-Total"], first.headers["X-Next-Page"]) == ("4", "2")
        assert [(each["username"], each["access_level"]) for each in every.json()] == [(n, 30) for n in ("ada", "bob", "Adam", "a_d")]
        for query, found in (("AD", ["ada", "Adam"]), ("_", ["a_d"]), ("%", []), ("zed", []), ("", ["ada", "bob", "Adam", "a_d"])):
            assert [each["username"] for each in (await any_api.get(path, owner, query=query)).json()] == found
        assert (await any_api.get(path, owner, query="a" * 5000)).status_code == 400

    async def test_one_is_direct_and_of_this_project(self, any_api: Api, make: DataFactory) -> None:
        owner, member, other = await make.user(), await make.user(), await make.user()
        project = await make.project(owner=owner)
        await make.member(project, member, AccessLevel.REPORTER)
        await make.member(await make.project(owner=owner), other, AccessLevel.REPORTER)
        path = f"/projects/{project.id}/members"

        found = await any_api.get(f"{path}/{member.id}", owner)

        assert (found.status_code, found.json()["id"], found.json()["access_level"]) == (200, member.id, 20)
        for absent in (owner.id, other.id, 4711, "ASDF"):
            missing = await any_api.get(f"{path}/{absent}", owner)
            assert (missing.status_code, missing.json()) == (404, NOT_FOUND)

    async def test_are_added_once(self, any_api: Api, make: DataFactory) -> None:
        owner, user = await make.user(), await make.user()
        project = await make.project(owner=owner)
        path = f"/projects/{project.id}/members"

        added = await any_api.post(path, owner, user_id=user.id, access_level=30)
        again = await any_api.post(path, owner, user_id=user.id, access_level=10)

        assert (added.status_code, added.json()["username"], added.json()["access_level"]) == (201, user.username, 30)
        assert (again.status_code, again.json()) == (201, added.json())
        assert await make.count(tables.ProjectMember) == 1
        for values, missing in (({"access_level": 30}, "user_id"), ({"user_id": user.id}, "access_level"), ({}, "user_id")):
            refused = await any_api.post(path, owner, **values)
            assert (refused.status_code, refused.json()) == (400, {"message": f'400 (Bad request) "{missing}" not given'})
        for level in (1234, 50, 0, "x"):
            refused = await any_api.post(path, owner, user_id=(await make.user()).id, access_level=level)
            assert (refused.status_code, list(refused.json()["message"])) == (422, ["access_level"])
        assert (await any_api.post(path, owner, user_id=4711, access_level=30)).status_code == 404
        assert await make.count(tables.ProjectMember) == 1

    async def test_are_added_once_by_many_at_once(self, any_api: Api, make: DataFactory) -> None:
        owner, user = await make.user(), await make.user()
        project = await make.project(owner=owner)

        added = await asyncio.gather(
            *(any_api.post(f"/projects/{project.id}/members", owner, user_id=user.id, access_level=30) for _ in range(12))
        )

        assert [each.status_code for each in added] == [201] * 12
        assert [each.json() for each in added] == [added[0].json()] * 12
        assert await make.count(tables.ProjectMember) == 1

    async def test_get_another_level(self, any_api: Api, make: DataFactory) -> None:
        owner, user = await make.user(), await make.user()
        project = await make.project(owner=owner)
        await make.member(project, user, AccessLevel.REPORTER)
        path = f"/projects/{project.id}/members"

        changed = await any_api.put(f"{path}/{user.id}", owner, access_level=40)

        assert (changed.status_code, changed.json()["access_level"]) == (200, 40)
        refused = await any_api.put(f"{path}/{user.id}", owner, access_level=1234)
        assert (refused.status_code, refused.json()) == (422, {"message": {"access_level": ["is not included in the list"]}})
        assert (await any_api.put(f"{path}/{user.id}", owner)).status_code == 400
        for absent in (4711, (await make.user()).id, "ASDF"):
            missing = await any_api.put(f"{path}/{absent}", owner, access_level=10)
            assert missing.status_code == 404

    async def test_are_removed_and_absent_ones_are_no_failure(self, any_api: Api, make: DataFactory) -> None:
        owner, user = await make.user(), await make.user()
        project = await make.project(owner=owner)
        member = await make.member(project, user, AccessLevel.REPORTER)
        path = f"/projects/{project.id}/members"

        removed = await any_api.delete(f"{path}/{user.id}", owner)

        assert (removed.status_code, removed.json()["id"], removed.json()["source_id"]) == (200, member.id, project.id)
        for absent in (user.id, 4711):
            again = await any_api.delete(f"{path}/{absent}", owner)
            assert (again.status_code, again.json()) == (200, {"message": "Access revoked", "id": absent})
        assert (await any_api.delete(f"{path}/ASDF", owner)).status_code == 404
        assert (await any_api.delete(f"/projects/4711/members/{user.id}", owner)).json() == {"message": "404 Project Not Found"}
