"""The server under test: `forgefront serve` in its own process, over a filled database, and callers of four kinds."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import make_url

from storage.migrations import upgrade
from tests.make import DataFactory, open_services, token_of
from tests.support.database.databases import PostgresServer, temporary_server
from tests.support.queries.edge_case_data import EdgeCaseData, create_edge_cases
from tests.support.servers.server_process import ServerProcess, run_server

CALLERS = {"anonymous": None, "outsider": "stranger", "developer": "member", "administrator": "admin"}
"""The four kinds of callers, and the names of their viewers in the edge-case data."""
DEADLINE_SECONDS = 10.0
HANG_SECONDS = DEADLINE_SECONDS + 3
"""A response that takes longer has exceeded the deadline of the service."""


@dataclass
class FuzzServer:
    make: DataFactory
    edge_cases: EdgeCaseData
    server: ServerProcess
    _log_position: int = 0

    def token(self, caller: str) -> str | None:
        name = CALLERS[caller]
        return token_of(self.edge_cases.viewers[name]) if name else None

    def headers(self, caller: str) -> dict[str, str]:
        token = self.token(caller)
        return {"PRIVATE-TOKEN": token} if token else {}

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.server.url, timeout=HANG_SECONDS)

    def read_faults(self) -> list[str]:
        """New tracebacks in the log, and new lines of level error or worse, since the last call."""
        text = self.server.log.read_text(errors="replace")
        fresh, self._log_position = text[self._log_position :], len(text)
        found = []
        for line in fresh.splitlines():
            if line.startswith("{"):
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue
                if entry.get("level") in ("error", "critical") or "exception" in entry:
                    found.append(line)
            elif line.startswith(("Traceback", "Exception", "RuntimeWarning")) or "never awaited" in line:
                found.append(line)
        return found

    @property
    def is_alive(self) -> bool:
        return self.server.process.poll() is None


@contextmanager
def temporary_folder(name: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=f"forgefront-fuzz-{name}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def database_factory(kind: str) -> Iterator[Any]:
    """A function that creates a migrated database of a kind and returns its URL."""
    with temporary_folder(kind) as folder:
        if kind == "sqlite":
            numbers = iter(range(1_000_000))

            async def make_file() -> str:
                url = f"sqlite+aiosqlite:///{folder}/{next(numbers)}.db"
                await asyncio.to_thread(upgrade, url)
                return url

            yield make_file
            return
        with temporary_server() as address:
            server = PostgresServer(address)

            async def create() -> str:
                url = server.create_database()
                await asyncio.to_thread(upgrade, url)
                return url

            try:
                yield create
            finally:
                server.close()


@asynccontextmanager
async def run_fuzz_server(url: str, histories: Path) -> AsyncIterator[FuzzServer]:
    """A server over edge-case data of its own."""
    with temporary_folder("data") as folder:
        async with open_services(url, folder) as services:
            make = DataFactory(services, histories)
            edge_cases = await create_edge_cases(make, folder / "edge_cases.git")
            shown = make_url(url).set(drivername=make_url(url).get_backend_name()).render_as_string(hide_password=False)
            with run_server(folder, shown) as server:
                running = FuzzServer(make, edge_cases, server)
                running.read_faults()
                yield running
                await asyncio.sleep(0)
