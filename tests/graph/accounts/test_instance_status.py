"""The state of the instance, for administrators."""

import pytest

from graph.jobs import maintenance
from graph.jobs.job_monitor import JobMonitor
from tests.make import DataFactory
from tests.support.api_clients import Ask

STATUS = """{ instanceStatus { version pythonVersion process healthChecks { name problem } hosts { name isLive }
    database { version sizeBytes } disk { totalBytes freeBytes } backlog { waitingBuilds waitingDeliveries oldestDeliverySeconds }
    backgroundJobs { name state intervalSeconds startedAt finishedAt runCount failureCount lastError lastFailedAt } } }"""


async def test_shows_health_jobs_and_sizes_to_administrators(ask: Ask, make: DataFactory) -> None:
    async def find_problems() -> dict[str, str | None]:
        return {"database": None, "repositories": "the folder is not writable"}

    make.services.health_checks.register(find_problems)
    make.services.repositories.root.mkdir(parents=True, exist_ok=True)
    await maintenance.run_once(make.services)

    status = (await ask.data(STATUS, await make.admin()))["instanceStatus"]

    assert status["healthChecks"] == [
        {"name": "database", "problem": None},
        {"name": "repositories", "problem": "the folder is not writable"},
    ]
    assert status["database"]["version"].startswith(("SQLite 3", "PostgreSQL 1"))
    assert status["database"]["sizeBytes"] > 100_000
    assert 0 < status["disk"]["freeBytes"] < status["disk"]["totalBytes"]
    assert status["backlog"] == {"waitingBuilds": 0, "waitingDeliveries": 0, "oldestDeliverySeconds": 0}
    assert status["hosts"] == []
    jobs = {job["name"]: job for job in status["backgroundJobs"]}
    merging = jobs["merge waiting"]
    assert (merging["state"], merging["runCount"], merging["failureCount"], merging["lastError"]) == ("WAITING", 1, 0, None)
    assert merging["intervalSeconds"] == maintenance.POLL_SECONDS
    assert list(jobs) == sorted(jobs)


async def test_is_forbidden_to_others(ask: Ask, make: DataFactory) -> None:
    assert await ask.codes(STATUS, await make.user()) == ["FORBIDDEN"]


async def test_filters_users_by_state_and_rights(ask: Ask, make: DataFactory) -> None:
    admin = await make.admin()
    await make.user("ada")
    query = "query ($filter: UserFilter) { users(filter: $filter) { nodes { username } } }"

    async def usernames(**filter: object) -> list[str]:
        return [node["username"] for node in (await ask.data(query, admin, filter=filter))["users"]["nodes"]]

    blocking = "mutation { blockUser(input: {databaseId: %d}) { user { state } } }"
    bob = await make.user("bob")
    await ask.data(blocking % bob.id, admin)
    assert await usernames(state=["BLOCKED"]) == ["bob"]
    assert "bob" not in await usernames(state=["ACTIVE"])
    assert await usernames(isAdmin=True) == [admin.username]
    assert set(await usernames(isAdmin=False)) == {"ada", "bob"}


class TestJobMonitor:
    def test_records_the_last_failure_until_the_process_ends(self) -> None:
        monitor = JobMonitor()

        with pytest.raises(ValueError, match="twice"), monitor.record_run("work", 5.0):
            raise ValueError("twice\nthe rest of a long message")
        (failed,) = monitor.list_jobs()
        assert (failed.state.name, failed.last_error, failed.failure_count) == ("FAILED", "ValueError: twice", 1)

        with monitor.record_run("work", 5.0):
            assert failed.state.name == "RUNNING"
        assert (failed.state.name, failed.run_count, failed.last_error) == ("WAITING", 2, "ValueError: twice")

    def test_a_cancellation_is_no_failure(self) -> None:
        monitor = JobMonitor()

        with pytest.raises(KeyboardInterrupt), monitor.record_run("work"):
            raise KeyboardInterrupt

        assert monitor.list_jobs()[0].failure_count == 0
