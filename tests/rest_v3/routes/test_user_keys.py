"""The section Users of the interface document: SSH keys."""

import asyncio

import asyncssh
import pytest

from storage import tables
from tests.make import DataFactory
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api

KEY = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
INVALID = {"message": {"key": ["is invalid"], "fingerprint": ["cannot be generated"]}}
TAKEN = {"message": {"key": ["has already been taken"], "fingerprint": ["has already been taken"]}}


async def save(make: DataFactory, user: tables.User, title: str = "Laptop", fingerprint: str = "aa") -> tables.SshKey:
    row = tables.SshKey(user_id=user.id, title=title, key=KEY, fingerprint=fingerprint)
    await make.save(row)
    return row


class TestListOwnKeys:
    """GET /user/keys"""

    async def test_returns_the_newest_first(self, api: Api, make: DataFactory) -> None:
        user = await make.user()
        await save(make, user, "Old", "aa")
        await save(make, user, "New", "bb")
        await save(make, await make.user(), "Other", "cc")

        response = await api.get("/user/keys", user)

        assert response.status_code == 200
        assert [(key["title"], key["key"]) for key in response.json()] == [("New", KEY), ("Old", KEY)]
        assert response.headers["X-Total"] == "2"
        assert (await api.get("/user/keys")).status_code == 401


class TestListKeysOfUser:
    """GET /users/:uid/keys"""

    async def test_requires_an_administrator(self, api: Api, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()
        await save(make, user)

        assert [key["title"] for key in (await api.get(f"/users/{user.id}/keys", admin)).json()] == ["Laptop"]
        response = await api.get("/users/4711/keys", admin)
        assert (response.status_code, response.json()) == (404, {"message": "404 User Not Found"})

    @cites("Authentication: listing another's keys and e-mails is for administrators")
    async def test_checks_permission_before_the_lookup(self, api: Api, make: DataFactory) -> None:
        user = await make.user()

        for key in (user.id, 4711):
            assert (await api.get(f"/users/{key}/keys", user)).status_code == 403
            assert (await api.get(f"/users/{key}/keys")).status_code == 401


class TestGetOwnKey:
    """GET /user/keys/:id"""

    async def test_returns_one_of_the_callers_own(self, api: Api, make: DataFactory) -> None:
        user = await make.user()
        key = await save(make, user)

        response = await api.get(f"/user/keys/{key.id}", user)

        assert (response.status_code, response.json()["id"]) == (200, key.id)

    async def test_does_not_find_those_of_others(self, api: Api, make: DataFactory) -> None:
        key = await save(make, await make.user())

        for viewer in (await make.user(), await make.admin()):
            response = await api.get(f"/user/keys/{key.id}", viewer)
            assert (response.status_code, response.json()) == (404, {"message": "404 Not found"})


class TestAddOwnKey:
    """POST /user/keys"""

    @cites("Errors: 201 for a created key")
    async def test_answers_the_new_key(self, api: Api, make: DataFactory) -> None:
        response = await api.post("/user/keys", await make.user(), title="Laptop", key=KEY)

        assert response.status_code == 201
        assert (response.json()["title"], response.json()["key"]) == ("Laptop", KEY)

    async def test_the_comment_may_have_any_characters(self, api: Api, make: DataFactory) -> None:
        user, key = await make.user(), f"{KEY} José's laptop 💻"

        response = await api.post("/user/keys", user, title="Laptop", key=key)

        assert (response.status_code, response.json()["key"]) == (201, key)
        assert (await api.post("/user/keys", user, title="Other", key=KEY)).json() == TAKEN

    @cites("Errors: 400 for a key that cannot be created")
    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"title": "a"}, '400 (Bad request) "key" not given'),
            ({}, '400 (Bad request) "title" not given'),
            ({"title": "a", "key": "nonsense"}, INVALID["message"]),
            ({"title": "a", "key": f"{KEY}\n{KEY}"}, {"key": ["should be a single line"]}),
        ],
    )
    async def test_answers_400_with_the_reason(self, api: Api, make: DataFactory, params: dict[str, str], message: object) -> None:
        response = await api.post("/user/keys", await make.user(), **params)

        assert (response.status_code, response.json()) == (400, {"message": message})

    @cites("Errors: the message of a wrong key or e-mail maps fields to lists of texts")
    async def test_concurrent_duplicates_succeed_once(self, api: Api, make: DataFactory) -> None:
        user = await make.user()

        responses = await asyncio.gather(*(api.post("/user/keys", user, title="a", key=KEY) for _ in range(32)))

        assert sorted(response.status_code for response in responses) == [201, *[400] * 31]
        assert [response.json() for response in responses if response.status_code == 400] == [TAKEN] * 31


