"""What a viewer may spend in an hour: points, headers, refusals; and what the service tells of itself."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import httpx
import pytest

from forgefront.config import DEAREST
from graph import rates
from graph.context import Services
from graph.cost import ROWS
from graph.errors import LimitExceeded
from graph.execute import Graph, prepare
from graph.http import door
from graph.rates import Bill, Rates, points
from graph.schema import printed
from graph.subscribing import Stream, subscribe
from tests.forge import Ask
from tests.make import Make, token_of

NOW = datetime(2026, 3, 1, 12, 0, 0, 500_000, tzinfo=UTC)
RATE = "{ rateLimit { limit cost used remaining nodeCount resetAt } }"
DEAR = "{ projects(first: 100) { nodes { name owner { name } } } viewer { name } }"


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def bill(rows: int) -> Bill:
    return Bill(rows, lambda allowed: f" With {allowed} rows it fits.")


def refusal(rates: Rates, rows: int, *, viewer: int = 1) -> LimitExceeded:
    with pytest.raises(LimitExceeded) as caught:
        rates.take(viewer, bill(rows), NOW)
    return caught.value


class TestHours:
    def test_a_hundred_rows_are_a_point_and_nothing_is_free(self) -> None:
        assert [points(rows) for rows in (0, 1, 100, 101, ROWS)] == [1, 1, 1, 2, DEAREST]

    def test_an_hour_begins_with_the_first_operation(self) -> None:
        clock = Clock()
        account = Rates(10, clock=clock)

        def used() -> int | None:
            paid = bill(250)
            account.take(1, paid, NOW)
            return paid.charge.used if paid.charge else None

        assert [used(), used()] == [3, 6]
        clock.seconds = 3599.5
        assert used() == 9
        clock.seconds = 3600.0
        assert used() == 3

    def test_a_refusal_says_how_long_to_wait_and_what_would_do(self) -> None:
        clock = Clock()
        account = Rates(5, clock=clock)
        account.take(1, bill(300), NOW)
        clock.seconds = 600.5

        error = refusal(account, 900)

        assert error.retry_after == 3000
        assert error.message == (
            "This costs 9 points and 2 of the 5 of this hour are left: wait 3,000 seconds, or ask for less now: a point is 100 rows."
            " With 200 rows it fits."
        )
        assert "wait 3,000 seconds" in refusal(account, 201).message
        account.take(1, bill(200), NOW)
        assert refusal(account, 0).message == "This costs 1 point and 0 of the 5 of this hour are left: wait 3,000 seconds."

    def test_one_viewer_is_not_another(self) -> None:
        account = Rates(1, clock=Clock())
        account.take(1, bill(0), NOW)
        account.take(2, bill(0), NOW)
        assert refusal(account, 0, viewer=2).retry_after == 3600

    def test_the_memory_has_an_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rates, "MOST_VIEWERS", 3)
        account = Rates(1, clock=Clock())
        for viewer in range(5):
            account.take(viewer, bill(0), NOW)
        assert len(account) == 3
        assert refusal(account, 0, viewer=4)
        account.take(0, bill(0), NOW)


@pytest.fixture
def limited(services: Services) -> Graph:
    return Graph(replace(services, rates=Rates(5, clock=Clock()), clock=lambda: NOW))


@pytest.fixture
async def client(limited: Graph) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=door(limited), raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://forge.example/graphql") as client:
        yield client


def shown(response: httpx.Response) -> dict[str, str]:
    return {name.removeprefix("x-ratelimit-"): value for name, value in response.headers.items() if name.startswith("x-ratelimit-")}


class TestDoor:
    async def test_tells_in_the_answer_and_in_its_headers(self, client: httpx.AsyncClient, make: Make) -> None:
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
        assert shown(response) == {"limit": "5", "cost": "1", "used": "1", "remaining": "4", "reset": reset}

        streamed = await client.post("", json={"query": RATE}, headers={**headers, "Accept": "text/event-stream"})
        assert shown(streamed)["used"] == "2"

    async def test_refuses_with_429_and_the_way_out(self, client: httpx.AsyncClient, make: Make) -> None:
        headers = {"PRIVATE-TOKEN": token_of(await make.user())}
        assert shown(await client.post("", json={"query": DEAR}, headers=headers))["used"] == "3"

        response = await client.post("", json={"query": DEAR}, headers=headers)

        assert response.status_code == 429
        assert response.headers["retry-after"] == "3600"
        assert shown(response)["remaining"] == "2"
        (error,) = response.json()["errors"]
        assert error["extensions"]["code"] == "LIMIT_EXCEEDED"
        assert "wait 3,600 seconds, or ask for less now" in error["message"]
        assert "Query.projects (200 rows by 100)" in error["message"]
        assert error["message"].endswith("It fits with first: 99 for Query.projects.")

    async def test_an_error_after_the_start_is_paid_for_too(self, client: httpx.AsyncClient, make: Make) -> None:
        headers = {"PRIVATE-TOKEN": token_of(await make.user())}
        response = await client.post("", json={"query": '{ project(path: "no/such") { name } }'}, headers=headers)
        assert shown(response)["used"] == "1"

    async def test_nobody_has_no_rate(self, client: httpx.AsyncClient) -> None:
        response = await client.post("", json={"query": RATE})
        assert (response.status_code, shown(response)) == (401, {})

    async def test_a_stream_is_paid_for_when_it_begins(self, limited: Graph, make: Make) -> None:
        token = token_of(await make.user())
        for _ in range(5):
            opened = await subscribe(limited, "subscription { buildChanged { seq } }", {}, None, token, request_id="r")
            assert isinstance(opened, Stream)
            opened.close()
        refused = await subscribe(limited, "subscription { buildChanged { seq } }", {}, None, token, request_id="r")
        assert not isinstance(refused, Stream)
        assert [problem.code for problem in refused.errors] == ["LIMIT_EXCEEDED"]


class TestNullSizes:
    """A page size that is null reads what an absent one does, and costs as much."""

    TEXT = "query($n: Int = 0) { rateLimit { nodeCount } projects(first: $n) { nodes { id } } }"

    @pytest.mark.parametrize("planner", [True, False], ids=["planned", "unplanned"])
    async def test_cost_what_they_read(self, services: Services, make: Make, planner: bool) -> None:
        owner = await make.user()
        for _ in range(21):
            await make.project(owner=owner)
        ask = Ask(Graph(services, planner=planner))

        for variables, size in (({"n": None}, 20), ({}, 0), ({"n": 3}, 3)):
            for _ in range(3):
                data = await ask.data(self.TEXT, owner, **variables)
                assert (len(data["projects"]["nodes"]), data["rateLimit"]["nodeCount"]) == (size, size)

    async def test_do_not_open_what_the_limit_closes(self, ask: Ask, make: Make) -> None:
        inner = "id"
        for name in ("mergeRequests", "closesIssues", "mergeRequests", "closesIssues", "mergeRequests"):
            inner = f"{name}(first: $n) {{ nodes {{ {inner} }} }}"
        text = f'query($n: Int = 0) {{ project(path: "a/b") {{ {inner} }} }}'
        viewer = await make.user()

        assert await ask.codes(text, viewer) == ["NOT_FOUND"]
        assert await ask.codes(text, viewer, n=None) == ["LIMIT_EXCEEDED"]


class TestUncounted:
    async def test_what_rest_v3_runs_and_an_instance_without_a_limit(self, limited: Graph, ask: Ask, make: Make) -> None:
        viewer = await make.user()
        prepared = prepare("query Q { rateLimit { limit cost used } }", "Q")
        for _ in range(6):
            outcome = await limited.run(prepared, {}, token_of(viewer), request_id="r")
        assert outcome.data == {"rateLimit": {"limit": 2**31 - 1, "cost": 0, "used": 0}}
        assert outcome.charge is None
        free: dict[str, Any] = await ask.data("{ rateLimit { limit cost used remaining } }", viewer)
        assert free == {"rateLimit": {"limit": 2**31 - 1, "cost": 1, "used": 0, "remaining": 2**31 - 1}}


class TestServerInfo:
    async def test_says_what_serves_and_what_it_allows(self, ask: Ask, make: Make) -> None:
        query = "{ serverInfo { version restVersions schemaHash maxCost maxDepth maxPageSize } }"
        data = await ask.data(query, await make.user())
        info = data["serverInfo"]
        assert info.pop("version")
        assert info == {
            "restVersions": ["v3"],
            "schemaHash": sha256(printed().encode()).hexdigest(),
            "maxCost": 10_000,
            "maxDepth": 12,
            "maxPageSize": 100,
        }
        assert await ask.codes(query) == ["UNAUTHENTICATED"]
