"""GraphQL over HTTP: every audit of npm's graphql-http, against a real server.

Its two packages come by `npm ci` (tests/support/npm.py).
"""

import asyncio
import json
import socket
import subprocess
from pathlib import Path

import pytest
import uvicorn

from graph.http.endpoint import make_graphql_app
from graph.operations.execution import Graph
from tests.make import DataFactory, token_of
from tests.support.npm import install_packages

NPM_SECONDS = 60
NODE_SECONDS = 60


@pytest.fixture
def installed() -> Path:
    """A folder with the script and what it imports."""
    return install_packages(Path(__file__).parents[1] / "audits", "the audits of graphql-http", NPM_SECONDS)


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
async def test_every_audit_is_ok(graph: Graph, make: DataFactory, installed: Path) -> None:
    token = token_of(await make.user())
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(make_graphql_app(graph), lifespan="off", log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/graphql"
        command = ["node", "audit.mjs", address, token]
        done = await asyncio.to_thread(subprocess.run, command, cwd=installed, capture_output=True, text=True, timeout=NODE_SECONDS)
        server.should_exit = True
        await serving

    assert done.returncode == 0, done.stderr
    audits = json.loads(done.stdout)
    assert [audit for audit in audits if audit["status"] != "ok"] == []
    assert len(audits) == 61
