"""Signing in through the graph."""

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest
from argon2 import PasswordHasher

from graph.context import Services
from graph.operations.execution import OperationResult
from graph.rules.accounts.failure_limiter import FailureLimiter
from storage import tables
from storage.secrets import MAX_WAITING_PASSWORDS, Passwords
from storage.tables import UserState
from tests.make import DataFactory, token_of
from tests.support.api_clients import Ask
from tests.support.database.statements import StatementRecorder

SIGN_IN = """mutation ($login: String!, $password: String!) { signIn(input: {login: $login, password: $password}) {
    user { username email privateToken currentSignInAt } userErrors { code } } }"""
PASSWORD = "correct horse"


class FixedClock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def services(services: Services, clock: FixedClock) -> Services:
    """Hashes that cost next to nothing, and a clock that stands still."""
    passwords = Passwords(PasswordHasher(time_cost=1, memory_cost=64, parallelism=1))
    return replace(services, passwords=passwords, sign_in_failures=FailureLimiter(clock=clock))


@pytest.fixture
async def ada(make: DataFactory, services: Services) -> tables.User:
    return await make.user("Ada", email="ada@example.org", password_hash=await services.passwords.hash(PASSWORD))


async def sign_in(ask: Ask, login: str, password: str = PASSWORD, viewer: tables.User | None = None) -> OperationResult:
    return await ask(SIGN_IN, viewer, login=login, password=password)


def user_error_codes(outcome: OperationResult) -> list[str]:
    return [str(problem.code) for problem in outcome.errors]


@pytest.mark.parametrize("login", ["Ada", "ADA", " ada ", "ada@example.org", "Ada@Example.org"])
async def test_returns_the_token_for_a_username_or_the_primary_address(ask: Ask, ada: tables.User, login: str) -> None:
    outcome = await sign_in(ask, login)

    assert outcome.errors == []
    payload: dict[str, Any] = (outcome.data or {})["signIn"]
    assert payload["user"]["username"] == "Ada"
    assert payload["user"]["email"] == "ada@example.org"
    assert payload["user"]["privateToken"] == token_of(ada)
    assert payload["user"]["currentSignInAt"] is not None


