"""The page that shows the OpenAPI document, in a real browser."""

import asyncio
import socket

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

import rest_v3
from graph.operations.execution import Graph
from rest_v3.routes import EXTRA_ROUTES, ROUTES
from tests.forgefront.support.browser import CHROMIUM, open_chromium
from tests.support.api_clients import route_operations


@pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: chromium (apt install chromium)")
async def test_shows_every_call(graph: Graph) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        app = rest_v3.create_app(graph, external_url=address, operations=route_operations())
        server = uvicorn.Server(uvicorn.Config(Starlette(routes=[Mount("/api/v3", app=app)]), lifespan="off", log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        documented = len([row for row in (*ROUTES, *EXTRA_ROUTES) if row.rejection_status is None])
        async with open_chromium() as page:
            await page.open(f"{address}/api/v3/docs")
            await page.wait_for(f"document.querySelectorAll('details').length >= {documented}")
            shown: str = await page.evaluate("document.body.innerHTML")
            assert page.errors == []
        server.should_exit = True
        await serving

    assert "The document cannot be read" not in shown
    assert shown.count("<details") == documented
    assert '"state": opened | closed' in shown, "components are written out where they are used"
