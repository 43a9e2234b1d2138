"""The rate limit of a viewer: points, headers, refusals; and `serverInfo`."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import httpx
import pytest

from forgefront.config import MAX_OPERATION_COST
from graph.context import Services
from graph.errors import LimitExceeded
from graph.http.endpoint import make_graphql_app
from graph.live.subscription_streams import SubscriptionStream
from graph.live.subscriptions import subscribe
from graph.operations import rate_limits
from graph.operations.cost import MAX_ROWS
from graph.operations.execution import Graph, prepare
from graph.operations.rate_limits import CostQuote, RateLimiter, points
from graph.schema import print_schema
from tests.make import DataFactory, token_of
from tests.support.api_clients import Ask

NOW = datetime(2026, 3, 1, 12, 0, 0, 500_000, tzinfo=UTC)
RATE = "{ rateLimit { limit cost used remaining nodeCount resetAt } }"
EXPENSIVE_QUERY = "{ projects(first: 100) { nodes { name owner { name } } } viewer { name } }"


class FixedClock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def charge_rows(rows: int) -> CostQuote:
    return CostQuote(rows, lambda allowed: f" With {allowed} rows it fits.")


def limit_message(rate_limiter: RateLimiter, rows: int, *, viewer: int = 1) -> LimitExceeded:
    with pytest.raises(LimitExceeded) as caught:
        rate_limiter.charge(viewer, charge_rows(rows), NOW)
    return caught.value


class TestRateWindow:
    def test_a_hundred_rows_are_a_point_and_nothing_is_free(self) -> None:
        assert [points(rows) for rows in (0, 1, 100, 101, MAX_ROWS)] == [1, 1, 1, 2, MAX_OPERATION_COST]

    def test_an_hour_begins_with_the_first_operation(self) -> None:
        clock = FixedClock()
        account = RateLimiter(10, clock=clock)

        def used() -> int | None:
            paid = charge_rows(250)
            account.charge(1, paid, NOW)
            return paid.usage.used if paid.usage else None

        assert [used(), used()] == [3, 6]
        clock.seconds = 3599.5
        assert used() == 9
        clock.seconds = 3600.0
        assert used() == 3

    def test_a_rejection_states_the_wait_and_an_affordable_query(self) -> None:
        clock = FixedClock()
        account = RateLimiter(5, clock=clock)
        account.charge(1, charge_rows(300), NOW)
        clock.seconds = 600.5

        error = limit_message(account, 900)

        assert error.retry_after == 3000
        assert error.message == (
            "The operation costs 9 points, and 2 of 5 points per hour are left. Retry after 3,000 seconds, or reduce the cost:"
            " a point is 100 rows. With 200 rows it fits."
        )
        assert "Retry after 3,000 seconds" in limit_message(account, 201).message
        account.charge(1, charge_rows(200), NOW)
        assert (
            limit_message(account, 0).message
            == "The operation costs 1 point, and 0 of 5 points per hour are left. Retry after 3,000 seconds."
        )

    def test_one_viewer_is_not_another(self) -> None:
        account = RateLimiter(1, clock=FixedClock())
        account.charge(1, charge_rows(0), NOW)
        account.charge(2, charge_rows(0), NOW)
        assert limit_message(account, 0, viewer=2).retry_after == 3600

    def test_the_number_of_tracked_viewers_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rate_limits, "MAX_VIEWERS", 3)
        account = RateLimiter(1, clock=FixedClock())
        for viewer in range(5):
            account.charge(viewer, charge_rows(0), NOW)
        assert len(account) == 3
        assert limit_message(account, 0, viewer=4)
        account.charge(0, charge_rows(0), NOW)


@pytest.fixture
def limited(services: Services) -> Graph:
    return Graph(replace(services, rate_limiter=RateLimiter(5, clock=FixedClock()), clock=lambda: NOW))


@pytest.fixture
async def client(limited: Graph) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=make_graphql_app(limited), raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://forge.example/graphql") as client:
        yield client


def rate_limit_headers(response: httpx.Response) -> dict[str, str]:
    return {name.removeprefix("x-ratelimit-"): value for name, value in response.headers.items() if name.startswith("x-ratelimit-")}


class TestHttpHeaders:
    async def test_usage_is_in_the_response_and_its_headers(self, client: httpx.AsyncClient, make: DataFactory) -> None:
        headers = {"PRIVATE-TOKEN": token_of(await make.user())}

        response = await client.post("", json={"query": RATE}, headers=headers)

        assert response.json()["data"]["rateLimit"] == {
            "limit": 5,
            "cost": 1,
            "used": 1,
            "remaining": 4,
            "nodeCount": 0,
            "resetAt": "2026-03-01T13:00:01.000000Z",
        }
        reset = str(int((NOW + timedelta(seconds=3600.5)).timestamp()))
        assert rate_limit_headers(response) == {"limit": "5", "cost": "1", "used": "1", "remaining": "4", "reset": reset}

        streamed = await client.post("", json={"query": RATE}, headers={**headers, "Accept": "text/event-stream"})
        assert rate_limit_headers(streamed)["used"] == "2"

    async def test_rejects_with_429_and_retry_after(self, client: httpx.AsyncClient, make: DataFactory) -> None:
        headers = {"PRIVATE-TOKEN": token_of(await make.user())}
        assert rate_limit_headers(await client.post("", json={"query": EXPENSIVE_QUERY}, headers=headers))["used"] == "3"

        response = await client.post("", json={"query": EXPENSIVE_QUERY}, headers=headers)

        assert response.status_code == 429
        assert response.headers["retry-after"] == "3600"
        assert rate_limit_headers(response)["remaining"] == "2"
        (error,) = response.json()["errors"]
        assert error["extensions"]["code"] == "LIMIT_EXCEEDED"
        assert "Retry after 3,600 seconds, or reduce the cost" in error["message"]
        assert "Query.projects (200 rows by 100)" in error["message"]
        assert error["message"].endswith("Use first: 99 for Query.projects to stay within the limit.")

    async def test_an_error_after_the_start_is_paid_for_too(self, client: httpx.AsyncClient, make: DataFactory) -> None:
        headers = {"PRIVATE-TOKEN": token_of(await make.user())}
        response = await client.post("", json={"query": '{ project(path: "no/such") { name } }'}, headers=headers)
        assert rate_limit_headers(response)["used"] == "1"

    async def test_anonymous_callers_have_no_rate_limit(self, client: httpx.AsyncClient) -> None:
        response = await client.post("", json={"query": RATE})
        assert (response.status_code, rate_limit_headers(response)) == (401, {})

    async def test_a_stream_is_paid_for_when_it_begins(self, limited: Graph, make: DataFactory) -> None:
        token = token_of(await make.user())
        for _ in range(5):
            opened = await subscribe(limited, "subscription { buildChanged { seq } }", {}, None, token, request_id="r")
            assert isinstance(opened, SubscriptionStream)
            opened.close()
        refused = await subscribe(limited, "subscription { buildChanged { seq } }", {}, None, token, request_id="r")
        assert not isinstance(refused, SubscriptionStream)
        assert [problem.code for problem in refused.errors] == ["LIMIT_EXCEEDED"]


class TestNullSizes:
    """A page size that is null reads what an absent one does, and costs as much."""

    TEXT = "query($n: Int = 0) { rateLimit { nodeCount } projects(first: $n) { nodes { id } } }"

    @pytest.mark.parametrize("planner", [True, False], ids=["planned", "unplanned"])
    async def test_cost_the_rows_they_read(self, services: Services, make: DataFactory, planner: bool) -> None:
        owner = await make.user()
        for _ in range(21):
            await make.project(owner=owner)
        ask = Ask(Graph(services, planner=planner))

        for variables, size in (({"n": None}, 20), ({}, 0), ({"n": 3}, 3)):
            for _ in range(3):
                data = await ask.data(self.TEXT, owner, **variables)
                assert (len(data["projects"]["nodes"]), data["rateLimit"]["nodeCount"]) == (size, size)

    async def test_do_not_bypass_the_row_limit(self, ask: Ask, make: DataFactory) -> None:
        inner = "id"
        for name in ("mergeRequests", "closesIssues", "mergeRequests", "closesIssues", "mergeRequests"):
            inner = f"{name}(first: $n) {{ nodes {{ {inner} }} }}"
        text = f'query($n: Int = 0) {{ project(path: "a/b") {{ {inner} }} }}'
        viewer = await make.user()

        assert await ask.codes(text, viewer) == ["NOT_FOUND"]
        assert await ask.codes(text, viewer, n=None) == ["LIMIT_EXCEEDED"]


class TestUnlimitedOperations:
    async def test_rest_v3_operations_and_unlimited_instances_are_not_counted(self, limited: Graph, ask: Ask, make: DataFactory) -> None:
        viewer = await make.user()
        prepared = prepare("query Q { rateLimit { limit cost used } }", "Q")
        for _ in range(6):
            outcome = await limited.run(prepared, {}, token_of(viewer), request_id="r")
        assert outcome.data == {"rateLimit": {"limit": 2**31 - 1, "cost": 0, "used": 0}}
        assert outcome.rate_usage is None
        free: dict[str, Any] = await ask.data("{ rateLimit { limit cost used remaining } }", viewer)
        assert free == {"rateLimit": {"limit": 2**31 - 1, "cost": 1, "used": 0, "remaining": 2**31 - 1}}


class TestServerInfo:
    async def test_returns_version_and_limits(self, ask: Ask, make: DataFactory) -> None:
        query = "{ serverInfo { version restVersions schemaHash maxCost maxDepth maxPageSize sshEnabled } }"
        data = await ask.data(query, await make.user())
        info = data["serverInfo"]
        assert info.pop("version")
        assert info == {
            "restVersions": ["v3"],
            "schemaHash": sha256(print_schema().encode()).hexdigest(),
            "maxCost": 10_000,
            "maxDepth": 12,
            "maxPageSize": 100,
            "sshEnabled": False,
        }
        assert await ask.codes(query) == ["UNAUTHENTICATED"]
