"""Cross-origin requests: headers of every answer, preflights, WebSockets, and a real browser."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin, Subprotocol

from forgefront.app import App, create_app
from forgefront.config import Config, ConfigError
from forgefront.server.app_router import AppRoute
from graph.context import Services
from tests.forgefront.support.browser import CHROMIUM, open_chromium
from tests.make import DataFactory, token_of
from tests.support.servers.server_process import ServerProcess, run_server

OTHER_ORIGIN = "https://app.example.com"
OTHER_ORIGIN_HEADERS = {"Origin": OTHER_ORIGIN}
TICKET = "/-/artifacts/abc"
CORS_PATHS = (
    "/graphql",
    "/api/v3/user",
    "/api/v3/nowhere",
    "/ci/api/v1/builds/register.json",
    "/q/D01_Wall.json",
    TICKET,
    f"/a/b/uploads/{'0' * 32}/x",
)
EXCLUDED_PATHS = (
    "/",
    "/-/health",
    "/-/readiness",
    "/-/metrics",
    "/-/graphiql",
    "/-/pages/main.js",
    "/a/b.git/info/refs",
    "/graphqls",
    "/nowhere",
)


def send_preflight(method: str = "POST", headers: str = "private-token,content-type") -> dict[str, str]:
    """The headers of a preflight."""
    return {**OTHER_ORIGIN_HEADERS, "Access-Control-Request-Method": method, "Access-Control-Request-Headers": headers}


def allowed_origin(response: httpx.Response) -> list[str]:
    """The names of its headers that are about origins."""
    return sorted(name for name in response.headers if name.startswith("access-control-"))


@asynccontextmanager
async def start_app(folder: Path, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Config.load(data=folder, **settings))
    await app.start()
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://forge") as client:
            client.app = app  # type: ignore[attr-defined]
            yield client
    finally:
        await app.stop()


class TestAnyOrigin:
    async def test_every_api_endpoint_sends_cors_headers(self, tmp_path: Path) -> None:
        async with start_app(tmp_path) as client:
            for path in CORS_PATHS:
                for method in ("GET", "DELETE", "PUT"):
                    answer = await client.request(method, path, headers=OTHER_ORIGIN_HEADERS)
                    assert allowed_origin(answer) == ["access-control-allow-origin", "access-control-expose-headers"], (method, path)
                    assert answer.headers["access-control-allow-origin"] == "*"
                    assert "origin" not in answer.headers.get("vary", "").lower()
                assert allowed_origin(await client.get(path)) == []

    async def test_preflights_are_answered_uniformly_and_cached(self, tmp_path: Path) -> None:
        async with start_app(tmp_path) as client:
            answers = [await client.options(path, headers=send_preflight("PUT")) for path in CORS_PATHS]
        for answer in answers:
            assert (answer.status_code, answer.content) == (204, b"")
            assert answer.headers["access-control-allow-origin"] == "*"
            assert answer.headers["access-control-allow-methods"] == "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
            assert {"Authorization", "PRIVATE-TOKEN", "*"} <= set(answer.headers["access-control-allow-headers"].split(", "))
            assert answer.headers["access-control-max-age"] == "7200"
            assert "access-control-allow-credentials" not in answer.headers

    async def test_preflights_of_a_path_with_a_secret_are_logged_without_it(self, tmp_path: Path) -> None:
        states: list[Any] = []
        async with start_app(tmp_path) as client:
            app: App = client.app  # type: ignore[attr-defined]

            async def record(scope: Any, receive: Any, send: Any) -> None:
                scope["state"] = {}
                states.append(scope["state"])
                await app(scope, receive, send)

            async with httpx.AsyncClient(transport=httpx.ASGITransport(record), base_url="http://forge") as recorded:
                for path in ("triggers/s3cret", "triggers"):
                    assert (await recorded.options(f"/api/v3/projects/1/{path}", headers=send_preflight("DELETE"))).status_code == 204
        assert [(state["route"], state.get("secret_path")) for state in states] == [("preflight", True), ("preflight", None)]

    async def test_pages_send_no_cors_headers(self, tmp_path: Path) -> None:
        async with start_app(tmp_path) as client:
            for path in EXCLUDED_PATHS:
                assert allowed_origin(await client.get(path, headers=OTHER_ORIGIN_HEADERS)) == [], path
                assert allowed_origin(await client.options(path, headers=send_preflight())) == [], path

    async def test_plain_options_lists_the_allowed_methods(self, tmp_path: Path) -> None:
        async with start_app(tmp_path) as client:
            answer = await client.options("/api/v3/user", headers=OTHER_ORIGIN_HEADERS)
            assert (answer.status_code, answer.headers["allow"]) == (204, "GET, HEAD, OPTIONS")
            assert (await client.options("/graphql")).headers["allow"] == "GET, POST, OPTIONS"

    async def test_errors_carry_the_headers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without them the browser reports a network error to the page, whatever the answer was."""
        query = {"query": "{ viewer { username } }"}
        async with start_app(tmp_path, rate_limit=100) as client:
            app: App = client.app  # type: ignore[attr-defined]
            client.headers.update(OTHER_ORIGIN_HEADERS)
            make = DataFactory(app.graph.services, tmp_path)
            token = {"PRIVATE-TOKEN": token_of(await make.user())}
            found = {
                401: await client.post("/graphql", json=query),
                405: await client.delete("/graphql"),
                413: await client.post("/graphql", content=b"x" * 2**21, headers={**token, "Content-Type": "application/json"}),
            }
            for _ in range(101):
                found[429] = await client.post("/graphql", json=query, headers=token)

            async def away(*_: object, **__: object) -> None:
                raise ConnectionRefusedError

            monkeypatch.setitem(app._router.by_path, "/graphql", AppRoute("/graphql", away, is_api=True))
            found[503] = await client.post("/graphql", json=query, headers=token)
        for status, answer in found.items():
            assert answer.status_code == status
            assert answer.headers["access-control-allow-origin"] == "*", status
        exposed = found[429].headers["access-control-expose-headers"].lower().split(", ")
        sent = {"retry-after", "x-ratelimit-remaining", "x-request-id"}
        assert sent <= set(found[429].headers)
        assert {*sent, "link", "x-total", "x-next-page", "etag", "content-disposition", "last-event-id"} <= set(exposed)


