"""Links with which people sign in once."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from graph.context import Services
from storage import tables
from storage.secrets import digest_token
from storage.tables import UserState
from tests.make import DataFactory, token_of
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

CREATE = """mutation ($id: Int, $hours: Int) { createSignInLink(input: {databaseId: $id, expiresInHours: $hours}) {
    link { url expiresAt user { username } } userErrors { field message code } } }"""
SIGN_IN = """mutation ($code: String!, $password: String) { signInByLink(input: {code: $code, password: $password}) {
    user { username privateToken currentSignInAt } userErrors { field code } } }"""
PASSWORD_SIGN_IN = 'mutation { signIn(input: {login: "ada", password: "correct horse"}) { user { username } userErrors { code } } }'
START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def services(services: Services, clock: Clock) -> Services:
    return replace(services, clock=clock)


async def create_code(ask: Ask, admin: tables.User, user: tables.User, **variables: Any) -> str:
    link = (await ask.data(CREATE, admin, id=user.id, **variables))["createSignInLink"]["link"]
    return str(link["url"]).partition("#link=")[2]


async def stored_digests(make: DataFactory) -> list[str]:
    async with make.services.database.read_session() as session:
        return [row[0] for row in await session.read(select(tables.SignInLink.digest))]


class TestSignInLinks:
    async def test_sign_in_once_and_set_a_password(self, ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
        admin, ada = await make.admin(), await make.user("ada")
        shown = (await ask.data(CREATE, admin, id=ada.id))["createSignInLink"]["link"]
        assert shown["user"] == {"username": "ada"} and shown["expiresAt"] == "2026-01-04T00:00:00.000000Z"
        base, _, code = shown["url"].partition("#link=")
        assert base == f"{make.services.external_url}/-/sign_in" and len(code) == 43
        assert await stored_digests(make) == [digest_token(code)]
        assert await ask.codes(SIGN_IN, code=code, password="short") == ["INVALID"]

        with statements.assert_at_most(9):
            signed = (await ask.data(SIGN_IN, code=code, password="correct horse"))["signInByLink"]["user"]

        assert signed == {"username": "ada", "privateToken": token_of(ada), "currentSignInAt": "2026-01-01T00:00:00.000000Z"}
        assert (await ask.data(PASSWORD_SIGN_IN))["signIn"]["user"] == {"username": "ada"}
        assert await ask.codes(SIGN_IN, code=code) == ["UNAUTHENTICATED"]
        assert await stored_digests(make) == []

    async def test_that_are_invalid_all_answer_the_same(self, ask: Ask, make: DataFactory, clock: Clock) -> None:
        admin, ada, bob, eve = await make.admin(), await make.user("ada"), await make.user("bob"), await make.user("eve")
        older = await create_code(ask, admin, ada)
        newer = await create_code(ask, admin, ada, hours=1)
        blocked, deleted = await create_code(ask, admin, bob), await create_code(ask, admin, eve)
        await ask.data("mutation($id: Int) { blockUser(input: {databaseId: $id}) { userErrors { code } } }", admin, id=bob.id)
        await ask.data("mutation($id: Int) { deleteUser(input: {databaseId: $id}) { userErrors { code } } }", admin, id=eve.id)
        clock.now += timedelta(hours=1)

        outcomes = [await ask(SIGN_IN, code=code) for code in (older, newer, blocked, deleted, "", "x" * 5000, newer[:-1], "ada")]

        assert {tuple((str(error.code), error.message) for error in outcome.errors) for outcome in outcomes} == {
            (("UNAUTHENTICATED", "The link is not valid: it was used, has expired, or is incomplete. Ask an administrator for a new one."),)
        }
        # Expired links of everybody are deleted with the next one.
        await create_code(ask, admin, ada)
        assert len(await stored_digests(make)) == 2

    async def test_are_made_by_administrators_for_active_users(self, ask: Ask, make: DataFactory) -> None:
        admin, ada, blocked = await make.admin(), await make.user("ada"), await make.user("bob", state=UserState.BLOCKED)
        assert await ask.codes(CREATE, ada, id=ada.id) == ["FORBIDDEN"]
        assert await ask.codes(CREATE, admin, id=blocked.id) == ["NOT_ALLOWED"]
        assert await ask.codes(CREATE, admin, id=99_999) == ["NOT_FOUND"]
        for hours in (0, -1, 721):
            payload = (await ask.data(CREATE, admin, id=ada.id, hours=hours))["createSignInLink"]
            assert [(error["field"], error["code"]) for error in payload["userErrors"]] == [("expiresInHours", "INVALID")]
        assert await stored_digests(make) == []
