"""Dumps of the instance of a test, and their restoration into the other database."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from forgefront.config import Config
from storage.dump.dump_format import Manifest
from storage.dump.dump_reader import DumpReader, read_manifest
from tests.forgefront.support.cli_runner import CommandRunner
from tests.make import EXTERNAL_URL
from tests.support.database.databases import create_databases


@dataclass
class DumpTool:
    """Runs `dump` and `restore` over the data of a test. `create_target` creates an empty database of the other kind."""

    data: Path
    database_url: str
    create_target: Callable[[], str]
    patch: pytest.MonkeyPatch

    async def dump(self, name: str = "forge.tar", *options: object) -> Path:
        """Dumps the instance of the test, with its key."""
        return await self.dump_instance(self.data, self.database_url, name, *options)

    async def dump_instance(self, data: Path, database_url: str, name: str, *options: object, code: int = 0) -> Path:
        with self.patch.context() as patch:
            patch.setenv("FORGEFRONT_DATABASE_URL", database_url)
            await asyncio.to_thread(CommandRunner(data), "dump", self.data / name, "--with-key", *options, code=code)
        return self.data / name

    async def restore(self, *files: object, name: str = "restored") -> Config:
        """Restores into the other database, and returns the configuration of the new instance, in which nothing is wrong."""
        data, url = self.data / name, self.create_target()
        await asyncio.to_thread(CommandRunner(data), "restore", *files, "--database-url", url)
        return Config.load(data=data, database_url=url, external_url=EXTERNAL_URL)


@pytest.fixture
def create_target(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Creates empty databases: PostgreSQL in the tests of SQLite, and SQLite in those of PostgreSQL; returns their URLs."""
    if dialect == "postgresql":
        numbers = count(1)
        yield lambda: f"sqlite:///{tmp_path}/target{next(numbers)}.db"
        return
    with create_databases(request.getfixturevalue("postgres")) as create:
        yield create


@pytest.fixture
def dumps(tmp_path: Path, database_url: str, create_target: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> DumpTool:
    """Dumps of the data of `make`."""
    return DumpTool(tmp_path, database_url, create_target, monkeypatch)


def read_dump(path: Path) -> Manifest:
    """The manifest of a dump, every byte of which is verified."""
    with path.open("rb") as file:
        reader = DumpReader(str(path), file)
        for _ in reader.members():
            pass
        assert reader.manifest is not None
        file.seek(0)
        assert read_manifest(str(path), file).render() == reader.manifest.render()
        return reader.manifest


def contents_of(manifest: Manifest) -> dict[str, str]:
    """The checksum of each part of the tables and files."""
    return {name: part.sha256 for name, part in manifest.parts.items()}
