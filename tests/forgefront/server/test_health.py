"""Health and readiness, which supervisors and load balancers read."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text
from starlette.types import ASGIApp

from forgefront.server import health
from forgefront.server.health import NotReadyError, ReadinessEndpoint, create_database_check, create_folder_check
from forgefront.server.liveness import answer_liveness
from storage.database.engine import Database


def client(app: ASGIApp) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://forge")


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(f"sqlite:///{tmp_path}/forge.db")
    async with database.engine.begin() as connection:
        await connection.execute(text("CREATE TABLE alembic_version (version_num TEXT)"))
    yield database
    await database.close()


async def succeed() -> None:
    return


class TestLiveness:
    async def test_answers(self) -> None:
        response = await client(answer_liveness).get("/-/health")
        assert (response.status_code, response.json()) == (200, {"status": "ok"})
        assert response.headers["Cache-Control"] == "no-store"

    async def test_only_get_and_head_are_allowed(self) -> None:
        response = await client(answer_liveness).delete("/-/health")
        assert (response.status_code, response.headers["Allow"]) == (405, "GET, HEAD")


class TestReadiness:
    async def test_ready(self, database: Database, tmp_path: Path) -> None:
        app = ReadinessEndpoint({"database": create_database_check(database), "repositories": create_folder_check(tmp_path)})
        response = await client(app).get("/-/readiness")
        assert response.status_code == 200
        assert response.json() == {"status": "ok", "checks": {"database": {"status": "ok"}, "repositories": {"status": "ok"}}}
        assert [name for name in os.listdir(tmp_path) if name.startswith(".readiness")] == []  # noqa: PTH208

    async def test_for_reads(self, database: Database, tmp_path: Path) -> None:
        checks = {"database": create_database_check(database), "repositories": create_folder_check(tmp_path / "absent")}
        for needed, status in (("database",), 200), (("database", "repositories"), 503):
            response = await client(ReadinessEndpoint(checks, needed)).get("/-/readiness?for=reads")
            assert response.status_code == status
            assert response.json()["status"] == ("ok" if status == 200 else "unavailable")
            assert response.json()["checks"]["repositories"]["status"] == "unavailable"

    async def test_for_anything_else_is_refused(self) -> None:
        response = await client(ReadinessEndpoint({"database": succeed})).get("/-/readiness?for=writes")
        assert (response.status_code, response.json()) == (400, {"message": "for must be reads, or left out"})

    async def test_missing_data_folder(self, database: Database, tmp_path: Path) -> None:
        app = ReadinessEndpoint(
            {"database": create_database_check(database), "repositories": create_folder_check(tmp_path / "secret-name")}
        )
        response = await client(app).get("/-/readiness")
        assert response.status_code == 503
        assert response.headers["Retry-After"] == "2"
        assert response.json() == {
            "status": "unavailable",
            "checks": {
                "database": {"status": "ok"},
                "repositories": {"status": "unavailable", "problem": "the folder is not writable: No such file or directory"},
            },
        }
        assert "secret-name" not in response.text

    async def test_full_disk_leaves_no_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def create_empty(path: Path, data: bytes) -> int:
            path.touch()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(Path, "write_bytes", create_empty)
        with pytest.raises(NotReadyError, match="No space left on device"):
            await create_folder_check(tmp_path)()
        assert os.listdir(tmp_path) == []  # noqa: PTH208

    async def test_database_without_its_tables(self, tmp_path: Path) -> None:
        database = Database(f"sqlite:///{tmp_path}/empty.db")
        result = await ReadinessEndpoint({"database": create_database_check(database)}).result()
        await database.close()
        assert result["checks"]["database"] == {"status": "unavailable", "problem": "it returns an error"}

    async def test_database_is_down(self, unused_tcp_port: int) -> None:
        database = Database(f"postgresql://u:hunter2@127.0.0.1:{unused_tcp_port}/d")
        response = await client(ReadinessEndpoint({"database": create_database_check(database)})).get("/-/readiness")
        await database.close()
        assert response.status_code == 503
        assert response.json()["checks"]["database"]["problem"] == "it cannot be reached"

    async def test_database_that_never_answers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(health, "CHECK_TIMEOUT_SECONDS", 0.2)

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        database = Database(f"postgresql://u:hunter2@127.0.0.1:{port}/d")
        async with asyncio.timeout(30):
            result = await ReadinessEndpoint({"database": create_database_check(database)}).result()
        assert result["checks"]["database"]["problem"] == "no result within 0.2 s"
        await database.close()
        server.close()
        await server.wait_closed()

    async def test_an_uncancellable_check_does_not_delay_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(health, "CHECK_TIMEOUT_SECONDS", 0.1)
        release = asyncio.Event()

        async def stubborn() -> None:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        async with asyncio.timeout(30):
            result = await ReadinessEndpoint({"stubborn": stubborn, "fine": succeed}).result()
        assert result["checks"]["fine"] == {"status": "ok"}
        assert result["status"] == "unavailable"
        release.set()
        await asyncio.sleep(0.01)

    async def test_concurrent_requests_share_one_check(self) -> None:
        checks = 0

        async def check() -> None:
            nonlocal checks
            checks += 1
            await asyncio.sleep(0.05)
            raise NotReadyError("closed for today")

        readiness = ReadinessEndpoint({"shop": check})
        results = await asyncio.gather(*(readiness.result() for _ in range(50)))
        results.append(await readiness.result())
        assert checks == 1
        assert all(result["checks"]["shop"]["problem"] == "closed for today" for result in results)

    async def test_checks_again_after_the_cache_expires(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(health, "RESULT_CACHE_SECONDS", 0.0)
        broken = True

        async def check() -> None:
            if broken:
                raise NotReadyError("no")

        readiness = ReadinessEndpoint({"it": check})
        assert (await readiness.result())["status"] == "unavailable"
        broken = False
        assert (await readiness.result())["status"] == "ok"
