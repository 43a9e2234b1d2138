"""GraphQL over HTTP, as its own auditors see it: every audit of npm's graphql-http, against a real server.

Its two packages come by `npm ci`, once for each lock file in `tests/forgefront/audits`, into a cache of the user's.
"""

import asyncio
import hashlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
import uvicorn

from graph.execute import Graph
from graph.http import door
from tests.make import Make, token_of

AUDITS = Path(__file__).parent / "audits"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "forgefront-tests"
NPM = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
NPM_SECONDS = 60
NODE_SECONDS = 60


@pytest.fixture
def installed() -> Path:
    """A folder with the script and what it imports."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("NOT RUN: the audits of graphql-http (apt install nodejs npm)")
    contents = b"".join(path.read_bytes() for path in sorted(AUDITS.iterdir()))
    folder = CACHE / f"audits-{hashlib.sha256(contents).hexdigest()[:16]}"
    if folder.exists():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as making:
        shutil.copytree(AUDITS, making, dirs_exist_ok=True)
        try:
            subprocess.run(NPM, cwd=making, check=True, capture_output=True, text=True, timeout=NPM_SECONDS)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"NOT RUN: the audits of graphql-http (npm could not install them: {error.stderr or error})")
        Path(making).rename(folder)
    return folder


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
async def test_every_audit_is_ok(graph: Graph, make: Make, installed: Path) -> None:
    token = token_of(await make.user())
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(door(graph), lifespan="off", log_config=None))
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
