"""POST /session, which the interface document lacks and clients of the time use to sign in (docs/wire-facts.md 1.4)."""

from dataclasses import replace
from typing import Any

import pytest
from argon2 import PasswordHasher

from graph.context import Services
from storage import tables
from storage.secrets import Passwords
from storage.tables import UserState
from tests.make import DataFactory, token_of
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api

PASSWORD = "correct horse"


@pytest.fixture
def services(services: Services) -> Services:
    """Hashes that cost next to nothing."""
    return replace(services, passwords=Passwords(PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)))


@pytest.fixture
async def ada(make: DataFactory, services: Services) -> tables.User:
    return await make.user("ada", password_hash=await services.passwords.hash(PASSWORD))


@cites("Authentication: a password gives the token")
@pytest.mark.parametrize("named", [{"login": "ada"}, {"email": "ada@example.org"}, {"login": "ADA@example.org"}, {"email": "ada"}])
async def test_answers_the_user_with_the_token(api: Api, ada: tables.User, named: dict[str, str]) -> None:
    response = await api.post("/session", None, **named, password=PASSWORD)

    assert response.status_code == 201
    assert response.json()["private_token"] == token_of(ada)
    assert response.headers["Cache-Control"] == "no-store"


async def test_accepts_a_form(api: Api, ada: tables.User) -> None:
    assert (await api.request("POST", "/session", data={"login": "ada", "password": PASSWORD})).status_code == 201


@pytest.mark.parametrize(
    "params",
    [
        {"login": "ada", "password": "wrong"},
        {"login": "nobody", "password": PASSWORD},
        {"login": "ada"},
        {"password": PASSWORD},
        {},
        {"login": "ada", "password": [PASSWORD]},
        {"login": {"name": "ada"}, "password": PASSWORD},
        {"login": "ada\0", "password": PASSWORD},
        {"login": True, "password": "\0"},
    ],
)
async def test_all_failures_look_the_same(api: Api, ada: tables.User, params: dict[str, Any]) -> None:
    response = await api.post("/session", None, **params)

    assert (response.status_code, response.json()) == (401, {"message": "401 Unauthorized"})


async def test_rejects_a_blocked_user(api: Api, make: DataFactory, services: Services) -> None:
    await make.user("bob", state=UserState.BLOCKED, password_hash=await services.passwords.hash(PASSWORD))

    assert (await api.post("/session", None, login="bob", password=PASSWORD)).status_code == 401


@cites("Limits: guessing passwords is throttled")
async def test_throttles_failures(api: Api, ada: tables.User) -> None:
    for _ in range(10):
        assert (await api.post("/session", None, login="ada", password="wrong")).status_code == 401

    response = await api.post("/session", None, login="ada", password=PASSWORD)

    assert (response.status_code, response.json()) == (429, {"message": "429 Too Many Requests"})
    assert 1 <= int(response.headers["Retry-After"]) <= 60
