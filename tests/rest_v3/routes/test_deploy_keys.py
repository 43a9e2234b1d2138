"""Deploy keys of projects, and keys by their id, under both profiles."""

import asyncio

from storage import tables
from storage.tables import AccessLevel
from tests.make import DataFactory, ssh_key
from tests.support.api_clients import Api
from tests.support.database.statements import StatementRecorder

NOT_FOUND = {"message": "404 Not found"}
TAKEN = {"message": {"key": ["has already been taken"], "fingerprint": ["has already been taken"]}}


class TestDeployKeys:
    async def test_are_of_one_project_and_unpaged(self, any_api: Api, make: DataFactory, statements: StatementRecorder) -> None:
        owner = await make.user()
        project, other = await make.project(owner=owner), await make.project(owner=owner)
        path = f"/projects/{project.id}/keys"
        for number in range(1, 24):
            assert (await any_api.post(path, owner, title=f"K{number}", key=ssh_key(number))).status_code == 201
        elsewhere = (await any_api.post(f"/projects/{other.id}/keys", owner, title="K", key=ssh_key(99))).json()

        with statements.assert_at_most(4):
            listed = await any_api.get(path, owner, per_page=2)

        assert [each["title"] for each in listed.json()] == [f"K{number}" for number in range(1, 24)]
        assert "X-Total" not in listed.headers
        first = listed.json()[0]
        assert (await any_api.get(f"{path}/{first['id']}", owner)).json() == first
        deleted = await any_api.delete(f"{path}/{first['id']}", owner)
        assert (deleted.status_code, deleted.json()["id"], len(deleted.json()["fingerprint"])) == (200, first["id"], 47)
        for absent in (first["id"], elsewhere["id"], 4711, "ASDF"):
            for method in ("GET", "DELETE"):
                missing = await any_api.request(method, f"{path}/{absent}", owner)
                assert (missing.status_code, missing.json()) == (404, NOT_FOUND)
        assert await make.count(tables.DeployKey) == 23

    async def test_invalid_values(self, any_api: Api, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        path = f"/projects/{project.id}/keys"
        blank = ["can't be blank", "is too short (minimum is 0 characters)"]

        for values, message in (
            ({"title": "invalid key"}, {"key": [*blank, "is invalid"], "fingerprint": ["cannot be generated"]}),
            ({"key": ssh_key(1)}, {"title": blank}),
            ({"title": " ", "key": "some key"}, {"title": blank, "key": ["is invalid"], "fingerprint": ["cannot be generated"]}),
            ({"title": "x" * 256, "key": ssh_key(1)}, {"title": ["is too long (maximum is 255 characters)"]}),
        ):
            refused = await any_api.post(path, owner, **values)
            assert (refused.status_code, refused.json()) == (400, {"message": message})
        assert await make.count(tables.DeployKey) == 0

    async def test_a_key_belongs_to_a_user_or_to_projects_of_its_masters(self, any_api: Api, make: DataFactory) -> None:
        owner, stranger, developer = await make.user(), await make.user(), await make.user()
        project, second = await make.project(owner=owner), await make.project(owner=owner)
        theirs, developed = await make.project(owner=stranger), await make.project(owner=developer)
        await make.member(project, developer, AccessLevel.DEVELOPER)
        first = await any_api.post(f"/projects/{project.id}/keys", owner, title="First", key=ssh_key(1))

        again = await any_api.post(f"/projects/{project.id}/keys", owner, title="Again", key=f"{ssh_key(1)} comment")
        linked = await any_api.post(f"/projects/{second.id}/keys", owner, title="Linked", key=ssh_key(1))

        assert (again.status_code, again.json()) == (201, first.json())
        assert (linked.status_code, linked.json()["title"], linked.json()["key"]) == (201, "First", first.json()["key"])
        # Neither a stranger nor a developer may use it, and it is nobody's own.
        for viewer, elsewhere in ((stranger, theirs), (developer, developed)):
            refused = await any_api.post(f"/projects/{elsewhere.id}/keys", viewer, title="K", key=ssh_key(1))
            assert (refused.status_code, refused.json()) == (400, TAKEN)
        assert (await any_api.post("/user/keys", owner, title="K", key=ssh_key(1))).json() == TAKEN
        assert (await any_api.post("/user/keys", owner, title="K", key=ssh_key(2))).status_code == 201
        assert (await any_api.post(f"/projects/{project.id}/keys", owner, title="K", key=ssh_key(2))).json() == TAKEN
        # The same key of the other project stays.
        assert (await any_api.delete(f"/projects/{project.id}/keys/{first.json()['id']}", owner)).status_code == 200
        assert [key["id"] for key in (await any_api.get(f"/projects/{second.id}/keys", owner)).json()] == [linked.json()["id"]]

    async def test_one_of_several_concurrent_owners_gets_it(self, any_api: Api, make: DataFactory) -> None:
        owners = [await make.user() for _ in range(6)]
        projects = [await make.project(owner=owner) for owner in owners]
        paths = ["/user/keys", *(f"/projects/{project.id}/keys" for project in projects[1:])]

        answers = await asyncio.gather(
            *(any_api.post(path, owner, title="K", key=ssh_key(1)) for owner, path in zip(owners, paths, strict=True))
        )

        assert sorted(answer.status_code for answer in answers) == [201] + [400] * 5
        assert await make.count(tables.DeployKey) + await make.count(tables.SshKey) == 1


class TestKeys:
    """GET /keys/:id"""

    async def test_come_with_their_user(self, any_api: Api, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()
        key = (await any_api.post("/user/keys", user, title="K", key=ssh_key(1))).json()

        found = await any_api.get(f"/keys/{key['id']}", admin)

        assert found.status_code == 200
        assert {name: value for name, value in found.json().items() if name != "user"} == key
        assert (found.json()["user"]["id"], found.json()["user"]["email"]) == (user.id, user.email)
        for absent in (4711, "ASDF"):
            missing = await any_api.get(f"/keys/{absent}", admin)
            assert (missing.status_code, missing.json()) == (404, NOT_FOUND)
        for path in (f"/keys/{key['id']}", "/keys/4711"):
            assert (await any_api.get(path, user)).status_code == 403
