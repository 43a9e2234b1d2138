"""The whole service: which path reaches which endpoint, and answers while the database is unavailable."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from forgefront.app import App, create_app
from forgefront.commands.admin.users import OPERATIONS_FILE
from forgefront.config import Config, ConfigError
from forgefront.local_client import LocalClient
from storage.caches import BOUNDS_BY_NAME
from tests.rest_v3.support.interface_rules import cites


def client(app: App) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://forge")


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    app = create_app(Config.load(data=tmp_path, external_url="https://forge.example.com/git"))
    await app.start()
    yield app
    await app.stop()


class TestEndpoints:
    async def test_index_names_the_addresses(self, app: App) -> None:
        response = await client(app).get("/")
        assert response.status_code == 200
        assert response.json()["graphql"] == "https://forge.example.com/git/graphql"
        assert response.json()["rest_v3"] == "https://forge.example.com/git/api/v3"

    async def test_every_address_of_the_index_answers(self, app: App) -> None:
        async with client(app) as http:
            addresses = (await http.get("/")).json()
            for name in ("graphql", "health", "readiness", "metrics", "openapi"):
                path = addresses[name].removeprefix("https://forge.example.com/git")
                assert (await http.get(path)).status_code != 404, name

    async def test_health_and_readiness(self, app: App) -> None:
        async with client(app) as http:
            assert (await http.get("/-/health")).status_code == 200
            assert (await http.get("/-/readiness")).json()["status"] == "ok"

    @cites("Versioning: every call stands below /api/v3")
    async def test_unknown_paths(self, app: App) -> None:
        async with client(app) as http:
            for path in ("/nope", "/-/nope", "/api", "/api/v30/user", "/graphql/x", "/api/v3/nope", "/%00"):
                response = await http.get(path)
                assert response.status_code == 404, path
                assert response.headers["Content-Type"] == "application/json", path
                assert response.headers["X-Content-Type-Options"] == "nosniff", path
                assert response.json() == {"message": "404 Not Found"}, path

    async def test_wrong_method(self, app: App) -> None:
        response = await client(app).post("/")
        assert (response.status_code, response.headers["Allow"]) == (405, "GET, HEAD")

    @cites("Versioning: every call stands below /api/v3")
    async def test_endpoints_require_a_credential(self, app: App) -> None:
        async with client(app) as http:
            assert (await http.get("/api/v3/user")).status_code == 401
            assert (await http.get(f"{http.base_url}//api/v3/user")).status_code == 401
            assert (await http.post("/graphql", json={"query": "{ viewer { id } }"})).status_code == 401

    async def test_requests_are_counted_by_route(self, app: App) -> None:
        async with client(app) as http:
            for number in range(3):
                await http.get(f"/api/v3/users/{number}")
                await http.get(f"/nope/{number}")
            text = (await http.get("/-/metrics")).text
        assert 'forgefront_http_requests_total{method="GET",route="/api/v3/users/:id",status="401"} 3.0' in text
        assert 'forgefront_http_requests_total{method="GET",route="unmatched",status="404"} 3.0' in text

    async def test_metrics_report_the_size_of_each_cache(self, app: App) -> None:
        async with client(app) as http:
            await http.post("/graphql", json={"query": "{ frontPage { __typename } }"})
            text = (await http.get("/-/metrics")).text
        for metric in ("bytes", "entries"):
            found = dict(re.findall(rf'^forgefront_cache_{metric}\{{cache="([^"]+)"\}} (\S+)$', text, re.MULTILINE))
            assert found.keys() == BOUNDS_BY_NAME.keys()
            assert float(found["documents"]) > 0

    async def test_access_lines_name_the_user(self, app: App) -> None:
        forge = LocalClient(app.graph, OPERATIONS_FILE)
        user = await forge.run("CreateUser", input={"username": "ada", "name": "Ada", "email": "ada@example.org", "confirm": False})
        token = (await forge.run("Token", by="ada"))["token"]
        state: dict[str, object] = {}

        async def handler(scope: Scope, receive: Receive, send: Send) -> None:
            scope["state"] = state
            await app(scope, receive, send)

        async with httpx.AsyncClient(transport=httpx.ASGITransport(handler), base_url="http://forge") as http:
            for method, path in (
                ("GET", "/api/v3/user"),
                ("GET", "/api/v3/users"),
                ("GET", "/api/v3/projects/1/labels"),
                ("POST", "/api/v3/projects/1/issues"),
                ("POST", "/api/v3/projects/1/uploads"),
                ("GET", "/ada/tools/uploads/0123456789abcdef0123456789abcdef/a.png"),
            ):
                state.clear()
                await http.request(method, path)
                assert "user_id" not in state, path
                await http.request(method, path, headers={"PRIVATE-TOKEN": token})
                assert state["user_id"] == user["id"], path

    async def test_tickets_in_paths_are_not_logged(self, app: App) -> None:
        states: list[dict[str, object]] = []

        async def handler(scope: Scope, receive: Receive, send: Send) -> None:
            states.append(scope.setdefault("state", {}))
            await app(scope, receive, send)

        async with httpx.AsyncClient(transport=httpx.ASGITransport(handler), base_url="http://forge") as http:
            assert (await http.put("/-/artifacts/x", content=b"x")).status_code == 404
            assert (await http.put("/-/artifacts/x/", content=b"x")).status_code == 404
            assert (await http.get("/-/artifacts/x/y z")).status_code == 404

        async def receive() -> dict[str, object]:
            return {"type": "websocket.connect"}

        async def send(message: object) -> None:
            return

        await handler({"type": "websocket", "path": "/-/artifacts/x", "headers": []}, receive, send)
        assert [(state["secret_path"], state["route"]) for state in states] == [(True, "/-/artifacts/:ticket")] * 4

    async def test_secrets_of_uploads_are_not_logged(self, app: App) -> None:
        states: list[dict[str, object]] = []

        async def handler(scope: Scope, receive: Receive, send: Send) -> None:
            states.append(scope.setdefault("state", {}))
            await app(scope, receive, send)

        async with httpx.AsyncClient(transport=httpx.ASGITransport(handler), base_url="http://forge") as http:
            for method in ("GET", "PUT", "OPTIONS"):
                await http.request(method, f"/team/tools/uploads/{'0a' * 16}/plan.png")
        assert [(state["secret_path"], state["route"]) for state in states] == [(True, "/:namespace/:project/uploads/:secret/:name")] * 3

    async def test_metrics_can_be_off(self, tmp_path: Path) -> None:
        app = create_app(Config.load(data=tmp_path, metrics=False))
        async with client(app) as http:
            assert (await http.get("/-/metrics")).status_code == 404
            assert "metrics" not in (await http.get("/")).json()
        await app.stop()


class TestStartup:
    async def test_two_at_once_and_again(self, tmp_path: Path) -> None:
        config = Config.load(data=tmp_path)
        apps = [create_app(config), create_app(config)]
        await asyncio.gather(*(app.start() for app in apps))
        (remains := tmp_path / "repositories" / ".incoming-x").mkdir()
        # The first still uses the folder, in which that could be its own.
        await apps[0].stop()
        third = create_app(config)
        await third.start()
        assert remains.exists()
        await third.stop()
        await apps[1].stop()
        alone = create_app(config)
        await alone.start()
        assert not remains.exists()
        await alone.stop()

    def test_unusable_data_folder(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(ConfigError, match=r"the data folder .*/file/data cannot be used: Not a directory"):
            create_app(Config.load(data=tmp_path / "file" / "data", database_url="postgresql://h/d"))

    def test_damaged_key(self, tmp_path: Path) -> None:
        (tmp_path / "secret.key").write_text("hunter2")
        with pytest.raises(ConfigError, match=r"secret\.key") as caught:
            create_app(Config.load(data=tmp_path))
        assert "hunter2" not in str(caught.value)

    async def test_data_folder_is_private(self, tmp_path: Path) -> None:
        app = create_app(Config.load(data=tmp_path / "new" / "data"))
        assert app.config.data.stat().st_mode & 0o777 == 0o700
        await app.stop()

    @pytest.mark.parametrize("address", ["127.0.0.1:{port}/d", "/d?host={folder}"])
    async def test_an_unreachable_database_fails_the_start(self, address: str, tmp_path: Path, unused_tcp_port: int) -> None:
        url = "postgresql://u:hunter2@" + address.format(port=unused_tcp_port, folder=tmp_path)
        app = create_app(Config.load(data=tmp_path, database_url=url))
        sent: list[dict[str, str]] = []

        async def receive() -> dict[str, str]:
            return {"type": "lifespan.startup"}

        async def send(message: dict[str, str]) -> None:
            sent.append(message)

        await app({"type": "lifespan"}, receive, send)  # type: ignore[arg-type]
        assert sent[0]["type"] == "lifespan.startup.failed"
        assert "the database cannot be reached" in sent[0]["message"]
        assert "hunter2" not in sent[0]["message"]


class TestUnreachableDatabase:
    @pytest.fixture(params=["refuses", "is silent", "has no socket"])
    async def app_without_database(self, request: pytest.FixtureRequest, tmp_path: Path, unused_tcp_port: int) -> AsyncIterator[App]:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0) if request.param == "is silent" else None
        port = server.sockets[0].getsockname()[1] if server else unused_tcp_port
        place = f"/d?host={tmp_path}" if request.param == "has no socket" else f"127.0.0.1:{port}/d"
        app = create_app(Config.load(data=tmp_path, database_url=f"postgresql://u:p@{place}"))
        yield app
        await app.stop()
        if server:
            server.close()
            await server.wait_closed()

    async def test_every_endpoint_answers_503_soon(self, app_without_database: App) -> None:
        async with client(app_without_database) as http:
            # The driver alone would wait for a minute.
            async with asyncio.timeout(30):
                responses = await asyncio.gather(
                    http.get("/api/v3/user", headers={"PRIVATE-TOKEN": "x" * 20}),
                    http.post("/graphql", json={"query": "{ viewer { id } }"}, headers={"PRIVATE-TOKEN": "x" * 20}),
                    http.get("/-/readiness"),
                )
        for response in responses:
            assert response.status_code == 503
            assert 1 <= int(response.headers["Retry-After"]) <= 5

    async def test_the_process_still_lives(self, app_without_database: App) -> None:
        assert (await client(app_without_database).get("/-/health")).status_code == 200
