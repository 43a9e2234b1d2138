"""Subscriptions over a real server: Server-Sent Events and WebSockets, also at a stop."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from graph.context import Services
from storage import tables
from storage.database.engine import Database
from tests.make import DataFactory, token_of
from tests.support.servers.server_process import run_server

CHANGED = "subscription($after: String) { buildChanged(afterSeq: $after) { seq to build { databaseId } } }"
UPDATE = "mutation($i: UpdateBuildInput!) { updateBuild(input: $i) { userErrors { message } } }"
RENAME = "mutation($i: UpdateMergeRequestInput!) { updateMergeRequest(input: $i) { userErrors { message } } }"
MERGE_REQUESTS = "subscription { mergeRequestChanged { seq from to mergeRequest { databaseId } } }"
BRANCHES = "subscription($ps: [String!]!) { branchHealthChanged(projects: $ps) { seq from to name } }"
PROTOCOL = Subprotocol("graphql-transport-ws")
MANUAL = Path(__file__).parents[3] / "docs" / "manual.md"


@dataclass
class StreamServers:
    """Servers over one database, and a project with builds in it."""

    urls: list[str]
    processes: list[subprocess.Popen[str]]
    owner: tables.User
    builds: list[tables.Build]

    @property
    def headers(self) -> dict[str, str]:
        return {"PRIVATE-TOKEN": token_of(self.owner)}

    async def start(self, number: int, *, server: int = 0) -> None:
        """Says of a build that it runs."""
        build = self.builds[number]
        sent = {"projectPath": str(build.project_id), "databaseId": build.id, "status": "RUNNING"}
        async with httpx.AsyncClient(headers=self.headers) as client:
            answer = await client.post(f"{self.urls[server]}/graphql", json={"query": UPDATE, "variables": {"i": sent}})
        assert answer.json() == {"data": {"updateBuild": {"userErrors": []}}}

    async def rename(self, row: tables.MergeRequest, title: str, *, server: int = 0) -> None:
        sent = {"projectPath": str(row.project_id), "databaseId": row.id, "title": title}
        async with httpx.AsyncClient(headers=self.headers) as client:
            answer = await client.post(f"{self.urls[server]}/graphql", json={"query": RENAME, "variables": {"i": sent}})
        assert answer.json() == {"data": {"updateMergeRequest": {"userErrors": []}}}

    @asynccontextmanager
    async def stream(
        self, query: str = CHANGED, *, server: int = 0, last: str | None = None, **variables: Any
    ) -> AsyncIterator["SseReader"]:
        """`last` is the id that was seen last."""
        headers = {**self.headers, "Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        async with httpx.AsyncClient(headers=headers, timeout=10) as client:
            sent = {"query": query, "variables": variables}
            async with client.stream("POST", f"{self.urls[server]}/graphql", json=sent) as response:
                assert response.status_code == 200
                assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
                assert response.headers["cache-control"] == "no-store"
                yield SseReader(response.aiter_lines())

    @asynccontextmanager
    async def socket(self, *, init: Any = None, protocols: tuple[str, ...] = (PROTOCOL,)) -> AsyncIterator["GraphqlWebSocket"]:
        address = self.urls[0].replace("http", "ws", 1) + "/graphql"
        async with connect(address, subprotocols=[Subprotocol(name) for name in protocols] or None, proxy=None) as connection:
            socket = GraphqlWebSocket(connection)
            if init is not None:
                await socket.send(type="connection_init", payload=init)
                acknowledged = await socket.next()
                assert acknowledged["type"] == "connection_ack"
                socket.position = acknowledged["payload"]["seq"]
            yield socket


class SseReader:
    """What comes on a stream."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self.positions: list[str] = []
        """The ids that came without an event."""

    async def next(self) -> tuple[str, str | None, Any]:
        """(event, id, data)"""
        found: dict[str, str] = {}
        async for line in self._lines:
            name, _, value = line.partition(":")
            if name:
                found[name] = value.strip()
            elif line == "" and "event" in found:
                return found["event"], found.get("id"), json.loads(found["data"]) if found["data"] else None
            elif line == "":
                self.positions.append(found["id"])
                found.clear()
        raise EOFError("the response ended without `complete`")

    async def builds(self, number: int) -> list[int]:
        found = []
        for _ in range(number):
            kind, mark, data = await self.next()
            assert kind == "next"
            assert mark == data["data"]["buildChanged"]["seq"]
            found.append(data["data"]["buildChanged"]["build"]["databaseId"])
        return found

    async def seqs(self, number: int) -> list[str]:
        """The numbers of the next events, as the stream marks them."""
        found = []
        for _ in range(number):
            kind, mark, data = await self.next()
            (event,) = data["data"].values()
            assert (kind, mark) == ("next", event["seq"])
            found.append(event["seq"])
        return found

    async def until(self, to: str) -> list[tuple[str | None, str]]:
        """The events up to the one that comes to this, as (from, to)."""
        found: list[tuple[str | None, str]] = []
        while not found or found[-1][1] != to:
            _, _, data = await self.next()
            (event,) = data["data"].values()
            found.append((event["from"], event["to"]))
        return found