class TestNamedOrigins:
    async def test_only_named_origins_are_allowed(self, tmp_path: Path) -> None:
        async with start_app(tmp_path, cors_origins=[OTHER_ORIGIN, "http://localhost:3000"]) as client:
            named = await client.get("/api/v3/user", headers=OTHER_ORIGIN_HEADERS)
            assert (named.headers["access-control-allow-origin"], named.headers["vary"]) == (OTHER_ORIGIN, "Origin")
            assert (await client.options("/graphql", headers=send_preflight())).headers["access-control-allow-origin"] == OTHER_ORIGIN
            for origin in ("https://evil.example", "null", f"{OTHER_ORIGIN}.evil.example", f"{OTHER_ORIGIN}:8443"):
                other = await client.get("/api/v3/user", headers={"Origin": origin})
                assert (allowed_origin(other), other.headers["vary"]) == ([], "Origin")
                refused = await client.options("/graphql", headers={**send_preflight(), "Origin": origin})
                assert (refused.status_code, allowed_origin(refused)) == (403, [])
                assert "FORGEFRONT_CORS_ORIGINS" in refused.json()["message"]
            assert (await client.get("/api/v3/user")).headers["vary"] == "Origin"

    async def test_anonymous(self, tmp_path: Path) -> None:
        async with start_app(tmp_path, cors_origins="none") as client:
            assert allowed_origin(await client.get("/api/v3/user", headers=OTHER_ORIGIN_HEADERS)) == []

    @pytest.mark.parametrize(
        "wrong", ["app.example.com", "https://app.example.com/", "https://*.example.com", "*,https://a.example", "null", ["*", "x"]]
    )
    def test_rejects_invalid_origins(self, wrong: Any, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="cors_origins: must be"):
            Config.load(data=tmp_path, cors_origins=wrong)


class TestWebSockets:
    """A browser does not ask before it opens one; the credential is in its first message, which a page must have been given."""

    @pytest.fixture
    def dialect(self) -> str:
        return "sqlite"

    @staticmethod
    async def status(server: ServerProcess, origin: str) -> int:
        address = server.url.replace("http", "ws", 1) + "/graphql"
        try:
            async with connect(address, subprotocols=[Subprotocol("graphql-transport-ws")], origin=Origin(origin), proxy=None):
                return 101
        except InvalidStatus as refused:
            return refused.response.status_code

    async def test_named_origins_apply_to_websockets(self, database_url: str, services: Services, tmp_path: Path) -> None:
        with run_server(tmp_path, database_url, cors_origins=OTHER_ORIGIN) as server:
            own = server.url.replace("127.0.0.1", "localhost")
            found = {
                origin: await self.status(server, origin) for origin in (OTHER_ORIGIN, server.url, "https://evil.example", "null", own)
            }
        assert found == {OTHER_ORIGIN: 101, server.url: 101, "https://evil.example": 403, "null": 403, own: 403}

    async def test_any_origin(self, database_url: str, services: Services, tmp_path: Path) -> None:
        with run_server(tmp_path, database_url) as server:
            assert await self.status(server, "https://evil.example") == 101


