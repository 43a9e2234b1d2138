"""The page that shows the OpenAPI document, in a real browser."""

import asyncio
import socket
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

import rest_v3
from graph.operations.execution import Graph
from rest_v3.routes import EXTRA_ROUTES, ROUTES
from tests.forgefront.support.browser import CHROMIUM
from tests.support.api_clients import route_operations

QUIET = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update"


@pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: chromium (apt install chromium)")
async def test_shows_every_call(graph: Graph, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        app = rest_v3.create_app(graph, external_url=address, operations=route_operations())
        server = uvicorn.Server(uvicorn.Config(Starlette(routes=[Mount("/api/v3", app=app)]), lifespan="off", log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        arguments = [*QUIET.split(), "--disable-sync", f"--user-data-dir={tmp_path}/profile", "--virtual-time-budget=5000", "--dump-dom"]
        browser = await asyncio.create_subprocess_exec(
            str(CHROMIUM), *arguments, f"{address}/api/v3/docs", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        shown = (await asyncio.wait_for(browser.communicate(), 120))[0].decode()
        server.should_exit = True
        await serving

    assert "The document cannot be read" not in shown
    assert shown.count("<details") == len([row for row in (*ROUTES, *EXTRA_ROUTES) if row.rejection_status is None])
    assert '"state": opened | closed' in shown, "components are written out where they are used"