class GraphqlWebSocket:
    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.position: str | None = None
        """Number of the newest event when the socket was opened."""

    async def send(self, **message: Any) -> None:
        await self.connection.send(json.dumps(message))

    async def next(self) -> Any:
        async with asyncio.timeout(10):
            return json.loads(await self.connection.recv())

    async def closed(self) -> int:
        """The code with which it closes."""
        with pytest.raises(ConnectionClosed) as found:
            while True:
                await self.next()
        assert found.value.rcvd is not None
        return found.value.rcvd.code


async def create_project(services: Services, make: DataFactory) -> tuple[tables.User, list[tables.Build]]:
    owner = await make.user("olga")
    project = await make.project(owner=owner, builds_enabled=True)
    return owner, [await make.build(project, "f" * 40) for _ in range(8)]


@pytest.fixture
async def forge(database_url: str, services: Services, make: DataFactory, tmp_path: Path) -> AsyncIterator[StreamServers]:
    """One server."""
    owner, builds = await create_project(services, make)
    with run_server(tmp_path, database_url) as one:
        yield StreamServers([one.url], [one.process], owner, builds)


ONE_DATABASE = pytest.mark.parametrize("dialect", ["sqlite"])
"""The endpoint is the same over either. A test that skips itself on the other would not run where that one is chosen for it."""


@ONE_DATABASE
class TestServerSentEvents:
    async def test_events_resumed_and_stopped(self, forge: StreamServers) -> None:
        async with forge.stream() as events:
            for number in range(3):
                await forge.start(number)
            assert await events.builds(3) == [build.id for build in forge.builds[:3]]
        async with forge.stream(after="1") as again, forge.stream() as other:
            assert await again.builds(2) == [build.id for build in forge.builds[1:3]]
            async with httpx.AsyncClient() as client:
                assert "forgefront_graphql_streams 2.0" in (await client.get(f"{forge.urls[0]}/-/metrics")).text
            forge.processes[0].send_signal(signal.SIGTERM)
            # graphql-sse takes `complete` for the end of the subscription.
            for stream in (again, other):
                with pytest.raises(EOFError):
                    await stream.next()
            assert (again.positions, other.positions) == (["1"], ["3"])
        assert forge.processes[0].wait(10) == 0

    async def test_rejects_requests_that_are_not_streams(self, forge: StreamServers) -> None:
        """One server for all of it, since it takes a second to start."""
        async with forge.stream("{ viewer { username } }") as events:
            assert await events.next() == ("next", None, {"data": {"viewer": {"username": "olga"}}})
            assert await events.next() == ("complete", None, None)
        url, accept = f"{forge.urls[0]}/graphql", {"Accept": "text/event-stream"}
        async with httpx.AsyncClient(headers=forge.headers) as client:
            for values in ({}, {"Accept": "application/json"}, {"Accept": "application/graphql-response+json"}):
                answer = await client.post(url, json={"query": CHANGED}, headers=values)
                assert answer.status_code == 406
                assert "text/event-stream" in answer.json()["errors"][0]["message"]
            for mixed in ("application/json, text/event-stream", "text/event-stream;q=0.1, application/graphql-response+json"):
                async with client.stream("POST", url, json={"query": CHANGED}, headers={"Accept": mixed}) as answer:
                    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
                answer = await client.post(url, json={"query": "{ viewer { username } }"}, headers={"Accept": mixed})
                assert answer.json() == {"data": {"viewer": {"username": "olga"}}}
            answer = await client.post(url, json={"query": "subscription { nothing }"}, headers=accept)
            assert (answer.status_code, answer.json()["errors"][0]["extensions"]["code"]) == (400, "BAD_REQUEST")
            answer = await client.get(url, params={"query": "mutation { a }"}, headers=accept)
            assert answer.status_code == 400
            answer = await client.get(url, params={"query": CHANGED})
            assert answer.status_code == 405
        async with httpx.AsyncClient(headers=accept) as client:
            assert (await client.post(url, json={"query": CHANGED})).status_code == 401
        await forge.start(0)
        await forge.start(1)
        async with (
            httpx.AsyncClient(headers={**forge.headers, **accept, "Last-Event-ID": "1"}) as client,
            client.stream("GET", url, params={"query": CHANGED}) as response,
        ):
            assert await SseReader(response.aiter_lines()).builds(1) == [forge.builds[1].id]


