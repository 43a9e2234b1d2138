"""Dumps of the instance of a test, and their restoration into the other database."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import Result

from forgefront.config import Config
from storage.dump.dump_format import Manifest
from storage.dump.dump_reader import DumpReader, read_manifest
from tests.forgefront.support.cli_runner import CommandRunner
from tests.make import EXTERNAL_URL


@dataclass
class DumpTool:
    """Runs `dump` and `restore` over the data of a test. `other_url` is the empty database of the other kind."""

    data: Path
    database_url: str
    other_url: str
    patch: pytest.MonkeyPatch
    results: list[Result] = field(default_factory=list)

    async def dump(self, name: str = "forge.tar", *options: object, code: int = 0) -> Path:
        """Dumps the instance of the test, with its key unless it is told otherwise."""
        target = self.data / name
        await self._run(self.data, self.database_url, "dump", target, "--with-key", *options, code=code)
        return target

    async def restore(self, *files: object, name: str = "restored", url: str | None = None, code: int = 0) -> Config:
        data = self.data / name
        await self._run(data, "", "restore", *files, "--database-url", url or self.other_url, code=code)
        return Config.load(data=data, database_url=url or self.other_url, external_url=EXTERNAL_URL)

    @property
    def message(self) -> str:
        return self.results[-1].stderr

    async def _run(self, data: Path, url: str, *arguments: object, code: int) -> None:
        with self.patch.context() as patch:
            if url:
                patch.setenv("FORGEFRONT_DATABASE_URL", url)
            self.results.append(await asyncio.to_thread(CommandRunner(data), *arguments, code=code))


@pytest.fixture
def other_url(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database: PostgreSQL in the tests of SQLite, and SQLite in those of PostgreSQL."""
    if dialect == "postgresql":
        yield f"sqlite:///{tmp_path}/restored/forgefront.db"
        return
    server = request.getfixturevalue("postgres")
    url = server.create_database()
    yield url
    server.drop_database(url)


@pytest.fixture
def dumps(tmp_path: Path, database_url: str, other_url: str, monkeypatch: pytest.MonkeyPatch) -> DumpTool:
    return DumpTool(tmp_path, database_url, other_url, monkeypatch)


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
