"""A server under attack: `forgefront serve` in a process of its own, over a database full of things, and callers of four kinds."""

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

from graph.context import Services
from storage.database.engine import Database
from storage.migrations import upgrade
from storage.objects.folder_store import FolderStore
from storage.objects.uploads import UploadStore
from storage.secrets import Passwords, TokenCipher, load_key
from tests.make import EXTERNAL_URL, FAST_PASSWORD_HASHER, DataFactory, token_of
from tests.support.databases import PostgresServer, share_compiled_statements, temporary_server
from tests.support.edge_case_data import EdgeCaseData, create_edge_cases
from tests.support.repositories import EditableRepositories
from tests.support.server_process import ServerProcess, run_server

CALLERS = {"anonymous": None, "outsider": "stranger", "developer": "member", "administrator": "admin"}
"""The four kinds of callers, and what the town calls them."""
DEADLINE_SECONDS = 10.0
HANG_SECONDS = DEADLINE_SECONDS + 3
"""An answer that takes longer than this has passed the deadline of the service."""


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
        """What the log tells of since this was last asked: tracebacks, and lines of level error or worse."""
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
    """A function that makes databases of a kind, migrated, and gives their URLs."""
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
async def open_services(url: str, folder: Path, **settings: Any) -> AsyncIterator[Services]:
    database = Database(url)
    repositories = EditableRepositories(folder / "repositories", database)
    share_compiled_statements(database)
    try:
        yield Services(
            database,
            repositories,
            Passwords(FAST_PASSWORD_HASHER),
            TokenCipher(load_key(folder, None)),
            UploadStore(folder / "uploads"),
            FolderStore(folder / "artifacts"),
            external_url=EXTERNAL_URL,
            **settings,
        )
    finally:
        repositories.close()
        await database.close()


@asynccontextmanager
async def run_fuzz_server(url: str, histories: Path) -> AsyncIterator[FuzzServer]:
    """A server over a town of its own."""
    with temporary_folder("data") as folder:
        async with open_services(url, folder) as services:
            make = DataFactory(services, histories)
            edge_cases = await create_edge_cases(make, folder / "town.git")
            shown = make_url(url).set(drivername=make_url(url).get_backend_name()).render_as_string(hide_password=False)
            with run_server(folder, shown) as server:
                running = FuzzServer(make, edge_cases, server)
                running.read_faults()
                yield running
                await asyncio.sleep(0)