@ONE_DATABASE
async def test_one_user_has_a_share_of_the_streams(database_url: str, services: Services, make: DataFactory, tmp_path: Path) -> None:
    owner, builds = await create_project(services, make)
    other = await make.user()
    limit = "You have 2 streams and WebSockets open, the limit for one user"
    with run_server(tmp_path, database_url, streams_per_viewer="2") as one:
        forge = StreamServers([one.url], [one.process], owner, builds)
        url, accept = f"{one.url}/graphql", {"Accept": "text/event-stream"}
        async with forge.stream(), forge.stream():
            async with httpx.AsyncClient(headers={**forge.headers, **accept}) as client:
                answer = await client.post(url, json={"query": CHANGED})
                assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
                assert answer.json()["errors"][0]["message"].startswith(limit)
                assert answer.json()["errors"][0]["extensions"]["code"] == "LIMIT_EXCEEDED"
            async with forge.socket() as socket:
                await socket.send(type="connection_init", payload=forge.headers)
                assert await socket.closed() == 4429
                assert socket.connection.close_reason == limit
            async with forge.socket(init={"PRIVATE-TOKEN": token_of(other)}) as socket:
                for id in ("a", "b"):
                    await socket.send(type="subscribe", id=id, payload={"query": CHANGED})
                refused = await socket.next()
                assert (refused["type"], refused["id"], refused["payload"][0]["extensions"]["code"]) == ("error", "b", "LIMIT_EXCEEDED")


class TestSeveralProcesses:
    async def test_events_reach_streams_of_another_server(
        self, database_url: str, dialect: str, services: Services, make: DataFactory, tmp_path: Path
    ) -> None:
        """All is numbered together, whichever process wrote it; who was cut off goes on at the other one."""
        if dialect == "sqlite":
            pytest.skip("it has one server process")
        owner = await make.user("olga")
        project = await make.indexed(await make.project(owner=owner, history={"commits": 2}, builds_enabled=True))
        tip = await services.repositories.read(project.id, lambda repository: repository.find_ref("refs/heads/master"))
        assert tip is not None
        row, builds = await make.merge_request(project), [await make.build(project, tip) for _ in range(8)]
        with (
            run_server(tmp_path, database_url, tmp_path / "one.log") as one,
            run_server(tmp_path, database_url, tmp_path / "two.log") as two,
        ):
            forge = StreamServers([one.url, two.url], [one.process, two.process], owner, builds)
            paths = {"ps": [str(project.id)]}
            async with (
                forge.stream(server=0) as first,
                forge.stream(server=1) as second,
                forge.stream(MERGE_REQUESTS, server=0) as third,
                forge.stream(MERGE_REQUESTS, server=1) as fourth,
                forge.stream(BRANCHES, server=0, **paths) as fifth,
                forge.stream(BRANCHES, server=1, **paths) as sixth,
            ):
                renamed = (forge.rename(row, f"Title {number}", server=number % 2) for number in range(6))
                await asyncio.gather(*renamed, *(forge.start(number, server=number % 2) for number in range(8)))
                seen = await first.builds(8)
                assert await second.builds(8) == seen
                assert sorted(seen) == sorted(build.id for build in builds)
                numbers = await third.seqs(6)
                assert await fourth.seqs(6) == numbers == sorted(set(numbers), key=int)
                events = await fifth.until("RUNNING")
                assert await sixth.until("RUNNING") == events
                assert all(was != became for was, became in events)
            async with forge.stream(server=1, after="0") as again, forge.stream(MERGE_REQUESTS, server=1, last=numbers[1]) as other:
                assert await again.builds(8) == seen
                assert await other.seqs(4) == numbers[2:]


