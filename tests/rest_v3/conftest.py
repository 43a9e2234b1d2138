"""The application over the fake graph."""

from collections.abc import AsyncIterator

import httpx
import pytest

from rest_v3 import create_app
from rest_v3.operations import OperationRegistry
from tests.rest_v3.support.fake_graph import FakeGraph, prepare
from tests.rest_v3.support.sample_routes import SAMPLE_OPERATIONS, SAMPLE_ROUTES


@pytest.fixture
def fake() -> FakeGraph:
    return FakeGraph()


@pytest.fixture
async def client(fake: FakeGraph) -> AsyncIterator[httpx.AsyncClient]:
    """A client of ada's."""
    app = create_app(
        fake,
        external_url="https://forge.example",
        routes=SAMPLE_ROUTES,
        operations=OperationRegistry((SAMPLE_OPERATIONS,), prepare),
    )
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app),  # type: ignore[arg-type]
        base_url="http://inside/api/v3",
        headers={"PRIVATE-TOKEN": "ada"},
    ) as connected:
        yield connected
