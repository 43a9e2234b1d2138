"""Clients of the forge under test: `ask` for GraphQL, `api` for v3, which checks every response against its closed shape."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import httpx
import pytest

import rest_v3
from graph.context import Services
from graph.documents.document_cache import DocumentCache
from graph.operations.execution import Graph, OperationResult, prepare_document
from rest_v3.operations import OperationRegistry
from storage import tables
from tests.make import EXTERNAL_URL, token_of
from tests.support.git.repositories import keep_refs_in_step


class Ask:
    """`await ask(query, viewer, **variables)` runs an operation as an external caller would."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    async def __call__(self, query: str, viewer: tables.User | None = None, **variables: Any) -> OperationResult:
        credential = token_of(viewer) if viewer else None
        return await self.graph.run_document(query, variables, None, credential, request_id="test")

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


PARSED_DOCUMENTS: DocumentCache[Any] = DocumentCache(in_use=10**9, new=10**9)
"""The operations that graphs of this process have parsed."""


@pytest.fixture
def graph(services: Services, request: pytest.FixtureRequest) -> Graph:
    """A document cache shared by tests, unless a test changes limits: parsing an operation costs as much as running it."""
    graph = Graph(services)
    if "monkeypatch" not in request.fixturenames:
        graph._documents._cache = PARSED_DOCUMENTS
    return keep_refs_in_step(graph)


@pytest.fixture
def ask(graph: Graph) -> Ask:
    return Ask(graph)


@pytest.fixture
def planned_ask(services: Services) -> Ask:
    """For tests of plans, also where the suite runs without them."""
    return Ask(keep_refs_in_step(Graph(services, planner=True)))


class Api:
    """`await api.get("/projects/1/issues", user, state="opened")`: v3 as a legacy client calls it, below `/api/v3`.

    Every 2xx body is held against the closed shape of the row that answered, every other against the error shape.
    """

    def __init__(self, client: httpx.AsyncClient, app: Any, profile: str = "document") -> None:
        self.client = client
        self.app = app
        self.profile = profile

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
        from tests.rest_v3.support import response_shapes

        is_admin = bool(viewer and viewer.admin)
        response_shapes.check_response(self.app, method, path, response, admin=is_admin, profile=self.profile)


@cache
def route_operations() -> OperationRegistry:
    """The prepared operations of the routes, prepared once a run instead of once a test."""
    return OperationRegistry.read(rest_v3.OPERATIONS_FOLDER, prepare_document)


class CurrentGraph:
    """Delegates to the graph of the running test, so that the v3 application is created once a run instead of once a test."""

    graph: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.graph, name)


CURRENT_GRAPH = CurrentGraph()


@cache
def app_of_profile(profile: str) -> Any:
    return rest_v3.create_app(CURRENT_GRAPH, external_url=EXTERNAL_URL, profile=profile, operations=route_operations())


@pytest.fixture
async def api(graph: Graph) -> AsyncIterator[Api]:
    async with _open_api(graph, "document") as api:
        yield api


@pytest.fixture
async def legacy_api(graph: Graph) -> AsyncIterator[Api]:
    """As `api`, under the profile for legacy clients."""
    async with _open_api(graph, "gitlab-8.5") as api:
        yield api


@pytest.fixture(params=["document", "gitlab-8.5"])
def any_api(request: pytest.FixtureRequest, api: Api, legacy_api: Api) -> Api:
    """Each of the two, for what must hold under both profiles."""
    return api if request.param == "document" else legacy_api


@asynccontextmanager
async def _open_api(graph: Graph, profile: str) -> AsyncIterator[Api]:
    CURRENT_GRAPH.graph, app = graph, app_of_profile(profile)
    transport = httpx.ASGITransport(app=_mount_app(app))
    async with httpx.AsyncClient(transport=transport, base_url=EXTERNAL_URL) as client:
        yield Api(client, app, profile)


def _mount_app(app: Any) -> Any:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    return Starlette(routes=[Mount("/api/v3", app=app)])