@ONE_DATABASE
class TestWebSockets:
    async def test_program_of_the_manual_prints_events(self, forge: StreamServers) -> None:
        (program,) = re.findall(r"^```python\n(.*?)^```$", MANUAL.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        arguments = ["-c", program, forge.urls[0].replace("http", "ws", 1) + "/graphql", token_of(forge.owner)]
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            # `recv` returns before the subscription begins; the events of later changes are printed from then on.
            acknowledged = json.loads(await asyncio.wait_for(process.stdout.readline(), 20))
            assert acknowledged["type"] == "connection_ack"
            for number in range(len(forge.builds)):
                await forge.start(number)
                with suppress(TimeoutError):
                    event = json.loads(await asyncio.wait_for(process.stdout.readline(), 1))
                    break
            else:
                raise AssertionError("the program printed no event")
            assert event["payload"]["data"]["buildChanged"]["to"] == "RUNNING"
        finally:
            process.kill()
            await process.wait()

    async def test_operations(self, forge: StreamServers) -> None:
        async with forge.socket(init={"Authorization": f"Bearer {token_of(forge.owner)}"}) as socket:
            await socket.send(type="ping")
            assert await socket.next() == {"type": "pong"}
            await socket.send(type="subscribe", id="q", payload={"query": "{ viewer { username } }"})
            assert await socket.next() == {"type": "next", "id": "q", "payload": {"data": {"viewer": {"username": "olga"}}}}
            assert await socket.next() == {"type": "complete", "id": "q"}
            for id, query in (("e", "{ nothing }"), ("f", None)):
                await socket.send(type="subscribe", id=id, payload={"query": query})
                message = await socket.next()
                assert (message["type"], message["id"], message["payload"][0]["extensions"]["code"]) == ("error", id, "BAD_REQUEST")
            await socket.send(type="subscribe", id="s", payload={"query": CHANGED, "variables": {"after": "0"}})
            await forge.start(0)
            message = await socket.next()
            assert (message["type"], message["id"]) == ("next", "s")
            assert message["payload"]["data"]["buildChanged"]["build"]["databaseId"] == forge.builds[0].id
            await socket.send(type="complete", id="s")
            await forge.start(1)
            await socket.send(type="subscribe", id="s", payload={"query": CHANGED, "variables": {"after": "1"}})
            assert (await socket.next())["payload"]["data"]["buildChanged"]["seq"] == "2"
            await socket.send(type="subscribe", id="s", payload={"query": CHANGED})
            assert await socket.closed() == 4409
        async with forge.socket(init={"PRIVATE-TOKEN": token_of(forge.owner)}) as socket:
            forge.processes[0].send_signal(signal.SIGTERM)
            assert await socket.closed() == 1012
        assert forge.processes[0].wait(10) == 0

    async def test_close_codes(self, forge: StreamServers, services: Services) -> None:
        good = {"PRIVATE-TOKEN": token_of(forge.owner)}
        for protocols in (("graphql-ws",), ()):
            with pytest.raises(InvalidStatus) as refused:
                async with forge.socket(protocols=protocols):
                    pass
            assert refused.value.response.status_code == 403
        for first, code in (
            ({"type": "subscribe", "id": "a", "payload": {"query": CHANGED}}, 4401),
            ({"type": "connection_init", "payload": {"PRIVATE-TOKEN": "wrong"}}, 4403),
            ({"type": "connection_init"}, 4403),
            ({"type": "connection_init", "payload": []}, 4400),
            ({"type": 1}, 4400),
        ):
            async with forge.socket() as socket:
                await socket.send(**first)  # type: ignore[arg-type]
                assert await socket.closed() == code
        for second, code in (
            ({"type": "connection_init", "payload": good}, 4429),
            ({"type": "start", "id": "a"}, 4400),
            ({"type": "subscribe", "payload": {"query": CHANGED}}, 4400),
        ):
            async with forge.socket(init=good) as socket:
                await socket.send(**second)  # type: ignore[arg-type]
                assert await socket.closed() == code
        async with forge.socket(init=good) as socket:
            for number in range(51):
                await socket.send(type="subscribe", id=str(number), payload={"query": CHANGED})
            assert await socket.closed() == 4429
        async with forge.socket() as silent, forge.socket(init=good) as socket:
            await socket.connection.send(b"\x00")
            assert await socket.closed() == 4400
            assert await silent.closed() == 4408
        async with forge.socket(init=good) as socket, forge.stream() as events:
            database: Database = services.database
            async with database.write_session() as session:
                owner = await session.get(tables.User, forge.owner.id)
                owner.state = tables.UserState.BLOCKED
                await session.commit()
            async with asyncio.timeout(5):
                assert await socket.closed() == 4403
                kind, _, data = await events.next()
                assert (kind, data["errors"][0]["extensions"]["code"]) == ("next", "UNAUTHENTICATED")
                assert (await events.next())[0] == "complete"
