"""The application over the fake graph."""

from collections.abc import AsyncIterator

import httpx
import pytest

from rest_v3 import application
from rest_v3.operations import Operations
from tests.rest_v3.fake_graph import FakeGraph, prepare
from tests.rest_v3.rows import ROWS, SOURCE


@pytest.fixture
def fake() -> FakeGraph:
    return FakeGraph()


@pytest.fixture
async def client(fake: FakeGraph) -> AsyncIterator[httpx.AsyncClient]:
    """A client of ada's."""
    app = application(
        fake,
        external_url="https://forge.example",
        routes=ROWS,
        operations=Operations((SOURCE,), prepare),
    )
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app),  # type: ignore[arg-type]
        base_url="http://inside/api/v3",
        headers={"PRIVATE-TOKEN": "ada"},
    ) as connected:
        yield connected
