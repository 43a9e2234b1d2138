"""The section Users of the interface document: e-mail addresses."""

import asyncio

import pytest

from storage import tables
from tests.make import DataFactory
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api

TAKEN = {"message": {"email": ["has already been taken"]}}


async def save(make: DataFactory, user: tables.User, email: str = "second@example.org") -> tables.Email:
    row = tables.Email(user_id=user.id, email=email)
    await make.save(row)
    return row


class TestListOwnEmails:
    """GET /user/emails"""

    async def test_returns_the_addresses_beside_the_primary_one(self, api: Api, make: DataFactory) -> None:
        user = await make.user()
        row = await save(make, user)

        response = await api.get("/user/emails", user)

        assert (response.status_code, response.json()) == (200, [{"id": row.id, "email": "second@example.org"}])
        assert (await api.get("/user/emails")).status_code == 401


class TestListEmailsOfUser:
    """GET /users/:uid/emails"""

    async def test_requires_an_administrator(self, api: Api, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()
        await save(make, user)

        assert [email["email"] for email in (await api.get(f"/users/{user.id}/emails", admin)).json()] == ["second@example.org"]
        response = await api.get("/users/4711/emails", admin)
        assert (response.status_code, response.json()) == (404, {"message": "404 User Not Found"})

    @cites("Authentication: listing another's keys and e-mails is for administrators")
    async def test_checks_permission_before_the_lookup(self, api: Api, make: DataFactory) -> None:
        user = await make.user()

        for key in (user.id, 4711):
            assert (await api.get(f"/users/{key}/emails", user)).status_code == 403


class TestGetOwnEmail:
    """GET /user/emails/:id"""

    async def test_returns_only_the_callers_own(self, api: Api, make: DataFactory) -> None:
        user = await make.user()
        row = await save(make, user)

        assert (await api.get(f"/user/emails/{row.id}", user)).json() == {"id": row.id, "email": "second@example.org"}
        for key, viewer in ((row.id, await make.admin()), (4711, user), (row.id - 1, user)):
            response = await api.get(f"/user/emails/{key}", viewer)
            assert (response.status_code, response.json()) == (404, {"message": "404 Not found"})


class TestAddOwnEmail:
    """POST /user/emails"""

    @cites("Errors: 201 for a created e-mail")
    async def test_answers_the_new_address(self, api: Api, make: DataFactory) -> None:
        response = await api.post("/user/emails", await make.user(), email="Second@Example.org")

        assert (response.status_code, response.json()["email"]) == (201, "second@example.org")

    @cites("Errors: 400 for an e-mail that cannot be created", "Errors: the message of a wrong key or e-mail maps fields to lists of texts")
    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({}, '400 (Bad request) "email" not given'),
            ({"email": "nonsense"}, {"email": ["is invalid"]}),
            ({"email": "TAKEN@example.org"}, {"email": ["has already been taken"]}),
        ],
    )
    async def test_answers_400_with_the_reason(self, api: Api, make: DataFactory, params: dict[str, str], message: object) -> None:
        await make.user("taken")

        response = await api.post("/user/emails", await make.user(), **params)

        assert (response.status_code, response.json()) == (400, {"message": message})

    async def test_concurrent_duplicates_succeed_once(self, api: Api, make: DataFactory) -> None:
        user = await make.user()

        responses = await asyncio.gather(*(api.post("/user/emails", user, email="a@example.org") for _ in range(32)))

        assert sorted(response.status_code for response in responses) == [201, *[400] * 31]
        assert [response.json() for response in responses if response.status_code == 400] == [TAKEN] * 31


class TestAddEmailToUser:
    """POST /users/:id/emails"""

    @cites("Errors: 201 for a created e-mail")
    async def test_answers_the_new_address(self, api: Api, make: DataFactory) -> None:
        user = await make.user()

        response = await api.post(f"/users/{user.id}/emails", await make.admin(), email="a@example.org")

        assert response.status_code == 201
        row = await make.fetch(tables.Email, response.json()["id"])
        assert row is not None and row.user_id == user.id

    @cites("Errors: 404 for a key or e-mail of an unknown user")
    async def test_answers_404_for_every_failure(self, api: Api, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()

        response = await api.post(f"/users/{user.id}/emails", admin, email=admin.email)
        assert (response.status_code, response.json()) == (404, TAKEN)
        response = await api.post("/users/4711/emails", admin, email="a@example.org")
        assert (response.status_code, response.json()) == (404, {"message": "404 Not found"})

    @cites("Authentication: adding keys and e-mails for another is for administrators")
    async def test_requires_an_administrator(self, api: Api, make: DataFactory) -> None:
        user = await make.user()

        assert (await api.post(f"/users/{user.id}/emails", user, email="a@example.org")).status_code == 403
        assert (await api.post("/users/4711/emails", user)).status_code == 403


class TestDeleteOwnEmail:
    """DELETE /user/emails/:id"""

    async def test_answers_nothing_twice(self, api: Api, make: DataFactory) -> None:
        user = await make.user()
        row = await save(make, user)

        for _ in range(2):
            response = await api.delete(f"/user/emails/{row.id}", user)
            assert (response.status_code, response.text) == (200, "null")
        assert await make.count(tables.Email) == 1

    async def test_emails_of_others_and_the_primary_are_not_deleted(self, api: Api, make: DataFactory) -> None:
        user = await make.user()
        row = await save(make, await make.user())

        for key in (row.id, 1):
            assert (await api.delete(f"/user/emails/{key}", user)).status_code == 200
        assert await make.count(tables.Email) == 3


class TestDeleteEmailOfUser:
    """DELETE /users/:uid/emails/:id"""

    async def test_answers_nothing(self, api: Api, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()
        row = await save(make, user)

        response = await api.delete(f"/users/{user.id}/emails/{row.id}", admin)

        assert (response.status_code, response.text) == (200, "null")

    async def test_a_missing_object_is_named(self, api: Api, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()
        row = await save(make, user)

        response = await api.delete(f"/users/4711/emails/{row.id}", admin)
        assert (response.status_code, response.json()) == (404, {"message": "404 User Not Found"})
        for path in (f"/users/{user.id}/emails/4711", f"/users/{admin.id}/emails/{row.id}", f"/users/{user.id}/emails/1"):
            response = await api.delete(path, admin)
            assert (response.status_code, response.json()) == (404, {"message": "404 Email Not Found"})

    @cites("Authentication: deleting another's keys and e-mails is for administrators")
    async def test_requires_an_administrator(self, api: Api, make: DataFactory) -> None:
        user = await make.user()
        row = await save(make, user)

        assert (await api.delete(f"/users/{user.id}/emails/{row.id}", user)).status_code == 403
        assert (await api.delete("/users/4711/emails/4711", user)).status_code == 403
