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
from storage.artifact_folder import FolderStore
from storage.database import Database
from storage.git.repositories import Repositories
from storage.migrations import upgrade
from storage.secrets import Passwords, TokenCipher, load_key
from storage.uploads import Uploads
from tests.databases import Postgres, own_server, share_compiled
from tests.make import EXTERNAL_URL, QUICK, Make, token_of
from tests.reliability.served import Served, served
from tests.town import Town, settle

CALLERS = {"anonymous": None, "outsider": "stranger", "developer": "member", "administrator": "admin"}
"""The four kinds of callers, and what the town calls them."""
DEADLINE_SECONDS = 10.0
HANG_SECONDS = DEADLINE_SECONDS + 3
"""An answer that takes longer than this has passed the deadline of the service."""


@dataclass
class Instance:
    make: Make
    town: Town
    server: Served
    _read: int = 0

    def token(self, caller: str) -> str | None:
        name = CALLERS[caller]
        return token_of(self.town.viewers[name]) if name else None

    def headers(self, caller: str) -> dict[str, str]:
        token = self.token(caller)
        return {"PRIVATE-TOKEN": token} if token else {}

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.server.url, timeout=HANG_SECONDS)

    def faults(self) -> list[str]:
        """What the log tells of since this was last asked: tracebacks, and lines of level error or worse."""
        text = self.server.log.read_text(errors="replace")
        fresh, self._read = text[self._read :], len(text)
        found = []
        for line in fresh.splitlines():
            if line.startswith("{"):
                try:
                    told = json.loads(line)
                except ValueError:
                    continue
                if told.get("level") in ("error", "critical") or "exception" in told:
                    found.append(line)
            elif line.startswith(("Traceback", "Exception", "RuntimeWarning")) or "never awaited" in line:
                found.append(line)
        return found

    @property
    def is_alive(self) -> bool:
        return self.server.process.poll() is None


@contextmanager
def folder_of(name: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=f"forgefront-fuzz-{name}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def databases(kind: str) -> Iterator[Any]:
    """A function that makes databases of a kind, migrated, and gives their URLs."""
    with folder_of(kind) as folder:
        if kind == "sqlite":
            numbers = iter(range(1_000_000))

            async def make_file() -> str:
                url = f"sqlite+aiosqlite:///{folder}/{next(numbers)}.db"
                await asyncio.to_thread(upgrade, url)
                return url

            yield make_file
            return
        with own_server() as address:
            server = Postgres(address)

            async def create() -> str:
                url = server.create()
                await asyncio.to_thread(upgrade, url)
                return url

            try:
                yield create
            finally:
                server.close()


@asynccontextmanager
async def services_over(url: str, folder: Path, **settings: Any) -> AsyncIterator[Services]:
    database, repositories = Database(url), Repositories(folder / "repositories")
    share_compiled(database)
    try:
        yield Services(
            database,
            repositories,
            Passwords(QUICK),
            TokenCipher(load_key(folder, None)),
            Uploads(folder / "uploads"),
            FolderStore(folder / "artifacts"),
            external_url=EXTERNAL_URL,
            **settings,
        )
    finally:
        repositories.close()
        await database.close()


@asynccontextmanager
async def instance(url: str, histories: Path) -> AsyncIterator[Instance]:
    """A server over a town of its own."""
    with folder_of("data") as folder:
        async with services_over(url, folder) as services:
            make = Make(services, histories)
            town = await settle(make, folder / "town.git")
            shown = make_url(url).set(drivername=make_url(url).get_backend_name()).render_as_string(hide_password=False)
            with served(folder, shown) as server:
                running = Instance(make, town, server)
                running.faults()
                yield running
                await asyncio.sleep(0)
