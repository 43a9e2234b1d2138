"""The application over the fake graph."""

from collections.abc import AsyncIterator
from functools import cache
from typing import Any

import httpx
import pytest

from rest_v3 import create_app
from rest_v3.operations import OperationRegistry
from tests.rest_v3.support.fake_graph import FakeGraph, prepare
from tests.rest_v3.support.sample_routes import SAMPLE_OPERATIONS, SAMPLE_ROUTES
from tests.support.api_clients import CurrentGraph

CURRENT_FAKE = CurrentGraph()


@cache
def sample_app() -> Any:
    """The application of the sample routes, created once a run: parsing their operations takes longer than a test."""
    operations = OperationRegistry((SAMPLE_OPERATIONS,), prepare)
    return create_app(CURRENT_FAKE, external_url="https://forge.example", routes=SAMPLE_ROUTES, operations=operations)


@pytest.fixture
def fake() -> FakeGraph:
    return FakeGraph()


@pytest.fixture
async def client(fake: FakeGraph) -> AsyncIterator[httpx.AsyncClient]:
    """A client of ada's."""
    CURRENT_FAKE.graph = fake
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(sample_app()),
        base_url="http://inside/api/v3",
        headers={"PRIVATE-TOKEN": "ada"},
    ) as connected:
        yield connected