class TestAddKeyToUser:
    """POST /users/:id/keys"""

    @cites("Errors: 201 for a created key")
    async def test_answers_the_new_key(self, api: Api, make: DataFactory) -> None:
        user = await make.user()

        response = await api.post(f"/users/{user.id}/keys", await make.admin(), title="Laptop", key=KEY)

        assert response.status_code == 201
        row = await make.fetch(tables.SshKey, response.json()["id"])
        assert row is not None and row.user_id == user.id

    @cites("Errors: 404 for a key or e-mail of an unknown user")
    async def test_answers_404_for_one_that_cannot_be(self, api: Api, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()

        response = await api.post(f"/users/{user.id}/keys", admin, title="a", key="nonsense")
        assert (response.status_code, response.json()) == (404, INVALID)
        response = await api.post("/users/4711/keys", admin, title="a", key=KEY)
        assert (response.status_code, response.json()) == (404, {"message": "404 Not found"})

    @cites("Authentication: adding keys and e-mails for another is for administrators")
    async def test_requires_an_administrator(self, api: Api, make: DataFactory) -> None:
        user = await make.user()

        for params in ({"title": "a", "key": KEY}, {}):
            for key in (user.id, 4711):
                assert (await api.post(f"/users/{key}/keys", user, **params)).status_code == 403
                assert (await api.post(f"/users/{key}/keys", None, **params)).status_code == 401


class TestDeleteOwnKey:
    """DELETE /user/keys/:id"""

    async def test_answers_the_key_and_then_nothing(self, api: Api, make: DataFactory) -> None:
        user = await make.user()
        key = await save(make, user)

        first, second = [await api.delete(f"/user/keys/{key.id}", user) for _ in range(2)]

        assert (first.status_code, first.json()["title"]) == (200, "Laptop")
        assert (second.status_code, second.text) == (200, "null")

    async def test_keys_of_others_are_not_deleted(self, api: Api, make: DataFactory) -> None:
        key = await save(make, await make.user())

        response = await api.delete(f"/user/keys/{key.id}", await make.admin())

        assert (response.status_code, response.text) == (200, "null")
        assert await make.count(tables.SshKey) == 1

    async def test_concurrent_deletions_answer_200(self, api: Api, make: DataFactory) -> None:
        user = await make.user()
        key = await save(make, user)

        responses = await asyncio.gather(*(api.delete(f"/user/keys/{key.id}", user) for _ in range(32)))

        assert {response.status_code for response in responses} == {200}


class TestDeleteKeyOfUser:
    """DELETE /users/:uid/keys/:id"""

    async def test_answers_the_key(self, api: Api, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()
        key = await save(make, user)

        response = await api.delete(f"/users/{user.id}/keys/{key.id}", admin)

        assert (response.status_code, response.json()["title"]) == (200, "Laptop")

    async def test_a_missing_object_is_named(self, api: Api, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()
        key = await save(make, user)

        response = await api.delete(f"/users/4711/keys/{key.id}", admin)
        assert (response.status_code, response.json()) == (404, {"message": "404 User Not Found"})
        for path in (f"/users/{user.id}/keys/4711", f"/users/{admin.id}/keys/{key.id}"):
            response = await api.delete(path, admin)
            assert (response.status_code, response.json()) == (404, {"message": "404 Key Not Found"})

    @cites("Authentication: deleting another's keys and e-mails is for administrators")
    async def test_requires_an_administrator(self, api: Api, make: DataFactory) -> None:
        user = await make.user()
        key = await save(make, user)

        assert (await api.delete(f"/users/{user.id}/keys/{key.id}", user)).status_code == 403
        assert (await api.delete("/users/4711/keys/4711", user)).status_code == 403
