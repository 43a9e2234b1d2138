"""The rate limit of failed sign-ins."""

import asyncio

import pytest

from graph.errors import LimitExceeded
from graph.rules.accounts.failure_limiter import FailureLimiter


class FixedClock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def failures(clock: FixedClock) -> FailureLimiter:
    return FailureLimiter(max_failures=3, seconds=60, max_names=5, clock=clock)


async def fail(failures: FailureLimiter, name: str = "ada") -> None:
    async with failures.attempt(name) as failed:
        failed()


async def succeed(failures: FailureLimiter, name: str = "ada") -> None:
    async with failures.attempt(name):
        pass


async def test_rejects_after_the_limit_with_retry_after(failures: FailureLimiter, clock: FixedClock) -> None:
    for _ in range(3):
        await fail(failures)
        clock.now += 10

    with pytest.raises(LimitExceeded) as refused:
        await succeed(failures)

    assert refused.value.retry_after == 30


async def test_lets_pass_again_when_the_oldest_failure_is_old(failures: FailureLimiter, clock: FixedClock) -> None:
    for _ in range(3):
        await fail(failures)
        clock.now += 10
    clock.now += 30

    await fail(failures)
    with pytest.raises(LimitExceeded):
        await succeed(failures)


async def test_does_not_count_successes(failures: FailureLimiter) -> None:
    for _ in range(50):
        await succeed(failures)

    assert len(failures) == 0


async def test_does_not_count_a_refusal_as_a_failure(failures: FailureLimiter, clock: FixedClock) -> None:
    for _ in range(3):
        await fail(failures)
    for _ in range(20):
        clock.now += 2
        with pytest.raises(LimitExceeded):
            await fail(failures)
    clock.now += 21

    await succeed(failures)


async def test_counts_each_name_for_itself(failures: FailureLimiter) -> None:
    for _ in range(3):
        await fail(failures)

    await succeed(failures, "bob")


async def test_concurrent_attempts_are_counted(failures: FailureLimiter) -> None:
    tried = 0

    async def attempt() -> None:
        nonlocal tried
        async with failures.attempt("ada") as failed:
            tried += 1
            await asyncio.sleep(0)
            failed()

    outcomes = await asyncio.gather(*(attempt() for _ in range(100)), return_exceptions=True)

    assert tried == 3
    assert sum(isinstance(outcome, LimitExceeded) for outcome in outcomes) == 97


async def test_remembers_a_bounded_number_of_names(failures: FailureLimiter) -> None:
    for number in range(50):
        await fail(failures, f"name{number}")

    assert len(failures) == 5


async def test_counts_nothing_for_an_attempt_that_breaks(failures: FailureLimiter) -> None:
    for _ in range(10):
        with pytest.raises(ZeroDivisionError):
            async with failures.attempt("ada"):
                raise ZeroDivisionError

    await succeed(failures)
