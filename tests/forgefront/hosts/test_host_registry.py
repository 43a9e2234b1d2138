"""Which hosts may serve one instance together."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlmodel import col
from structlog.testing import capture_logs

from forgefront.config import Config
from forgefront.server import host_registry
from forgefront.server.health import NotReadyError
from forgefront.server.host_registry import HostRefused, HostRegistry
from storage.database import clock
from storage.database.clock import now
from storage.database.engine import Database
from storage.secrets import load_key
from storage.tables import Host
from tests.make import DataFactory

BUCKETS = {f"{name}_url": f"s3://forge/{name}" for name in ("repositories", "uploads", "artifacts")}
Registry = Callable[..., HostRegistry]


@pytest.fixture
def registry(database: Database, tmp_path: Path) -> Registry:
    """Makes the registry of a process of a host, by the name of its data folder."""
    shared_key = load_key(tmp_path, None)

    def make_registry(name: str, *, ssh_keys: list[bytes] | None = None, key: bytes = shared_key, **settings: Any) -> HostRegistry:
        (tmp_path / name).mkdir(exist_ok=True)
        url = database.url.render_as_string(hide_password=False)
        config = Config.load(data=tmp_path / name, database_url=url, **settings)
        return HostRegistry(config, database, key, ssh_keys)

    return make_registry


@pytest.fixture
def other_key(tmp_path: Path) -> bytes:
    (tmp_path / "other").mkdir()
    return load_key(tmp_path / "other", None)


async def count_hosts(database: Database) -> int:
    async with database.read_session() as session:
        return len(await session.read(select(Host)))


async def silence(database: Database, seconds: float) -> None:
    """Makes all hosts silent for so long."""
    async with database.write_session() as session:
        await session.execute(update(Host).values(heartbeat_at=now() - timedelta(seconds=seconds)))
        await session.commit()


@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
class TestPostgresql:
    async def test_hosts_with_buckets_serve_together(self, registry: Registry, database: Database) -> None:
        for name in ("one", "two", "three"):
            await registry(name, **BUCKETS).join()
        assert await count_hosts(database) == 3

    @pytest.mark.parametrize("missing", ["repositories", "uploads", "artifacts"])
    @pytest.mark.parametrize("first_is_local", [True, False])
    async def test_a_local_folder_excludes_other_hosts(self, registry: Registry, missing: str, first_is_local: bool) -> None:
        local = {**BUCKETS, f"{missing}_url": ""}
        await registry("one", **(local if first_is_local else BUCKETS)).join()

        with pytest.raises(HostRefused, match=rf"has {missing} in its data folder.*Set FORGEFRONT_{missing.upper()}_URL to s3://"):
            await registry("two", **(BUCKETS if first_is_local else local)).join()

    @pytest.mark.parametrize("seconds", [-30, 30])
    async def test_a_clock_that_differs_from_that_of_the_database_is_logged_once(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch, seconds: int
    ) -> None:
        difference = timedelta(seconds=5)
        monkeypatch.setattr(host_registry, "read_host_clock", lambda: datetime.now(UTC) + difference)
        monkeypatch.setattr(clock, "_correction", timedelta())
        host = registry("one", **BUCKETS)
        with capture_logs() as logs:
            await host.join()
        assert logs == []
        difference = timedelta(seconds=seconds)
        with capture_logs() as logs:
            await host.renew()
            await host.renew()
        (entry,) = logs
        assert (entry["event"], entry["log_level"]) == ("the clock of this host differs from that of the database", "error")
        assert entry["seconds"] == pytest.approx(seconds, abs=5)

    async def test_times_of_all_hosts_are_those_of_the_database(self, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
        """Leases of builds are written by one host and compared by another."""
        monkeypatch.setattr(clock, "_correction", timedelta())
        host = registry("one", **BUCKETS)
        # The real clock of this machine is that of the database.
        for seconds, expected in ((3600, 3600), (-90, -90), (-90.5, -90), (0.5, 0), (2, 2), (0, 0)):
            difference = timedelta(seconds=seconds)
            monkeypatch.setattr(host_registry, "read_host_clock", lambda difference=difference: datetime.now(UTC) + difference)
            await host.renew()
            assert (datetime.now(UTC) - now()).total_seconds() == pytest.approx(expected, abs=0.4)

    async def test_processes_of_one_folder_are_one_host(self, registry: Registry, database: Database) -> None:
        await registry("one").join()
        await registry("one").join()
        assert await count_hosts(database) == 1

    async def test_a_silent_host_is_replaced(self, registry: Registry, database: Database) -> None:
        first = registry("one")
        await first.join()
        await silence(database, 30)
        second = registry("two")

        await second.join()

        await second.check()
        # The first one was only slow.
        await first.renew()
        with pytest.raises(NotReadyError, match="must not serve"):
            await first.check()

    async def test_a_stopped_host_is_replaced_at_once(self, registry: Registry) -> None:
        first = registry("one")
        await first.join()
        await first.leave()
        await registry("two").join()

    async def test_another_secret_key_is_refused(self, registry: Registry, other_key: bytes) -> None:
        await registry("one", **BUCKETS).join()
        with pytest.raises(HostRefused, match=r"has another secret key. Set FORGEFRONT_SECRET_KEY"):
            await registry("two", key=other_key, **BUCKETS).join()

    async def test_a_key_that_does_not_fit_the_database_is_refused(self, registry: Registry, make: DataFactory, other_key: bytes) -> None:
        await make.user()
        with pytest.raises(HostRefused, match=r"were encrypted with another key. Set FORGEFRONT_SECRET_KEY"):
            await registry("one", key=other_key, **BUCKETS).join()

    async def test_other_ssh_keys_are_refused(self, registry: Registry) -> None:
        await registry("one", ssh_keys=[b"1", b"2"], **BUCKETS).join()
        await registry("two", ssh_keys=[b"2", b"1"], **BUCKETS).join()
        await registry("three", **BUCKETS).join()
        with pytest.raises(HostRefused, match=r"has other SSH host keys. Set FORGEFRONT_SSH_HOST_KEYS"):
            await registry("four", ssh_keys=[b"3"], **BUCKETS).join()

    async def test_forgets_hosts_of_another_day(self, registry: Registry, database: Database) -> None:
        await registry("one", **BUCKETS).join()
        await silence(database, 2 * 86_400)
        await registry("two", **BUCKETS).join()
        async with database.read_session() as session:
            assert len(await session.read(select(col(Host.id)))) == 1


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
class TestSqlite:
    async def test_a_shared_file_excludes_other_hosts(self, registry: Registry) -> None:
        await registry("one", **BUCKETS).join()
        with pytest.raises(HostRefused, match=r"which is SQLite. Several hosts need PostgreSQL"):
            await registry("two", **BUCKETS).join()

    async def test_a_file_in_the_data_folder_needs_no_registration(self, database: Database, tmp_path: Path) -> None:
        registry = HostRegistry(Config.load(data=tmp_path), database, load_key(tmp_path, None))
        await registry.join()
        assert not registry.is_needed
        assert await count_hosts(database) == 0
        assert not (tmp_path / "host.id").exists()
