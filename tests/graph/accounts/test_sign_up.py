"""Sign-up: a visitor creates an account."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from graph.context import Services
from graph.operations.execution import OperationResult
from graph.rules.accounts.failure_limiter import FailureLimiter
from storage import tables
from storage.secrets import Passwords
from tests.make import DataFactory
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

SIGN_UP = """mutation ($input: SignUpInput!) { signUp(input: $input) {
    user { databaseId username name email isAdmin canCreateGroup projectsLimit confirmed state privateToken }
    userErrors { field message code } } }"""
ADA = {"username": "Ada", "email": "Ada@Example.org", "name": " Ada Lovelace ", "password": "correct horse"}


class FixedClock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def services(services: Services, clock: FixedClock) -> Services:
    return replace(services, sign_ups=FailureLimiter(max_failures=40, clock=clock))


def sign_up_payload(outcome: OperationResult) -> dict[str, Any]:
    assert outcome.errors == []
    assert outcome.data is not None
    found: dict[str, Any] = outcome.data["signUp"]
    return found


def user_error_codes(outcome: OperationResult) -> list[str]:
    return [str(problem.code) for problem in outcome.errors]


async def test_creates_an_ordinary_account_and_returns_its_token(ask: Ask, make: DataFactory) -> None:
    user = sign_up_payload(await ask(SIGN_UP, input=ADA))["user"]

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
    outcome = await ask.graph.run_document("{ viewer { username } }", None, None, token, request_id="test")
    assert outcome.data == {"viewer": {"username": "Ada"}}


async def test_lets_the_user_sign_in_with_the_password(ask: Ask) -> None:
    token = sign_up_payload(await ask(SIGN_UP, input=ADA))["user"]["privateToken"]

    signed = await ask.data('mutation { signIn(input: {login: "ada", password: "correct horse"}) { user { privateToken } } }')

    assert signed["signIn"]["user"]["privateToken"] == token


async def test_creates_a_personal_namespace(ask: Ask) -> None:
    token = sign_up_payload(await ask(SIGN_UP, input=ADA))["user"]["privateToken"]
    create = 'mutation { createProject(input: {name: "Engine"}) { project { fullPath } userErrors { message } } }'

    outcome = await ask.graph.run_document(create, None, None, token, request_id="test")

    assert outcome.data == {"createProject": {"project": {"fullPath": "Ada/engine"}, "userErrors": []}}


@pytest.mark.parametrize(
    ("changes", "field", "code"),
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
async def test_validates_as_user_creation_does(ask: Ask, make: DataFactory, changes: dict[str, str], field: str, code: str) -> None:
    taken = await make.user("taken")
    await make.save(tables.Email(user_id=taken.id, email="second@example.org"))
    await make.group(path="tools")

    found = sign_up_payload(await ask(SIGN_UP, input={**ADA, **changes}))

    assert found["user"] is None
    assert [(error["field"], error["code"]) for error in found["userErrors"]] == [(field, code)]
    assert await make.count(tables.User) == 1


@pytest.mark.parametrize("word", ["admin: true", "projectsLimit: 1000", "canCreateGroup: true", "confirm: false", 'externUid: "x"'])
async def test_ignores_administrator_fields(ask: Ask, make: DataFactory, word: str) -> None:
    text = f'mutation {{ signUp(input: {{username: "a", email: "a@b.c", name: "A", password: "12345678", {word}}}) {{ user {{ id }} }} }}'

    assert user_error_codes(await ask(text)) == ["BAD_REQUEST"]
    assert await make.count(tables.User) == 0


async def test_can_be_disabled(ask: Ask, make: DataFactory, statements: StatementRecorder) -> None:
    await make.settings(signup_enabled=False)

    with statements.record() as seen:
        assert user_error_codes(await ask(SIGN_UP, input=ADA)) == ["FORBIDDEN"]

    assert {statement.split()[0] for statement in seen} == {"SELECT"}
    # A signed-in viewer uses createUser, if allowed.
    assert user_error_codes(await ask(SIGN_UP, await make.admin(), input=ADA)) == ["FORBIDDEN"]


async def test_is_for_the_domains_of_the_instance(ask: Ask, make: DataFactory) -> None:
    await make.settings(restricted_signup_domains=["*.corp.example"], default_projects_limit=2)

    refused = sign_up_payload(await ask(SIGN_UP, input=ADA))
    user = sign_up_payload(await ask(SIGN_UP, input={**ADA, "email": "ada@it.corp.example"}))["user"]

    assert [(error["field"], error["code"]) for error in refused["userErrors"]] == [("email", "INVALID")]
    assert user["projectsLimit"] == 2


async def test_stands_alone_in_its_operation(ask: Ask) -> None:
    text = f"mutation {{ signUp(input: {{{_literal()}}}) {{ user {{ id }} }} __typename }}"

    assert user_error_codes(await ask(text)) == ["UNAUTHENTICATED"]


def _literal() -> str:
    return ", ".join(f'{key}: "{value}"' for key, value in ADA.items())


async def test_throttles_anonymous_callers_globally(ask: Ask, make: DataFactory, clock: FixedClock) -> None:
    await make.user("taken")
    for _ in range(40):
        sign_up_payload(await ask(SIGN_UP, input={**ADA, "username": "taken"}))

    outcome = await ask(SIGN_UP, input=ADA)
    assert [(str(problem.code), problem.retry_after) for problem in outcome.errors] == [("LIMIT_EXCEEDED", 60)]
    clock.now += 61
    assert sign_up_payload(await ask(SIGN_UP, input=ADA))["user"] is not None


@pytest.mark.parametrize("same", ["username", "email"])
async def test_concurrent_duplicates_succeed_once(ask: Ask, make: DataFactory, same: str) -> None:
    def person(number: int) -> dict[str, str]:
        other = {"username": f"user{number}", "email": f"user{number}@example.org"}
        return {**ADA, **other, same: ADA[same]}

    outcomes = await asyncio.gather(*(ask(SIGN_UP, input=person(number)) for number in range(32)))

    errors = [tuple((error["field"], error["code"]) for error in sign_up_payload(outcome)["userErrors"]) for outcome in outcomes]
    assert Counter(errors) == {(): 1, ((same, "TAKEN"),): 31}
    assert await make.count(tables.User) == 1


async def test_hashing_does_not_block_writers(ask: Ask, make: DataFactory, services: Services) -> None:
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

    assert sign_up_payload(await signing)["userErrors"] == []
