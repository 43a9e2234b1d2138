"""Artifacts over HTTP: PUT /-/artifacts/TICKET, and GET /api/v3/projects/:id/builds/:build_id/artifacts."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

import rest_v3
from forgefront.endpoints.artifact_uploads import PATH_PATTERN, ArtifactUploadEndpoint
from forgefront.server.http_connection import ConnectionTimeouts, create_connection_class
from forgefront.server.metrics import Metrics
from forgefront.server.middleware import RequestMiddleware
from graph.artifact_access import ArtifactAccess
from graph.operations.execution import Graph
from rest_v3.endpoints.file_downloads import content_disposition, parse_range
from storage import tables
from storage.database.errors import is_unavailable
from storage.tables import AccessLevel
from tests.graph.builds.test_artifacts import create_build, create_upload_ticket, files
from tests.make import DataFactory, token_of
from tests.rest_v3.support.interface_rules import cites
from tests.support.api_clients import Api, Ask, route_operations

CONTENT = bytes(range(256)) * 4096
"""A mebibyte."""


def address(build: tables.Build) -> str:
    return f"/projects/{build.project_id}/builds/{build.id}/artifacts"


@pytest.fixture
async def app(graph: Graph) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=ArtifactUploadEndpoint(ArtifactAccess(graph.services)))
    async with httpx.AsyncClient(transport=transport, base_url="http://forge") as client:
        yield client


class TestUpload:
    async def test_an_uploaded_artifact_is_downloaded(self, app: httpx.AsyncClient, ask: Ask, api: Api, make: DataFactory) -> None:
        owner, build = await create_build(make)
        ticket = await create_upload_ticket(ask, owner, build, "../out.zip")

        response = await app.put(f"/-/artifacts/{ticket}", content=CONTENT)

        assert (response.status_code, response.json()) == (201, {"filename": "out.zip", "size": len(CONTENT)})
        assert (await api.get(address(build), owner)).content == CONTENT

    async def test_a_used_ticket_is_a_conflict(self, app: httpx.AsyncClient, ask: Ask, make: DataFactory) -> None:
        owner, build = await create_build(make)
        ticket = await create_upload_ticket(ask, owner, build)
        await app.put(f"/-/artifacts/{ticket}", content=b"first")

        response = await app.put(f"/-/artifacts/{ticket}", content=b"second")

        assert response.status_code == 409
        assert response.json() == {
            "message": "The upload URL was already used, or the build has another artifact or attempt now. Request another one."
        }
        assert files(make.services) == 1

    async def test_an_expired_ticket_is_forbidden(self, ask: Ask, make: DataFactory, graph: Graph) -> None:
        owner, build = await create_build(make)
        ticket = await create_upload_ticket(ask, owner, build)
        later = replace(graph.services, clock=lambda: datetime.now(UTC) + timedelta(minutes=61))
        transport = httpx.ASGITransport(app=ArtifactUploadEndpoint(ArtifactAccess(later)))

        async with httpx.AsyncClient(transport=transport, base_url="http://forge") as client:
            response = await client.put(f"/-/artifacts/{ticket}", content=b"x")

        assert (response.status_code, response.json()) == (403, {"message": "The upload URL has expired. Request another one."})

    async def test_an_unknown_ticket_is_not_found(self, app: httpx.AsyncClient) -> None:
        response = await app.put("/-/artifacts/gAAAAABnothing", content=b"x")

        assert (response.status_code, response.json()) == (404, {"message": "404 Not Found"})

    async def test_only_put_is_allowed(self, app: httpx.AsyncClient) -> None:
        response = await app.get("/-/artifacts/x")

        assert (response.status_code, response.headers["Allow"]) == (405, "PUT")

    @pytest.mark.parametrize("declared", [True, False])
    async def test_too_large_a_request_is_rejected(self, ask: Ask, make: DataFactory, graph: Graph, declared: bool) -> None:
        owner, build = await create_build(make)
        ticket = await create_upload_ticket(ask, owner, build)
        small = replace(graph.services, max_artifact_bytes=4)
        read = 0

        async def body() -> AsyncIterator[bytes]:
            nonlocal read
            for piece in (b"abc", b"def", b"ghi"):
                read += len(piece)
                yield piece

        headers = {"Content-Length": "9"} if declared else {}
        transport = httpx.ASGITransport(app=ArtifactUploadEndpoint(ArtifactAccess(small)))
        async with httpx.AsyncClient(transport=transport, base_url="http://forge") as client:
            response = await client.put(f"/-/artifacts/{ticket}", content=body(), headers=headers)

        assert (response.status_code, response.json()) == (413, {"message": "413 Request Entity Too Large"})
        assert (read, files(make.services)) == (0 if declared else 6, 0)

    async def test_a_full_disk_is_507(self, app: httpx.AsyncClient, ask: Ask, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        owner, build = await create_build(make)
        ticket = await create_upload_ticket(ask, owner, build)

        async def full(*_: Any) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(make.services.objects, "put", full)

        assert (await app.put(f"/-/artifacts/{ticket}", content=b"x")).status_code == 507


class TestDownload:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("a b.zip", b'attachment; filename="a b.zip"'),
            ('a";\\.zip', b"attachment; filename*=UTF-8''a%22%3B%5C.zip; filename=\"a___.zip\""),
            ("Über%.zip", b"attachment; filename*=UTF-8''%C3%9Cber%25.zip; filename=\"_ber_.zip\""),
        ],
    )
    def test_content_disposition_has_both_forms_of_the_name(self, name: str, expected: bytes) -> None:
        """RFC 6266; the client of rb37 takes what follows the last `filename=`, without its quotes."""
        assert content_disposition(name) == expected

    async def test_is_served_as_an_inert_attachment(self, api: Api, make: DataFactory) -> None:
        owner, build = await create_build(make)
        await make.artifact(build, b"<script>", filename="a.html")

        response = await api.get(address(build), owner)

        assert (response.status_code, response.content) == (200, b"<script>")
        assert response.headers["Content-Type"] == "application/octet-stream"
        assert response.headers["Content-Disposition"] == 'attachment; filename="a.html"'
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
        assert (response.headers["Content-Length"], response.headers["Accept-Ranges"]) == ("8", "bytes")

    @cites("Errors: 404 for missing artifacts")
    async def test_is_404_without_one(self, api: Api, make: DataFactory) -> None:
        owner, build = await create_build(make)
        missing = {"message": "404 Not Found"}

        for path in (
            address(build),
            address(build).replace(f"builds/{build.id}", "builds/99"),
            address(build).replace("builds/1", "builds/x"),
        ):
            response = await api.get(path, owner)
            assert (response.status_code, response.json()) == (404, missing)
        response = await api.get("/projects/99/builds/1/artifacts", owner)
        assert (response.status_code, response.json()) == (404, {"message": "404 Project Not Found"})

    async def test_is_404_when_the_file_is_missing(self, api: Api, make: DataFactory) -> None:
        owner, build = await create_build(make)
        await make.services.objects.delete((await make.artifact(build)).key)

        response = await api.get(address(build), owner)

        assert (response.status_code, response.json()) == (404, {"message": "404 Not Found"})

    async def test_requires_permission_to_see_builds(self, api: Api, make: DataFactory) -> None:
        guest, outsider = await make.user(), await make.user()
        build = await make.build(await make.project(members=[(guest, AccessLevel.GUEST)]), "a" * 40)
        await make.artifact(build)

        assert (await api.get(address(build), guest)).status_code == 403
        assert (await api.get(address(build), outsider)).status_code == 404
        assert (await api.get(address(build))).status_code == 401

    async def test_an_earlier_attempt_has_its_own(self, api: Api, make: DataFactory) -> None:
        owner, build = await create_build(make)
        project = await make.fetch(tables.Project, build.project_id)
        assert project is not None
        past = await make.build(project, "a" * 40, current_id=build.id)
        await make.artifact(past, b"past")

        assert (await api.get(address(past), owner)).content == b"past"

    @pytest.mark.parametrize(
        ("range_header", "status", "start", "end"),
        [
            ("bytes=0-0", 206, 0, 1),
            ("bytes=2-5", 206, 2, 6),
            ("bytes=5-", 206, 5, 10),
            ("bytes=-3", 206, 7, 10),
            ("bytes=-99", 206, 0, 10),
            ("bytes=8-99999999999999999", 206, 8, 10),
            ("bytes=0-1,3-4", 200, 0, 10),
            ("bytes=5-2", 200, 0, 10),
            ("bytes=-", 200, 0, 10),
            ("bytes=a-b", 200, 0, 10),
            ("lines=1-2", 200, 0, 10),
        ],
    )
    async def test_serves_one_range(self, api: Api, make: DataFactory, range_header: str, status: int, start: int, end: int) -> None:
        owner, build = await create_build(make)
        await make.artifact(build, b"0123456789")

        response = await api.request("GET", address(build), owner, headers={"Range": range_header})

        assert (response.status_code, response.content) == (status, b"0123456789"[start:end])
        assert response.headers["Content-Length"] == str(end - start)
        assert response.headers.get("Content-Range") == (f"bytes {start}-{end - 1}/10" if status == 206 else None)

    @pytest.mark.parametrize("range_header", ["bytes=10-", "bytes=10-20", "bytes=-0"])
    async def test_rejects_a_range_beyond_the_end(self, api: Api, make: DataFactory, range_header: str) -> None:
        owner, build = await create_build(make)
        await make.artifact(build, b"0123456789")

        response = await api.request("GET", address(build), owner, headers={"Range": range_header})

        assert (response.status_code, response.headers["Content-Range"]) == (416, "bytes */10")

    async def test_if_range_of_a_changed_file_returns_the_whole(self, api: Api, make: DataFactory) -> None:
        owner, build = await create_build(make)
        await make.artifact(build, b"0123456789")

        response = await api.request("GET", address(build), owner, headers={"Range": "bytes=1-2", "If-Range": '"x"'})

        assert (response.status_code, response.content) == (200, b"0123456789")

    async def test_many_ranges_are_answered_with_the_whole_file(self) -> None:
        """docs/promises.md (b), range bombs."""
        began = time.thread_time()
        assert parse_range(b"bytes=" + b",".join(b"0-1" for _ in range(20_000)), 10) is None
        assert parse_range(b"bytes=" + b"9" * 60_000 + b"-", 10) is None
        assert time.thread_time() - began < 0.05

    async def test_head_returns_only_the_length(self, api: Api, make: DataFactory) -> None:
        owner, build = await create_build(make)
        await make.artifact(build, b"0123456789")

        response = await api.request("HEAD", address(build), owner, headers={"Range": "bytes=1-2"})

        assert (response.status_code, response.headers["Content-Length"], response.content) == (200, "10", b"")

    async def test_an_empty_one(self, api: Api, make: DataFactory) -> None:
        owner, build = await create_build(make)
        await make.artifact(build, b"")

        assert (await api.get(address(build), owner)).content == b""
        assert (await api.request("GET", address(build), owner, headers={"Range": "bytes=0-"})).status_code == 416


@pytest.fixture
async def port(graph: Graph) -> AsyncIterator[int]:
    """Both endpoints behind the server's protocol, which closes a connection that is idle for a second."""
    uploads = ArtifactUploadEndpoint(ArtifactAccess(graph.services))
    rest = rest_v3.create_app(graph, external_url="http://forge", operations=route_operations())

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        await (uploads if PATH_PATTERN.fullmatch(scope["path"]) else rest)(scope, receive, send)

    listener = socket.create_server(("127.0.0.1", 0))
    app = RequestMiddleware(dispatch, Metrics(), is_unavailable)
    times = create_connection_class(ConnectionTimeouts(header=20, idle=1, keep_alive=30))
    server = uvicorn.Server(uvicorn.Config(app, http=times, lifespan="off", interface="asgi3", log_config=None, access_log=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "capture_signals", contextlib.nullcontext)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            assert not task.done(), task
            await asyncio.sleep(0.01)
        looking = asyncio.create_task(wait_for_upload(server))
        yield listener.getsockname()[1]
        looking.cancel()
        server.should_exit = server.force_exit = True
        await task
    listener.close()


async def wait_for_upload(server: uvicorn.Server) -> None:
    """What the service's own server does once a second."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(0.1)
        for connection in list(server.server_state.connections):
            connection.enforce_timeouts(loop.time())  # type: ignore[union-attr]


async def wait_for_artifacts(number: int, make: DataFactory) -> None:
    async with asyncio.timeout(10):
        while files(make.services) != number:  # noqa: ASYNC110 - what happens is that a file comes or goes
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
class TestStreaming:
    async def put(self, port: int, ticket: str, *headers: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write("\r\n".join([f"PUT /-/artifacts/{ticket} HTTP/1.1", "Host: forge", *headers, "", ""]).encode())
        return reader, writer

    @pytest.mark.parametrize("ends", ["closed", "silent"])
    async def test_an_interrupted_upload_leaves_no_file_and_no_row(self, port: int, ask: Ask, make: DataFactory, ends: str) -> None:
        """docs/promises.md R17."""
        owner, build = await create_build(make)
        ticket = await create_upload_ticket(ask, owner, build)
        reader, writer = await self.put(port, ticket, f"Content-Length: {2 * len(CONTENT)}")
        writer.write(CONTENT)
        await writer.drain()
        await wait_for_artifacts(1, make)
        if ends == "closed":
            writer.close()
        else:
            # The server gives up on who sends nothing more.
            await asyncio.wait_for(reader.read(), 10)

        await wait_for_artifacts(0, make)
        assert await make.count(tables.Artifact) == 0
        writer.close()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            assert (await client.put(f"/-/artifacts/{ticket}", content=CONTENT)).status_code == 201

    async def test_expect_100_continue_is_rejected_before_the_body(self, port: int, ask: Ask, make: DataFactory) -> None:
        """RFC 9110, section 10.1.1."""
        owner, build = await create_build(make)
        headers = ("Content-Length: 99999999999", "Expect: 100-continue")
        reader, writer = await self.put(port, await create_upload_ticket(ask, owner, build), *headers)

        assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
        writer.close()

    async def test_a_body_of_unknown_length(self, port: int, ask: Ask, make: DataFactory) -> None:
        owner, build = await create_build(make)
        reader, writer = await self.put(port, await create_upload_ticket(ask, owner, build), "Transfer-Encoding: chunked")
        writer.write(b"5\r\nbytes\r\n0\r\n\r\n")

        assert (await reader.readline()).startswith(b"HTTP/1.1 201 ")
        assert (await make.fetch(tables.Artifact, 1)) is not None
        writer.close()

    async def fetch(self, port: int, viewer: tables.User, build: tables.Build) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**16)
        request = f"GET /api/v3{address(build)} HTTP/1.1\r\nHost: forge\r\nPRIVATE-TOKEN: {token_of(viewer)}\r\n\r\n"
        writer.write(request.encode())
        return reader, writer

    async def test_a_stalled_reader_is_disconnected(self, port: int, make: DataFactory) -> None:
        owner, build = await create_build(make)
        await make.artifact(build, CONTENT * 32)
        reader, writer = await self.fetch(port, owner, build)

        assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
        await asyncio.sleep(3)
        got = 0
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(2**20):
                got += len(piece)

        assert got < 32 * len(CONTENT)
        writer.close()

    async def test_reading_stops_when_the_client_disconnects(self, port: int, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        owner, build = await create_build(make)
        await make.artifact(build, CONTENT * 32)
        opened = make.services.objects.open
        read, over = 0, asyncio.Event()

        @contextlib.asynccontextmanager
        async def watched(*arguments: Any) -> AsyncIterator[AsyncIterator[bytes]]:
            async def counted(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
                nonlocal read
                async for piece in pieces:
                    read += len(piece)
                    yield piece

            try:
                async with opened(*arguments) as pieces:
                    yield counted(pieces)
            finally:
                over.set()

        monkeypatch.setattr(make.services.objects, "open", watched)
        reader, writer = await self.fetch(port, owner, build)
        await reader.readline()
        writer.transport.abort()

        await asyncio.wait_for(over.wait(), 10)
        assert read < 32 * len(CONTENT)

    async def test_a_file_that_turns_out_shorter_ends_the_connection(self, port: int, make: DataFactory) -> None:
        owner, build = await create_build(make)
        artifact = await make.artifact(build, b"0123456789")
        artifact.size = 20
        await make.save(artifact)

        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/api/v3") as client:
            with pytest.raises(httpx.RemoteProtocolError):
                await client.get(address(build), headers={"PRIVATE-TOKEN": token_of(owner)})
