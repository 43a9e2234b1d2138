"""Opening an account for oneself."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from graph.context import Services
from graph.execute import Outcome
from graph.rules.throttling import Failures
from storage import tables
from storage.secrets import Passwords
from tests.forge import Ask
from tests.make import Make
from tests.statements import Statements

SIGN_UP = """mutation ($input: SignUpInput!) { signUp(input: $input) {
    user { databaseId username name email isAdmin canCreateGroup projectsLimit confirmed state privateToken }
    userErrors { field message code } } }"""
ADA = {"username": "Ada", "email": "Ada@Example.org", "name": " Ada Lovelace ", "password": "correct horse"}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def services(services: Services, clock: Clock) -> Services:
    return replace(services, sign_ups=Failures(most=40, clock=clock))


def payload(outcome: Outcome) -> dict[str, Any]:
    assert outcome.errors == []
    assert outcome.data is not None
    found: dict[str, Any] = outcome.data["signUp"]
    return found


def codes(outcome: Outcome) -> list[str]:
    return [str(problem.code) for problem in outcome.errors]


async def test_opens_an_ordinary_account_and_gives_its_token(ask: Ask, make: Make) -> None:
    user = payload(await ask(SIGN_UP, input=ADA))["user"]

    token = user.pop("privateToken")
    assert user == {
        "databaseId": user["databaseId"],
        "username": "Ada",
        "name": "Ada Lovelace",
        "email": "ada@example.org",
        "isAdmin": False,
        "canCreateGroup": True,
        "projectsLimit": 10,
        "confirmed": False,
        "state": "ACTIVE",
    }
    outcome = await ask.graph.run_text("{ viewer { username } }", None, None, token, request_id="test")
    assert outcome.data == {"viewer": {"username": "Ada"}}


async def test_lets_the_user_sign_in_with_the_password(ask: Ask) -> None:
    token = payload(await ask(SIGN_UP, input=ADA))["user"]["privateToken"]

    signed = await ask.data('mutation { signIn(input: {login: "ada", password: "correct horse"}) { user { privateToken } } }')

    assert signed["signIn"]["user"]["privateToken"] == token


async def test_gives_a_personal_namespace(ask: Ask) -> None:
    token = payload(await ask(SIGN_UP, input=ADA))["user"]["privateToken"]
    create = 'mutation { createProject(input: {name: "Engine"}) { project { fullPath } userErrors { message } } }'

    outcome = await ask.graph.run_text(create, None, None, token, request_id="test")

    assert outcome.data == {"createProject": {"project": {"fullPath": "Ada/engine"}, "userErrors": []}}


@pytest.mark.parametrize(
    ("given", "field", "code"),
    [
        ({"password": "1234567"}, "password", "INVALID"),
        ({"password": ""}, "password", "INVALID"),
        ({"password": "x" * 129}, "password", "INVALID"),
        ({"username": "admin"}, "username", "INVALID"),
        ({"username": "-x"}, "username", "INVALID"),
        ({"username": "123"}, "username", "INVALID"),
        ({"username": " "}, "username", "REQUIRED"),
        ({"username": "TAKEN"}, "username", "TAKEN"),
        ({"username": "Tools"}, "username", "TAKEN"),
        ({"email": "TAKEN@example.org"}, "email", "TAKEN"),
        ({"email": "second@example.org"}, "email", "TAKEN"),
        ({"email": "ada"}, "email", "INVALID"),
        ({"name": ""}, "name", "REQUIRED"),
    ],
)
async def test_holds_to_the_rules_of_accounts(ask: Ask, make: Make, given: dict[str, str], field: str, code: str) -> None:
    taken = await make.user("taken")
    await make.save(tables.Email(user_id=taken.id, email="second@example.org"))
    await make.group(path="tools")

    found = payload(await ask(SIGN_UP, input={**ADA, **given}))

    assert found["user"] is None
    assert [(error["field"], error["code"]) for error in found["userErrors"]] == [(field, code)]
    assert await make.count(tables.User) == 1


@pytest.mark.parametrize("word", ["admin: true", "projectsLimit: 1000", "canCreateGroup: true", "confirm: false", 'externUid: "x"'])
async def test_takes_nothing_that_is_not_for_the_user_to_say(ask: Ask, make: Make, word: str) -> None:
    text = f'mutation {{ signUp(input: {{username: "a", email: "a@b.c", name: "A", password: "12345678", {word}}}) {{ user {{ id }} }} }}'

    assert codes(await ask(text)) == ["BAD_REQUEST"]
    assert await make.count(tables.User) == 0


async def test_can_be_switched_off(ask: Ask, make: Make, statements: Statements) -> None:
    await make.settings(signup_enabled=False)

    with statements.counted() as seen:
        assert codes(await ask(SIGN_UP, input=ADA)) == ["FORBIDDEN"]

    assert {statement.split()[0] for statement in seen} == {"SELECT"}
    # Whoever is signed in has createUser, or nothing.
    assert codes(await ask(SIGN_UP, await make.admin(), input=ADA)) == ["FORBIDDEN"]


async def test_is_for_the_domains_of_the_instance(ask: Ask, make: Make) -> None:
    await make.settings(restricted_signup_domains=["*.corp.example"], default_projects_limit=2)

    refused = payload(await ask(SIGN_UP, input=ADA))
    user = payload(await ask(SIGN_UP, input={**ADA, "email": "ada@it.corp.example"}))["user"]

    assert [(error["field"], error["code"]) for error in refused["userErrors"]] == [("email", "INVALID")]
    assert user["projectsLimit"] == 2


async def test_stands_alone_in_its_operation(ask: Ask) -> None:
    text = f"mutation {{ signUp(input: {{{_literal()}}}) {{ user {{ id }} }} __typename }}"

    assert codes(await ask(text)) == ["UNAUTHENTICATED"]


def _literal() -> str:
    return ", ".join(f'{key}: "{value}"' for key, value in ADA.items())


async def test_throttles_strangers_all_together(ask: Ask, make: Make, clock: Clock) -> None:
    await make.user("taken")
    for _ in range(40):
        payload(await ask(SIGN_UP, input={**ADA, "username": "taken"}))

    outcome = await ask(SIGN_UP, input=ADA)
    assert [(str(problem.code), problem.retry_after) for problem in outcome.errors] == [("LIMIT_EXCEEDED", 60)]
    clock.now += 61
    assert payload(await ask(SIGN_UP, input=ADA))["user"] is not None


@pytest.mark.parametrize("same", ["username", "email"])
async def test_lets_one_of_many_at_once_win(ask: Ask, make: Make, same: str) -> None:
    def person(number: int) -> dict[str, str]:
        other = {"username": f"user{number}", "email": f"user{number}@example.org"}
        return {**ADA, **other, same: ADA[same]}

    outcomes = await asyncio.gather(*(ask(SIGN_UP, input=person(number)) for number in range(32)))

    errors = [tuple((error["field"], error["code"]) for error in payload(outcome)["userErrors"]) for outcome in outcomes]
    assert Counter(errors) == {(): 1, ((same, "TAKEN"),): 31}
    assert await make.count(tables.User) == 1


async def test_holds_up_no_writer_while_it_hashes(ask: Ask, make: Make, services: Services) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Passwords):
        async def hash(self, password: str) -> str:
            began.set()
            await go_on.wait()
            return "hashed"

    slow = Ask(type(ask.graph)(replace(services, passwords=Slow())))
    signing = asyncio.create_task(slow(SIGN_UP, input=ADA))
    await began.wait()
    await asyncio.wait_for(make.user("bob"), 2)
    go_on.set()

    assert payload(await signing)["userErrors"] == []
