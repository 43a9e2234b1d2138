"""The forge under test, through its two doors: `ask` for GraphQL, `api` for v3 (every answer held against its closed shape)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import httpx
import pytest

import rest_v3
from graph.context import Services
from graph.execute import Graph, Outcome, prepare
from graph.remembering import Remembered
from rest_v3.operations import Operations
from storage import tables
from tests.make import EXTERNAL_URL, token_of


class Ask:
    """`await ask(query, viewer, **variables)` runs text as a caller from outside would."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    async def __call__(self, query: str, viewer: tables.User | None = None, **variables: Any) -> Outcome:
        credential = token_of(viewer) if viewer else None
        return await self.graph.run_text(query, variables, None, credential, request_id="test")

    async def data(self, query: str, viewer: tables.User | None = None, **variables: Any) -> dict[str, Any]:
        """The data of an operation that must succeed."""
        outcome = await self(query, viewer, **variables)
        assert outcome.errors == []
        assert outcome.data is not None
        return outcome.data

    async def codes(self, query: str, viewer: tables.User | None = None, **variables: Any) -> list[str]:
        """The codes of an operation that must fail: of `errors[]`, or of the payload's `userErrors`."""
        outcome = await self(query, viewer, **variables)
        if outcome.errors:
            return [str(problem.code) for problem in outcome.errors]
        ((payload, *_),) = [list((outcome.data or {}).values())]
        return [error["code"] for error in payload["userErrors"]]


READ_TEXTS: Remembered[Any] = Remembered(in_use=10**9, new=10**9)
"""What graphs of this process have read."""


@pytest.fixture
def graph(services: Services, request: pytest.FixtureRequest) -> Graph:
    """It knows the texts that tests before have sent, unless its test changes what is allowed: reading one costs as much as running it."""
    graph = Graph(services)
    if "monkeypatch" not in request.fixturenames:
        graph._texts._read = READ_TEXTS
    return graph


@pytest.fixture
def ask(graph: Graph) -> Ask:
    return Ask(graph)


class Api:
    """`await api.get("/projects/1/issues", user, state="opened")`: v3 as a legacy client calls it, below `/api/v3`.

    Every 2xx body is held against the closed shape of the row that answered, every other against the error shape.
    """

    def __init__(self, client: httpx.AsyncClient, door: Any) -> None:
        self.client = client
        self.door = door

    async def request(self, method: str, path: str, viewer: tables.User | None = None, **settings: Any) -> httpx.Response:
        headers = {"PRIVATE-TOKEN": token_of(viewer)} if viewer else {}
        response = await self.client.request(method, f"/api/v3{path}", headers={**headers, **settings.pop("headers", {})}, **settings)
        self.check(method, path, viewer, response)
        return response

    async def get(self, path: str, viewer: tables.User | None = None, /, **params: Any) -> httpx.Response:
        return await self.request("GET", path, viewer, params=params)

    async def post(self, path: str, viewer: tables.User | None = None, /, **params: Any) -> httpx.Response:
        return await self.request("POST", path, viewer, json=params)

    async def put(self, path: str, viewer: tables.User | None = None, /, **params: Any) -> httpx.Response:
        return await self.request("PUT", path, viewer, json=params)

    async def delete(self, path: str, viewer: tables.User | None = None, /, **params: Any) -> httpx.Response:
        return await self.request("DELETE", path, viewer, params=params)

    def check(self, method: str, path: str, viewer: tables.User | None, response: httpx.Response) -> None:
        from tests.rest_v3 import shapes

        shapes.check_response(self.door, method, path, response, admin=bool(viewer and viewer.admin))


@cache
def operations() -> Operations:
    """The operations of the rows, prepared once a run instead of once a test."""
    return Operations.read(rest_v3.ROUTES_FOLDER, prepare)


class Present:
    """Stands for the graph of the test that runs now, so that the door before it is built once a run instead of once a test."""

    graph: Graph | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.graph, name)


PRESENT = Present()


@cache
def door_of(profile: str) -> Any:
    return rest_v3.application(PRESENT, external_url=EXTERNAL_URL, profile=profile, operations=operations())


@pytest.fixture
async def api(graph: Graph) -> AsyncIterator[Api]:
    async with _opened(graph, "document") as api:
        yield api


@pytest.fixture
async def api_of_the_time(graph: Graph) -> AsyncIterator[Api]:
    """As `api`, under the profile for clients of the time."""
    async with _opened(graph, "gitlab-8.5") as api:
        yield api


@pytest.fixture(params=["document", "gitlab-8.5"])
def any_api(request: pytest.FixtureRequest, api: Api, api_of_the_time: Api) -> Api:
    """Each of the two, for what holds under both profiles."""
    return api if request.param == "document" else api_of_the_time


@asynccontextmanager
async def _opened(graph: Graph, profile: str) -> AsyncIterator[Api]:
    PRESENT.graph, door = graph, door_of(profile)
    transport = httpx.ASGITransport(app=_mounted(door))
    async with httpx.AsyncClient(transport=transport, base_url=EXTERNAL_URL) as client:
        yield Api(client, door)


def _mounted(door: Any) -> Any:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    return Starlette(routes=[Mount("/api/v3", app=door)])
