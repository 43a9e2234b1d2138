"""Signing in with OpenID Connect through the graph, at npm's oidc-provider and at a provider of the tests."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from graph.context import Services
from graph.identity_providers.openid_provider import OpenIdOptions, OpenIdProvider
from graph.identity_providers.people import AccountPolicy, GroupGrant, GroupMapping
from graph.operations.execution import OperationResult
from graph.rules.accounts.failure_limiter import FailureLimiter
from storage import tables
from storage.tables import AccessLevel, UserState
from tests.graph.identity_providers.test_openid_provider import ISSUER, FakeProvider
from tests.make import EXTERNAL_URL, DataFactory, token_of
from tests.support.api_clients import Ask
from tests.support.servers.oidc_provider import CLIENT_ID, CLIENT_SECRET, run_oidc_provider

BEGIN = "{ openIdSignIn { authorizationUrl ticket } }"
FRONT = "{ frontPage { directoryEnabled openIdLabel openIdSignOutUrl } }"
FINISH = """mutation ($ticket: String!, $state: String!, $code: String!, $issuer: String) {
    finishOpenIdSignIn(input: {ticket: $ticket, state: $state, code: $code, issuer: $issuer}) {
        user { username name email provider externUid confirmed privateToken } userErrors { code } } }"""
REDIRECT = f"{EXTERNAL_URL}/-/sign_in"
DEVS = AccountPolicy(GroupMapping((GroupGrant("tools", AccessLevel.DEVELOPER, "devs"),)), matches_email=True)


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with run_oidc_provider(REDIRECT) as issuer:
        yield issuer


class TestAtOidcProvider:
    """The whole flow at a real provider, whose pages a client of HTTP answers."""

    @pytest.fixture
    async def services(self, services: Services, issuer: str) -> AsyncIterator[Services]:
        options = OpenIdOptions(
            issuer, CLIENT_ID, CLIENT_SECRET, label="Example", scopes=("openid", "profile", "email", "groups"), policy=DEVS
        )
        provider = OpenIdProvider(options)
        yield replace(services, openid_provider=provider, sign_in_failures=FailureLimiter())
        await provider.close()

    async def test_makes_an_account_and_finds_it_again(self, ask: Ask, make: DataFactory, issuer: str) -> None:
        tools = await make.group(path="tools")
        begun, parameters = await self.sign_in_at_provider(ask, "ada")
        assert parameters.pop("iss") == issuer
        finished = {"ticket": begun["ticket"], **parameters}
        signed = (await ask.data(FINISH, **finished, issuer=issuer))["finishOpenIdSignIn"]["user"]
        assert len(signed.pop("privateToken")) == 20
        assert signed == {
            "username": "ada",
            "name": "ADA",
            "email": "ada@example.org",
            "provider": "openid_connect",
            "externUid": "ada",
            "confirmed": True,
        }
        members = "query($path: ID!) { group(path: $path) { members { nodes { user { username } accessLevel } } } }"
        shown = await ask.data(members.replace("ID!", "String!"), await make.admin(), path=tools.path)
        assert shown["group"]["members"]["nodes"] == [{"user": {"username": "ada"}, "accessLevel": "DEVELOPER"}]
        # A code is valid once.
        assert await ask.codes(FINISH, **finished) == ["UNAUTHENTICATED"]
        begun, parameters = await self.sign_in_at_provider(ask, "ada")
        again = (await ask.data(FINISH, ticket=begun["ticket"], state=parameters["state"], code=parameters["code"]))["finishOpenIdSignIn"]
        assert again["user"]["username"] == "ada"
        sign_out = (await ask.data(FRONT))["frontPage"]
        assert sign_out["openIdLabel"] == "Example" and sign_out["openIdSignOutUrl"].startswith(
            f"{issuer}/session/end?client_id=forgefront&"
        )

    async def test_refuses_the_code_of_another_sign_in(self, ask: Ask) -> None:
        """PKCE: a code that somebody has stolen, or has sent to a victim, is useless with another ticket."""
        mine, _ = await self.sign_in_at_provider(ask, "eve")
        state = dict(parse_qsl(urlsplit(mine["authorizationUrl"]).query))["state"]
        _, theirs = await self.sign_in_at_provider(ask, "ada")
        assert await ask.codes(FINISH, ticket=mine["ticket"], state=state, code=theirs["code"]) == ["UNAUTHENTICATED"]
        assert await ask.codes(FINISH, ticket=mine["ticket"], state=theirs["state"], code=theirs["code"]) == ["UNAUTHENTICATED"]

    async def sign_in_at_provider(self, ask: Ask, name: str) -> tuple[dict[str, Any], dict[str, str]]:
        """What the page received at the start, and the parameters with which the provider sends the browser back."""
        begun = (await ask.data(BEGIN))["openIdSignIn"]
        async with httpx.AsyncClient() as browser:
            response = await browser.get(begun["authorizationUrl"])
            for _ in range(12):
                if response.is_redirect:
                    location = str(response.url.join(response.headers["location"]))
                    if location.startswith(REDIRECT):
                        return begun, dict(parse_qsl(urlsplit(location).query))
                    response = await browser.get(location)
                    continue
                action, prompt = re.search(r'action="([^"]+)"', response.text), re.search(r'name="prompt" value="(\w+)"', response.text)
                assert action is not None and prompt is not None, response.text
                form = {"prompt": prompt[1], **({"login": name, "password": "x"} if prompt[1] == "login" else {})}
                response = await browser.post(str(response.url.join(action[1])), data=form)
        raise AssertionError("the provider does not send the browser back")


class TestAtAnyProvider:
    @pytest.fixture
    def fake(self) -> FakeProvider:
        fake = FakeProvider()
        fake.claims = {"exp": 4_000_000_000, "email": "ada@example.org", "email_verified": True, "name": "Ada", "groups": []}
        return fake

    @pytest.fixture
    async def services(self, services: Services, fake: FakeProvider) -> AsyncIterator[Services]:
        provider = OpenIdProvider(OpenIdOptions(ISSUER, "forge", policy=DEVS), transport=httpx.MockTransport(fake))
        yield replace(services, openid_provider=provider, sign_in_failures=FailureLimiter())
        await provider.close()

    async def finish(self, ask: Ask, fake: FakeProvider, **changes: str) -> OperationResult:
        begun = (await ask.data(BEGIN))["openIdSignIn"]
        query = dict(parse_qsl(urlsplit(begun["authorizationUrl"]).query))
        fake.claims["nonce"] = query["nonce"]
        return await ask(FINISH, **{"ticket": begun["ticket"], "state": query["state"], "code": "c", **changes})

    async def test_matches_imported_identities_and_verified_addresses_only(self, ask: Ask, make: DataFactory, fake: FakeProvider) -> None:
        await make.user("imported", provider="openid_connect", extern_uid="S-1")
        imported = await make.user("lovelace", provider="openid_connect", extern_uid="s-1")
        outcome = await self.finish(ask, fake)
        user = (outcome.data or {})["finishOpenIdSignIn"]["user"]
        assert (user["username"], user["privateToken"]) == ("lovelace", token_of(imported))
        ldap = await make.user("bob", email="bob@example.org", provider="ldapmain", extern_uid="uid=bob")
        await make.user("eve", email="eve@example.org", confirmed=False)
        names = {}
        for subject, address, verified in (
            ("s-2", "bob@example.org", False),
            ("s-3", "eve@example.org", True),
            ("s-4", "Bob@Example.org", "true"),
            ("s-5", "BOB@example.org", True),
            ("s-6", None, True),
            ("s-7", "not an address", True),
        ):
            fake.claims |= {"sub": subject, "email": address, "email_verified": verified}
            fake.userinfo = {"sub": subject}
            outcome = await self.finish(ask, fake)
            names[subject] = outcome.errors[0].code if outcome.errors else (outcome.data or {})["finishOpenIdSignIn"]["user"]["username"]
        refused = dict.fromkeys(("s-2", "s-3", "s-4", "s-6", "s-7"), "FORBIDDEN")
        assert names == {**refused, "s-5": "bob"}
        # The account has both identities now.
        assert {row.provider for row in await self.identities(make, ldap.id)} == {"ldapmain", "openid_connect"}

    async def test_rejects_tickets_that_are_not_its_own(self, ask: Ask, make: DataFactory, fake: FakeProvider, services: Services) -> None:
        cipher = services.cipher
        begun = (await ask.data(BEGIN))["openIdSignIn"]
        content = json.loads(cipher.decrypt(begun["ticket"]))
        state = content["state"]
        expired = {**content, "expires_at": (services.clock() - timedelta(seconds=1)).timestamp()}
        tickets = [
            *("", "x", "y" * 5000, begun["ticket"][:-4] + "AAAA"),
            *(cipher.encrypt(text) for text in ("token", "[]", "1", json.dumps({**content, "kind": "other"}), json.dumps(expired))),
        ]
        for ticket in tickets:
            assert await ask.codes(FINISH, ticket=ticket, state=state, code="c") == ["UNAUTHENTICATED"], ticket[:20]
        assert await ask.codes(FINISH, ticket=begun["ticket"], state=f"{state}x", code="c") == ["UNAUTHENTICATED"]
        assert [path for path in fake.paths() if path == "/token"] == []
        fake.responses["/token"] = httpx.Response(400, json={"error": "invalid_grant"})
        codes = [(await ask.codes(FINISH, ticket=begun["ticket"], state=state, code="c"))[0] for _ in range(11)]
        assert codes == ["UNAUTHENTICATED"] * 10 + ["LIMIT_EXCEEDED"]

    async def test_reports_a_blocked_account_and_a_provider_that_is_down(self, ask: Ask, make: DataFactory, fake: FakeProvider) -> None:
        await make.user("ada", provider="openid_connect", extern_uid="s-1", state=UserState.BLOCKED)
        outcome = await self.finish(ask, fake)
        assert [(str(error.code), error.message) for error in outcome.errors] == [
            ("UNAUTHENTICATED", "This account is blocked. Ask an administrator.")
        ]
        fake.responses["/token"] = httpx.Response(200, text="<html>")
        outcome = await self.finish(ask, fake)
        assert str(outcome.errors[0].code) == "UNAVAILABLE" and "OpenID Connect cannot be reached" in outcome.errors[0].message
        assert (await make.fetch(tables.User, 1)) is not None

    async def test_makes_one_account_of_concurrent_sign_ins(self, ask: Ask, make: DataFactory, fake: FakeProvider) -> None:
        outcomes = await asyncio.gather(self.finish(ask, fake), self.finish(ask, fake))
        assert all(not outcome.errors or str(outcome.errors[0].code) in ("UNAVAILABLE", "UNAUTHENTICATED") for outcome in outcomes)
        assert await make.count(tables.Identity) == 1

    async def identities(self, make: DataFactory, user_id: int) -> list[tables.Identity]:
        from sqlalchemy import select

        async with make.services.database.read_session() as session:
            return [row[0] for row in await session.read(select(tables.Identity).where(tables.Identity.user_id == user_id))]


async def test_is_not_found_without_a_provider(ask: Ask) -> None:
    assert await ask.codes(BEGIN) == ["NOT_FOUND"]
    assert await ask.data(FRONT) == {"frontPage": {"directoryEnabled": False, "openIdLabel": None, "openIdSignOutUrl": None}}