async def test_is_unavailable_while_too_many_passwords_wait_and_counts_no_failure(
    ask: Ask, ada: tables.User, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may send more passwords than can be verified: without a limit everybody would wait until the time limit."""
    gate = threading.Event()
    monkeypatch.setattr(services.passwords, "_matches", lambda *_: gate.wait(10) and False)
    guesses = [asyncio.create_task(sign_in(ask, f"guess{number}")) for number in range(MAX_WAITING_PASSWORDS + 5)]
    done, waiting = await asyncio.wait(guesses, return_when=asyncio.FIRST_COMPLETED)
    while len(done) < 5:
        more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    refused = [each.result().errors[0] for each in done]
    assert [(str(each.code), each.retry_after) for each in refused] == [("UNAVAILABLE", 2)] * 5
    assert user_error_codes(await sign_in(ask, "ada")) == ["UNAVAILABLE"]
    gate.set()
    assert {str(result.errors[0].code) for result in await asyncio.gather(*waiting)} == {"UNAUTHENTICATED"}
    monkeypatch.undo()

    assert (await sign_in(ask, "ada")).errors == []
    assert len(services.sign_in_failures) == MAX_WAITING_PASSWORDS


async def test_stores_the_sign_in_time(ask: Ask, make: DataFactory, ada: tables.User) -> None:
    await sign_in(ask, "ada")

    found = await make.fetch(tables.User, ada.id)
    assert found is not None and found.current_sign_in_at is not None


@pytest.mark.parametrize(
    ("login", "password"),
    [("ada", "wrong"), ("ada", ""), ("", PASSWORD), ("", ""), ("nobody", PASSWORD), ("second@example.org", PASSWORD), ("ada", "x" * 2000)],
)
async def test_all_failures_look_the_same(ask: Ask, make: DataFactory, ada: tables.User, login: str, password: str) -> None:
    await make.save(tables.Email(user_id=ada.id, email="second@example.org"))

    outcome = await sign_in(ask, login, password)

    assert [(str(problem.code), problem.message) for problem in outcome.errors] == [("UNAUTHENTICATED", "Invalid login or password.")]


async def test_rejects_blocked_users_and_those_without_a_password(ask: Ask, make: DataFactory, services: Services) -> None:
    await make.user("bob", state=UserState.BLOCKED, password_hash=await services.passwords.hash(PASSWORD))
    await make.user("eve")

    assert user_error_codes(await sign_in(ask, "bob")) == ["UNAUTHENTICATED"]
    assert user_error_codes(await sign_in(ask, "eve")) == ["UNAUTHENTICATED"]
    assert user_error_codes(await sign_in(ask, "eve", "")) == ["UNAUTHENTICATED"]


async def test_signs_in_the_owner_of_the_password(ask: Ask, make: DataFactory, ada: tables.User) -> None:
    outcome = await sign_in(ask, "ada", viewer=await make.admin())

    assert (outcome.data or {})["signIn"]["user"]["privateToken"] == token_of(ada)


async def test_can_be_disabled(ask: Ask, make: DataFactory, ada: tables.User) -> None:
    await make.settings(signin_enabled=False)

    for password in (PASSWORD, "wrong", ""):
        assert user_error_codes(await sign_in(ask, "ada", password)) == ["FORBIDDEN"]
    assert user_error_codes(await sign_in(ask, "nobody")) == ["FORBIDDEN"]


async def test_administrators_sign_in_where_it_is_disabled(ask: Ask, make: DataFactory, services: Services) -> None:
    await make.settings(signin_enabled=False)
    await make.user("root", admin=True, password_hash=await services.passwords.hash(PASSWORD))

    assert user_error_codes(await sign_in(ask, "root", "wrong")) == ["FORBIDDEN"]
    assert user_error_codes(await sign_in(ask, "root")) == []


async def test_throttling_reveals_nothing_where_sign_in_is_disabled(ask: Ask, make: DataFactory, ada: tables.User) -> None:
    await make.settings(signin_enabled=False)
    for _ in range(10):
        assert user_error_codes(await sign_in(ask, "ada")) == ["FORBIDDEN"]

    assert user_error_codes(await sign_in(ask, "ada")) == ["LIMIT_EXCEEDED"]


@pytest.mark.parametrize(
    ("spellings", "other"), [(("ada", "ADA", " Ada "), "ada@example.org"), (("ada@example.org", " Ada@Example.ORG "), "ada")]
)
async def test_throttles_a_login_after_ten_failures(
    ask: Ask, clock: FixedClock, ada: tables.User, spellings: tuple[str, ...], other: str
) -> None:
    for number in range(10):
        assert user_error_codes(await sign_in(ask, spellings[number % len(spellings)], "wrong")) == ["UNAUTHENTICATED"]

    for login in spellings:
        outcome = await sign_in(ask, login)
        assert [(str(problem.code), problem.retry_after) for problem in outcome.errors] == [("LIMIT_EXCEEDED", 60)]
    # The other login behaves as that of another account would, so its own failures alone are counted.
    for _ in range(10):
        assert user_error_codes(await sign_in(ask, other, "wrong")) == ["UNAUTHENTICATED"]
    assert user_error_codes(await sign_in(ask, other)) == ["LIMIT_EXCEEDED"]
    clock.now += 61
    for login in (spellings[0], other):
        assert user_error_codes(await sign_in(ask, login)) == []


async def test_throttles_unknown_names_too(ask: Ask, make: DataFactory) -> None:
    for _ in range(10):
        assert user_error_codes(await sign_in(ask, "nobody")) == ["UNAUTHENTICATED"]

    assert user_error_codes(await sign_in(ask, "NOBODY")) == ["LIMIT_EXCEEDED"]
    assert user_error_codes(await sign_in(ask, "somebody")) == ["UNAUTHENTICATED"]


async def test_never_throttles_success(ask: Ask, ada: tables.User) -> None:
    outcomes = await asyncio.gather(*(sign_in(ask, "ada") for _ in range(32)))

    assert [user_error_codes(outcome) for outcome in outcomes] == [[]] * 32


async def test_concurrent_guesses_count_as_attempts(ask: Ask, ada: tables.User) -> None:
    outcomes = await asyncio.gather(*(sign_in(ask, "ada", f"guess {number}") for number in range(50)))

    assert sorted(code for outcome in outcomes for code in user_error_codes(outcome)) == ["LIMIT_EXCEEDED"] * 40 + ["UNAUTHENTICATED"] * 10


async def test_hashing_does_not_block_writers(ask: Ask, make: DataFactory, services: Services, ada: tables.User) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Passwords):
        async def verify(self, hash: str | None, password: str) -> bool:
            began.set()
            await go_on.wait()
            return True

    slow = Ask(type(ask.graph)(replace(services, passwords=Slow())))
    signing = asyncio.create_task(sign_in(slow, "ada"))
    await began.wait()
    await asyncio.wait_for(make.user("bob"), 2)
    go_on.set()

    assert user_error_codes(await signing) == []


async def test_writes_nothing_for_a_failure(ask: Ask, ada: tables.User, statements: StatementRecorder) -> None:
    with statements.record() as seen:
        await sign_in(ask, "ada", "wrong")

    assert {statement.split()[0] for statement in seen} == {"SELECT"}