@asynccontextmanager
async def other_origin_page() -> AsyncIterator[str]:
    """The address of an empty page on a port of its own, which is another origin."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Browsers open connections that they then do not use.
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 22\r\nConnection: close\r\n\r\n<!doctype html><main/>"
            )
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


SCRIPT = """(async () => {
  const [url, token, project, build] = %s;
  const found = {};
  const json = { "PRIVATE-TOKEN": token, "Content-Type": "application/json" };
  const ask = async (query, variables, headers = json) => {
    const response = await fetch(`${url}/graphql`, { method: "POST", headers, body: JSON.stringify({ query, variables }) });
    return { status: response.status, body: await response.json(), id: response.headers.get("X-Request-Id") };
  };
  found.query = await ask("{ viewer { username } }");
  found.bearer = await ask("{ viewer { username } }", {}, { "Content-Type": "application/json", Authorization: `Bearer ${token}` });
  found.wrong = await ask("{ viewer { username } }", {}, { ...json, "PRIVATE-TOKEN": "wrong" });
  const events = await fetch(`${url}/graphql`, {
    method: "POST",
    headers: { ...json, Accept: "text/event-stream", "Last-Event-ID": "0" },
    body: JSON.stringify({ query: "subscription { buildChanged { build { status } } }" }),
  });
  const update = "mutation($i: UpdateBuildInput!) { updateBuild(input: $i) { build { status } userErrors { message } } }";
  found.mutation = await ask(update, { i: { projectPath: project, databaseId: build, status: "RUNNING" } });
  const reader = events.body.pipeThrough(new TextDecoderStream()).getReader();
  for (found.event = ""; !found.event.includes("event: next");) found.event += (await reader.read()).value;
  await reader.cancel();
  const trend = `${url}/q/D05_DurationTrend.json?p=${project}&since=2026-01-01T00:00:00Z`;
  const question = await fetch(trend, { headers: { "PRIVATE-TOKEN": token } });
  found.question = { status: question.status, etag: question.headers.get("ETag"), kind: question.headers.get("Content-Type") };
  const list = await fetch(`${url}/api/v3/projects/${project}/issues`, { headers: { "PRIVATE-TOKEN": token } });
  found.list = { status: list.status, total: list.headers.get("X-Total"), link: list.headers.get("Link") };
  const form = new FormData();
  form.append("file", new Blob(["hello"], { type: "text/plain" }), "hello.txt");
  const uploads = `${url}/api/v3/projects/${project}/uploads`;
  const upload = await fetch(uploads, { method: "POST", headers: { "PRIVATE-TOKEN": token }, body: form });
  found.upload = upload.status;
  const address = `${url}/olga/forge${/\\((\\/.*)\\)/.exec((await upload.json()).markdown)[1]}`;
  const file = await fetch(address, { headers: { "PRIVATE-TOKEN": token } });
  found.file = { status: file.status, text: await file.text(), name: file.headers.get("Content-Disposition") };
  found.large = [];
  for (let number = 0; number < 10; number++) {
    const large = await fetch(`${url}/graphql`, { method: "POST", headers: json, body: "x".repeat(3_000_000) });
    found.large.push(large.status);
  }
  found.deleted = (await fetch(`${url}/graphql`, { method: "DELETE", headers: json })).status;
  found.ambient = await fetch(trend, { credentials: "include" }).then((r) => r.status, (error) => error.name);
  for (let number = 0; number < 5; number++) await ask("{ viewer { username } }");
  return found;
})()"""


@pytest.mark.skipif(CHROMIUM is None, reason="NOT RUN: chromium (apt install chromium)")
@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
async def test_a_browser_calls_from_another_origin(database_url: str, services: Services, make: DataFactory, tmp_path: Path) -> None:
    owner = await make.user("olga")
    project = await make.project(path="forge", owner=owner, builds_enabled=True)
    waiting = await make.build(project, "f" * 40)
    await make.issue(project)
    with run_server(tmp_path, database_url) as server:
        async with other_origin_page() as address, open_chromium() as page:
            await page.open(address)
            await page.wait_for("document.querySelector('main')")
            arguments = json.dumps([server.url, token_of(owner), str(project.id), waiting.id])
            found = await page.evaluate("await " + SCRIPT % arguments)
        lines = server.log_entries(event="request", method="OPTIONS")
    viewer = {"data": {"viewer": {"username": "olga"}}}
    assert (found["query"]["status"], found["query"]["body"]) == (200, viewer)
    assert found["query"]["id"]
    assert found["bearer"]["body"] == viewer
    assert (found["wrong"]["status"], found["wrong"]["body"]["data"]) == (401, None)
    assert found["mutation"]["body"] == {"data": {"updateBuild": {"build": {"status": "RUNNING"}, "userErrors": []}}}
    assert '{"data":{"buildChanged":{"build":{"status":"RUNNING"}}}}' in found["event"]
    assert (found["question"]["status"], found["question"]["kind"]) == (200, "application/json")
    assert found["question"]["etag"]
    assert (found["list"]["status"], found["list"]["total"]) == (200, "1")
    assert found["list"]["link"]
    assert found["upload"] in (200, 201)
    assert found["file"] == {"status": 200, "text": "hello", "name": 'attachment; filename="hello.txt"'}
    assert (found["large"], found["deleted"]) == ([413] * 10, 405)
    assert found["ambient"] == "TypeError", "no browser shows an answer to credentials of its own, or asks for them"
    to_graphql = [line for line in lines if line["path"] == "/graphql"]
    # One for each set of headers and method; the rest was remembered.
    assert len(to_graphql) <= 4, to_graphql
