"""E-mail addresses through the graph."""

import asyncio
from typing import Any

import pytest

from graph.fields.entities import global_id
from storage import tables
from tests.make import DataFactory
from tests.support.api_clients import Ask

ADD = "mutation ($input: AddEmailInput!) { addEmail(input: $input) { email { databaseId email } userErrors { field message code } } }"
DELETE = "mutation ($input: DeleteEmailInput!) { deleteEmail(input: $input) { email { email } userErrors { code } } }"
OWN = "{ viewer { emails { totalCount nodes { databaseId email isPrimary } } } }"


async def add(ask: Ask, viewer: tables.User, email: str, **more: Any) -> dict[str, Any]:
    payload: dict[str, Any] = (await ask.data(ADD, viewer, input={"email": email, **more}))["addEmail"]
    return payload


class TestAddEmail:
    async def test_stores_the_email_in_lower_case_as_secondary(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user()

        payload = await add(ask, user, " Second@Example.ORG ")

        assert payload["email"]["email"] == "second@example.org"
        assert (await ask.data(OWN, user))["viewer"]["emails"] == {"totalCount": 1, "nodes": [{**payload["email"], "isPrimary": False}]}

    @pytest.mark.parametrize(("email", "message"), [("x", "is invalid"), ("", "can't be blank"), ("a@b@c.org", "is invalid")])
    async def test_reports_each_invalid_value(self, ask: Ask, make: DataFactory, email: str, message: str) -> None:
        payload = await add(ask, await make.user(), email)

        assert [(error["field"], error["message"]) for error in payload["userErrors"]] == [("email", message)]

    async def test_rejects_a_taken_email(self, ask: Ask, make: DataFactory) -> None:
        user, other = await make.user(), await make.user()
        await add(ask, other, "second@example.org")

        for email in (user.email, other.email.upper(), "second@example.org"):
            assert (await add(ask, user, email))["userErrors"] == [{"field": "email", "message": "has already been taken", "code": "TAKEN"}]

    async def test_concurrent_duplicates_succeed_once(self, ask: Ask, make: DataFactory) -> None:
        people = [await make.user() for _ in range(4)]

        payloads = await asyncio.gather(*(add(ask, people[n % 4], "same@example.org") for n in range(32)))

        assert sum(payload["email"] is not None for payload in payloads) == 1
        lost = [payload["userErrors"] for payload in payloads if payload["email"] is None]
        assert lost == [[{"field": "email", "message": "has already been taken", "code": "TAKEN"}]] * 31

    async def test_requires_an_administrator_for_another_user(self, ask: Ask, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()

        assert await ask.codes(ADD, user, input={"email": "a@example.org", "userId": user.id}) == ["FORBIDDEN"]
        assert await ask.codes(ADD, admin, input={"email": "a@example.org", "userId": 4711}) == ["NOT_FOUND"]
        assert (await add(ask, admin, "a@example.org", userId=user.id))["userErrors"] == []
        assert (await ask.data(OWN, user))["viewer"]["emails"]["totalCount"] == 1


class TestReadEmails:
    ANY = "query ($id: Int!) { emails(userId: $id) { nodes { email } } user(databaseId: $id) { emails { nodes { email } } } }"
    ONE = "query ($id: Int!) { viewer { secondaryEmail(databaseId: $id) { email } } }"

    async def test_secondary_emails_are_visible_to_the_owner_and_administrators(self, ask: Ask, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()
        for email in ("a@example.org", "b@example.org"):
            await add(ask, user, email)
        expected = {"nodes": [{"email": "a@example.org"}, {"email": "b@example.org"}]}

        assert await ask.data(self.ANY, admin, id=user.id) == {"emails": expected, "user": {"emails": expected}}
        assert await ask.codes(self.ANY, user, id=user.id) == ["FORBIDDEN"]
        assert set(await ask.codes(self.ANY, await make.user(), id=user.id)) == {"FORBIDDEN"}

    async def test_finds_one_of_the_viewer_s_own(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user()
        key = (await add(ask, user, "a@example.org"))["email"]["databaseId"]

        assert (await ask.data(self.ONE, user, id=key))["viewer"]["secondaryEmail"] == {"email": "a@example.org"}
        assert await ask.codes(self.ONE, await make.admin(), id=key) == ["NOT_FOUND"]

    async def test_is_a_node_for_the_owner_and_administrators(self, ask: Ask, make: DataFactory) -> None:
        user = await make.user()
        key = (await add(ask, user, "a@example.org"))["email"]["databaseId"]
        query = "query ($id: ID!) { node(id: $id) { ... on Email { email } } }"

        assert (await ask.data(query, user, id=global_id("Email", key)))["node"] == {"email": "a@example.org"}
        assert (await ask.data(query, await make.user(), id=global_id("Email", key)))["node"] is None


class TestDeleteEmail:
    async def test_deletes_the_viewers_own(self, ask: Ask, make: DataFactory) -> None:
        user, other = await make.user(), await make.user()
        key = (await add(ask, user, "a@example.org"))["email"]["databaseId"]

        assert await ask.codes(DELETE, other, input={"databaseId": key}) == ["NOT_FOUND"]
        assert (await ask.data(DELETE, user, input={"databaseId": key}))["deleteEmail"]["email"] == {"email": "a@example.org"}
        assert await ask.codes(DELETE, user, input={"databaseId": key}) == ["NOT_FOUND"]
        assert (await add(ask, other, "a@example.org"))["userErrors"] == []

    async def test_rejects_the_primary_email(self, ask: Ask, make: DataFactory) -> None:
        await make.user()
        user = await make.user()

        assert await ask.codes(DELETE, user, input={"databaseId": 2}) == ["NOT_ALLOWED"]
        assert await make.count(tables.Email) == 2

    async def test_administrators_delete_any(self, ask: Ask, make: DataFactory) -> None:
        user, admin = await make.user(), await make.admin()
        key = (await add(ask, user, "a@example.org"))["email"]["databaseId"]

        assert await ask.codes(DELETE, admin, input={"databaseId": key, "userId": admin.id}) == ["NOT_FOUND"]
        assert (await ask.data(DELETE, admin, input={"databaseId": key, "userId": user.id}))["deleteEmail"]["userErrors"] == []
