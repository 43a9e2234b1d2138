"""The GraphQL endpoint: how it reads HTTP requests, and what it answers. Most tests use a stub of the graph."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import structlog
from starlette.requests import ClientDisconnect

from graph.errors import Code
from graph.http.endpoint import make_graphql_app
from graph.operations import limits
from graph.operations.execution import ErrorEntry, Graph, OperationResult
from tests.make import DataFactory, token_of

RESPONSE = "application/graphql-response+json"
PLAIN = "application/json"


@dataclass
class StubGraph:
    """Records its requests, and returns `outcome`."""

    result: OperationResult | Exception = field(default_factory=lambda: OperationResult({"__typename": "Query"}))
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    async def run_document(
        self,
        query: str,
        variables: dict[str, Any],
        operation_name: str | None,
        credential: str | None,
        *,
        request_id: str,
        checks: Any = None,
    ) -> OperationResult:
        self.calls.append((query, variables, operation_name, credential))
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    async def kind_of(self, query: str, operation_name: str | None, credential: str | None, *, request_id: str) -> str | None:
        return query.split()[0] if query.split()[0] in ("mutation", "subscription") else "query"


@asynccontextmanager
async def client_of(graph: Any) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=make_graphql_app(graph), raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://forge.example/graphql") as client:
        client.headers.pop("accept")
        yield client


@pytest.fixture
def fake() -> StubGraph:
    return StubGraph()


@pytest.fixture
async def client(fake: StubGraph) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(fake) as client:
        yield client


def problem(response: httpx.Response, status: int, code: Code = Code.BAD_REQUEST) -> str:
    """The message of an answer that has nothing but one error."""
    assert response.status_code == status
    assert response.headers["content-type"].startswith("application/")
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-content-type-options"] == "nosniff"
    body = response.json()
    assert body.keys() == {"errors"}
    (error,) = body["errors"]
    assert error["extensions"].keys() == {"code", "requestId"}
    assert error["extensions"]["code"] == code
    return str(error["message"])


class TestPost:
    async def test_an_operation_with_everything(self, client: httpx.AsyncClient, fake: StubGraph) -> None:
        sent = {"query": "query A { a }", "operationName": "A", "variables": {"x": [1]}, "extensions": {"y": 1}, "other": 1}
        response = await client.post("", json=sent)
        assert response.status_code == 200
        assert response.json() == {"data": {"__typename": "Query"}}
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert fake.calls == [("query A { a }", {"x": [1]}, "A", None)]

    async def test_nulls_are_as_if_not_sent(self, client: httpx.AsyncClient, fake: StubGraph) -> None:
        await client.post("", json={"query": "{a}", "operationName": None, "variables": None, "extensions": None})
        assert fake.calls == [("{a}", {}, None, None)]

    @pytest.mark.parametrize(
        "kind",
        [
            None,
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "application/graphql",
            RESPONSE,
            "application/jsonx",
            "application/json; charset=utf-16",
        ],
    )
    async def test_other_content_types(self, client: httpx.AsyncClient, fake: StubGraph, kind: str | None) -> None:
        response = await client.post("", content=b'{"query":"{a}"}', headers={"content-type": kind} if kind else {})
        problem(response, 415)
        assert fake.calls == []

    @pytest.mark.parametrize("kind", ["application/json;charset=UTF-8", 'Application/JSON; charset="utf-8"', "application/json;"])
    async def test_variants_of_the_content_type(self, client: httpx.AsyncClient, kind: str) -> None:
        response = await client.post("", content='{"query":"{a(b:\\"🏃\\")}"}'.encode(), headers={"content-type": kind})
        assert response.status_code == 200

    async def test_compressed_bodies_are_not_unpacked(self, client: httpx.AsyncClient) -> None:
        headers = {"content-type": PLAIN, "content-encoding": "gzip"}
        problem(await client.post("", content=b"\x1f\x8b", headers=headers), 415)

    @pytest.mark.parametrize(
        "body",
        [b"", b"{", b"\xff", b'{"query":"\xff"}', b'{"query": NaN}', b'{"query":"\\ud800"}', b"null", b'"{a}"', b"1", b"[]"]
        + [b'[{"query":"{a}"}]', b"{}", b'{"query":null}', b'{"query":""}', b'{"query":["{a}"]}', b'{"query":{"a":1}}']
        + [b'{"query":"{a}","operationName":%s}' % value for value in (b"0", b"false", b"[]", b"{}")]
        + [b'{"query":"{a}","variables":%s}' % value for value in (b"0", b"false", b'"{}"', b"[]")]
        + [b'{"query":"{a}","extensions":%s}' % value for value in (b"0", b"false", b'"{}"', b"[]")],
    )
    async def test_wrong_shapes(self, client: httpx.AsyncClient, fake: StubGraph, body: bytes) -> None:
        problem(await client.post("", content=body, headers={"content-type": PLAIN}), 400)
        assert fake.calls == []

    async def test_batches_are_rejected_with_advice(self, client: httpx.AsyncClient) -> None:
        response = await client.post("", json=[{"query": "{a}"}] * 10)
        assert problem(response, 400) == "Batches are not supported: send one operation per request."

    async def test_json_is_at_most_64_deep(self, client: httpx.AsyncClient, fake: StubGraph) -> None:
        def nested(depth: int) -> bytes:
            return b'{"query":"{a}","variables":{"x":' + b"[" * (depth - 2) + b"]" * (depth - 2) + b"}}"

        headers = {"content-type": PLAIN}
        assert (await client.post("", content=nested(64), headers=headers)).status_code == 200
        problem(await client.post("", content=nested(65), headers=headers), 400, Code.LIMIT_EXCEEDED)
        problem(await client.post("", content=nested(100_000), headers=headers), 400, Code.LIMIT_EXCEEDED)
        problem(await client.post("", content=b"[" * 1_000, headers=headers), 400)
        assert len(fake.calls) == 1

    async def test_json_has_at_most_20_000_values(self, client: httpx.AsyncClient, fake: StubGraph) -> None:
        def body(*values: object) -> bytes:
            return json.dumps({"query": "{a}", "variables": {"x": values}}).encode()

        headers = {"content-type": PLAIN}
        for values in ([1] * 19_000, ["a,b,[{" * 3_000] * 5, ['"\\",' * 30_000]):
            assert (await client.post("", content=body(*values), headers=headers)).status_code == 200
        for values in ([1] * 20_000, [[]] * 10_000, [{"a": "b"}] * 10_000):
            assert "20,000 values" in problem(await client.post("", content=body(*values), headers=headers), 400, Code.LIMIT_EXCEEDED)
        assert len(fake.calls) == 3


class TestBodyLimit:
    async def test_a_mebibyte_passes(self, client: httpx.AsyncClient) -> None:
        body = b'{"query":"{a}"}'.ljust(limits.MAX_BODY_BYTES)
        assert (await client.post("", content=body, headers={"content-type": PLAIN})).status_code == 200
        problem(await client.post("", content=body + b" ", headers={"content-type": PLAIN}), 413, Code.LIMIT_EXCEEDED)

    async def test_streamed_bytes_are_counted_before_anything_else(self, client: httpx.AsyncClient, fake: StubGraph) -> None:
        sent = 0

        async def chunks() -> AsyncIterator[bytes]:
            nonlocal sent
            for _ in range(100):
                sent += 1
                yield b"x" * 65_536

        headers = {"content-type": "text/html", "accept": "text/html"}
        problem(await client.post("", content=chunks(), headers=headers), 413, Code.LIMIT_EXCEEDED)
        assert sent < 20
        assert fake.calls == []

    async def test_an_announced_length_is_enough(self, fake: StubGraph) -> None:
        async def receive() -> Any:
            raise AssertionError("nothing is read")

        for length in (b"1048577", b"9" * 5_000):
            start, _ = await call(fake, receive, [(b"content-length", length)])
            assert start["status"] == 413

    async def test_a_disconnected_client_gets_no_response(self, fake: StubGraph) -> None:
        async def receive() -> Any:
            return {"type": "http.disconnect"}

        with pytest.raises(ClientDisconnect):
            await call(fake, receive, [])
        assert fake.calls == []


async def call(graph: Any, receive: Any, headers: list[tuple[bytes, bytes]]) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/graphql", "query_string": b"", "headers": headers}
    await make_graphql_app(graph)(scope, receive, send)
    return sent


class TestGet:
    async def test_a_query(self, client: httpx.AsyncClient, fake: StubGraph) -> None:
        params = {"query": "query A { a }", "operationName": "A", "variables": '{"x": "ä"}', "extensions": "{}", "private_token": "t"}
        response = await client.get("", params=params)
        assert response.status_code == 200
        assert fake.calls == [("query A { a }", {"x": "ä"}, "A", None)]

    @pytest.mark.parametrize("query", ["mutation { a }", "subscription { a }"])
    async def test_only_queries(self, client: httpx.AsyncClient, fake: StubGraph, query: str) -> None:
        response = await client.get("", params={"query": query}, headers={"accept": RESPONSE})
        problem(response, 405)
        assert response.headers["allow"] == "POST"
        assert fake.calls == []

    @pytest.mark.parametrize(
        "parameters",
        [
            "",
            "query",
            "query=",
            "notquery={a}",
            "query={a}&query={b}",
            "query={a}&variables=",
            "query={a}&variables=[]",
            "query={a}&variables=1",
            "query={a}&variables=%7B",
            "query={a}&extensions=%22x%22",
            "query=%ff",
            pytest.param("query={a}" + "&x=1" * 1_000, id="a thousand and one"),
        ],
    )
    async def test_wrong_parameters(self, client: httpx.AsyncClient, fake: StubGraph, parameters: str) -> None:
        problem(await client.get(f"?{parameters}"), 400)
        assert fake.calls == []

    async def test_a_body_is_not_read(self, client: httpx.AsyncClient) -> None:
        problem(await client.request("GET", "", json={"query": "{a}"}), 400)


class TestMethods:
    @pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "TRACE", "BREW"])
    async def test_others_are_rejected(self, client: httpx.AsyncClient, fake: StubGraph, method: str) -> None:
        response = await client.request(method, "", params={"query": "{a}"}, json={"query": "{a}"})
        problem(response, 405)
        assert response.headers["allow"] == "GET, POST, OPTIONS"
        assert fake.calls == []

    async def test_head_has_no_body_to_send(self, client: httpx.AsyncClient, fake: StubGraph) -> None:
        response = await client.head("", params={"query": "{a}"})
        assert (response.status_code, response.headers["allow"], fake.calls) == (405, "GET, POST, OPTIONS", [])

    async def test_options(self, client: httpx.AsyncClient) -> None:
        response = await client.options("")
        assert (response.status_code, response.content) == (204, b"")
        assert response.headers["allow"] == "GET, POST, OPTIONS"
        assert not any(name.startswith("access-control") for name in response.headers)

    async def test_a_websocket_is_rejected_before_it_opens(self, fake: StubGraph) -> None:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        await make_graphql_app(fake)({"type": "websocket", "path": "/graphql", "headers": []}, None, send)  # type: ignore[arg-type]
        assert [message["type"] for message in sent] == ["websocket.close"]

    @pytest.mark.parametrize("sent_before", [0, 1, 2])
    async def test_a_client_that_disconnects_during_a_message_is_no_error(self, graph: Graph, make: DataFactory, sent_before: int) -> None:
        texts = iter(({"type": "connection_init", "payload": {"PRIVATE-TOKEN": token_of(await make.user())}}, {"type": "ping"}))
        is_opened, sent = False, []

        async def receive() -> Any:
            nonlocal is_opened
            if not is_opened:
                is_opened = True
                return {"type": "websocket.connect"}
            return {"type": "websocket.receive", "text": json.dumps(next(texts))}

        async def send(message: Any) -> None:
            if len(sent) == sent_before:
                raise OSError("the client has disconnected")
            sent.append(message)

        scope = {"type": "websocket", "path": "/graphql", "headers": [], "subprotocols": ["graphql-transport-ws"]}
        await make_graphql_app(graph)(scope, receive, send)
        assert len(sent) == sent_before


class TestWebSocketFailures:
    async def test_an_operation_that_fails_unexpectedly_is_logged_and_closes_the_socket(
        self, make: DataFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its client would wait without end."""
        graph, user = Graph(make.services), await make.user()

        async def fail(*_: Any, **__: Any) -> OperationResult:
            raise RuntimeError("broken")

        monkeypatch.setattr(graph, "run_document", fail)
        subscription = {"type": "subscribe", "id": "1", "payload": {"query": "{ viewer { id } }"}}
        texts = [{"type": "connection_init", "payload": {"PRIVATE-TOKEN": token_of(user)}}, subscription]
        messages: list[Any] = [{"type": "websocket.connect"}]
        messages += [{"type": "websocket.receive", "text": json.dumps(text)} for text in texts]
        sent: list[Any] = []

        async def receive() -> Any:
            if messages:
                return messages.pop(0)
            return await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "websocket", "path": "/graphql", "headers": [], "subprotocols": ["graphql-transport-ws"]}
        with structlog.testing.capture_logs() as entries:
            async with asyncio.timeout(10):
                await make_graphql_app(graph)(scope, receive, send)
        assert sent[-1] == {"type": "websocket.close", "code": 1011, "reason": "Internal error"}
        assert [(entry["log_level"], str(entry["exc_info"])) for entry in entries] == [("error", "broken")]


class TestAccept:
    @pytest.mark.parametrize(
        ("accept", "kind"),
        [
            (None, PLAIN),
            ("*/*", PLAIN),
            ("application/*", PLAIN),
            (PLAIN, PLAIN),
            (RESPONSE, RESPONSE),
            (f"{RESPONSE}; charset=utf-8", RESPONSE),
            (f"{RESPONSE}, {PLAIN}", RESPONSE),
            (f"{PLAIN}, {RESPONSE}", RESPONSE),
            (f"{RESPONSE}, {PLAIN};q=0.9", RESPONSE),
            (f"{RESPONSE};q=0.5, {PLAIN};q=0.9", PLAIN),
            (f"{RESPONSE};q=0.5, */*", PLAIN),
            (f"{PLAIN};q=0, */*", RESPONSE),
            (f"{RESPONSE};q=0, {PLAIN}", PLAIN),
            ("text/html, */*;q=0.1", PLAIN),
            ("Application/GraphQL-Response+JSON", RESPONSE),
        ],
    )
    async def test_the_media_type_of_the_answer(self, client: httpx.AsyncClient, accept: str | None, kind: str) -> None:
        response = await client.post("", json={"query": "{a}"}, headers={"accept": accept} if accept else {})
        assert response.status_code == 200
        assert response.headers["content-type"] == f"{kind}; charset=utf-8"

    @pytest.mark.parametrize("accept", ["text/html", "text/event-stream;q=0", "*/*;q=0", f"{PLAIN};q=x", "nonsense"])
    async def test_nothing_acceptable(self, client: httpx.AsyncClient, fake: StubGraph, accept: str) -> None:
        response = await client.post("", json={"query": "{a}"}, headers={"accept": accept})
        problem(response, 406)
        assert response.headers["content-type"] == f"{PLAIN}; charset=utf-8"
        assert fake.calls == []

    @pytest.mark.parametrize("position", ["abc", "-1", "1.0", "9" * 19, "0x10"])
    async def test_a_stream_does_not_start_after_an_event_id_that_no_event_has(self, client: httpx.AsyncClient, position: str) -> None:
        headers = {"accept": "text/event-stream", "last-event-id": position}
        assert "`Last-Event-ID`" in problem(await client.post("", json={"query": "subscription { a }"}, headers=headers), 400)
        # An operation that does not resume ignores it.
        assert (await client.post("", json={"query": "{a}"}, headers=headers)).status_code == 200


class TestCredential:
    @pytest.mark.parametrize(
        ("headers", "credential"),
        [
            ({}, None),
            ({"PRIVATE-TOKEN": "abc"}, "abc"),
            ({"PRIVATE-TOKEN": ""}, None),
            ({"Authorization": "Bearer abc"}, "abc"),
            ({"Authorization": "bearer  abc "}, "abc"),
            ({"Authorization": "Bearer"}, None),
            ({"Authorization": "Basic YTpi"}, None),
            ({"Authorization": "abc"}, None),
            ({"PRIVATE-TOKEN": "abc", "Authorization": "Bearer def"}, "abc"),
            ({"Cookie": "private_token=abc; _gitlab_session=abc"}, None),
        ],
    )
    async def test_two_headers_and_nothing_else(
        self, client: httpx.AsyncClient, fake: StubGraph, headers: dict[str, str], credential: str | None
    ) -> None:
        await client.post("?private_token=x", json={"query": "{a}", "private_token": "x"}, headers=headers)
        assert fake.calls[0][3] == credential


class TestResponses:
    async def respond(self, outcome: OperationResult | Exception, accept: str = RESPONSE) -> httpx.Response:
        async with client_of(StubGraph(outcome)) as client:
            return await client.post("", json={"query": "{a}"}, headers={"accept": accept})

    @pytest.mark.parametrize(("accept", "status"), [(RESPONSE, 400), (PLAIN, 200)])
    async def test_an_operation_that_cannot_run_has_no_data(self, accept: str, status: int) -> None:
        found = ErrorEntry(Code.BAD_REQUEST, "Syntax Error", locations=[{"line": 1, "column": 2}])
        response = await self.respond(OperationResult(None, [found]), accept)
        assert response.status_code == status
        body = response.json()
        assert body.keys() == {"errors"}
        assert body["errors"][0]["locations"] == [{"line": 1, "column": 2}]
        assert body["errors"][0]["extensions"]["code"] == "BAD_REQUEST"
        assert body["errors"][0].keys() == {"message", "locations", "extensions"}

    async def test_suggestions_are_left_out(self) -> None:
        text = "Cannot query field 'viewr' on type 'Query'. Did you mean 'viewer' or 'view'?"
        response = await self.respond(OperationResult(None, [ErrorEntry(Code.BAD_REQUEST, text)]))
        assert problem(response, 400) == "Cannot query field 'viewr' on type 'Query'."

    @pytest.mark.parametrize("accept", [RESPONSE, PLAIN])
    @pytest.mark.parametrize("data", [None, {"viewer": None}])
    async def test_without_a_viewer(self, accept: str, data: dict[str, Any] | None) -> None:
        response = await self.respond(OperationResult(data, [ErrorEntry(Code.UNAUTHENTICATED, "Sign in.")]), accept)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        body = response.json()
        assert body["data"] is None
        assert body["errors"][0]["extensions"].keys() == {"code", "requestId"}
        assert body["errors"][0]["extensions"]["code"] == "UNAUTHENTICATED"

    @pytest.mark.parametrize("accept", [RESPONSE, PLAIN])
    async def test_unavailable_and_rate_limited_send_retry_after(self, accept: str) -> None:
        response = await self.respond(OperationResult(None, [ErrorEntry(Code.UNAVAILABLE, "Later.", retry_after=3)]), accept)
        assert (response.headers["retry-after"], problem(response, 503, Code.UNAVAILABLE)) == ("3", "Later.")
        response = await self.respond(OperationResult({"viewer": None}, [ErrorEntry(Code.UNAVAILABLE, "Later.", ["viewer"])]), accept)
        assert (response.status_code, response.headers["retry-after"]) == (503, "2")
        response = await self.respond(OperationResult(None, [ErrorEntry(Code.LIMIT_EXCEEDED, "Slow down.", retry_after=60)]), accept)
        assert (response.headers["retry-after"], problem(response, 429, Code.LIMIT_EXCEEDED)) == ("60", "Slow down.")

    async def test_a_limit_of_the_operation_is_its_own_fault(self) -> None:
        found = ErrorEntry(Code.LIMIT_EXCEEDED, "The operation is 13 fields deep.")
        problem(await self.respond(OperationResult(None, [found])), 400, Code.LIMIT_EXCEEDED)
        assert (await self.respond(OperationResult(None, [found]), PLAIN)).status_code == 200

    @pytest.mark.parametrize("data", [{"a": None, "b": 1}, {"a": None}, None])
    async def test_errors_of_fields_stand_beside_the_data(self, data: dict[str, Any] | None) -> None:
        response = await self.respond(OperationResult(data, [ErrorEntry(Code.NOT_FOUND, "Project not found.", ["a", 0], "Project")]))
        assert response.status_code == 200
        body = response.json()
        assert body["data"] == data
        assert body["errors"][0]["path"] == ["a", 0]

    async def test_part_of_the_data_is_an_answer(self) -> None:
        response = await self.respond(OperationResult({"a": None, "b": 1}, [ErrorEntry(Code.UNAVAILABLE, "Later.", ["a"])]))
        assert response.status_code == 200

    @pytest.mark.parametrize(
        "outcome", [OperationResult(None, [ErrorEntry(Code.INTERNAL, "Wrong.")]), RuntimeError("secret"), OperationResult({"a": object()})]
    )
    async def test_internal_errors_are_masked(self, outcome: OperationResult | Exception, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.CRITICAL, logger="graph.http.endpoint"):
            response = await self.respond(outcome)
        assert "secret" not in problem(response, 500, Code.INTERNAL)

    async def test_the_request_id_is_the_servers(self, fake: StubGraph) -> None:
        fake.result = OperationResult(None, [ErrorEntry(Code.BAD_REQUEST, "No.")], viewer_id=7)
        state: dict[str, Any] = {"request_id": "r-1"}

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await make_graphql_app(fake)({**scope, "state": state}, receive, send)  # type: ignore[arg-type]

        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://forge.example") as client:
            response = await client.post("/", json={"query": "{a}"})
        assert response.json()["errors"][0]["extensions"]["requestId"] == "r-1"
        assert state == {"request_id": "r-1", "user_id": 7}

    async def test_a_canceled_request_is_not_answered(self, fake: StubGraph) -> None:
        async def never(*_: Any, **__: Any) -> OperationResult:
            await asyncio.Event().wait()
            raise AssertionError

        fake.run_document = never  # type: ignore[method-assign]
        async with client_of(fake) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.post("", json={"query": "{a}"}), 0.05)


class TestWithTheGraph:
    """Through the real graph: what the specification's audits ask, and what may never get through."""

    @pytest.fixture
    async def http(self, graph: Graph, make: DataFactory) -> AsyncIterator[httpx.AsyncClient]:
        viewer = await make.user("reader")
        async with client_of(graph) as client:
            client.headers["PRIVATE-TOKEN"] = token_of(viewer)
            yield client

    async def test_a_viewer(self, http: httpx.AsyncClient) -> None:
        response = await http.post("", json={"query": "{ viewer { username } }"})
        assert response.json() == {"data": {"viewer": {"username": "reader"}}}
        response = await http.get("", params={"query": "{ viewer { username } }"})
        assert response.json() == {"data": {"viewer": {"username": "reader"}}}

    @pytest.mark.parametrize("credential", [{}, {"PRIVATE-TOKEN": "wrong"}, {"Authorization": "Bearer wrong"}])
    async def test_anonymous(self, graph: Graph, credential: dict[str, str]) -> None:
        async with client_of(graph) as client:
            for query in ("{ viewer { username } }", "{ __typename }", "{ __schema { types { name } } }"):
                response = await client.post("", json={"query": query}, headers=credential)
                assert response.status_code == 401
                assert response.json()["data"] is None

    @pytest.mark.parametrize(("accept", "status"), [(RESPONSE, 400), (PLAIN, 200)])
    @pytest.mark.parametrize(
        "sent",
        [
            {"query": "{"},
            {"query": "{ viewr { id } }"},
            {"query": "query($id: ID!){ __typename @skip(if: false) node(id: $id) { id } }", "variables": {"id": None}},
            {"query": "query A { __typename } query B { __typename }"},
            {"query": "query A { __typename }", "operationName": "B"},
            {"query": "{ viewer { id } " + "viewer { id } " * 10 + "}"},
        ],
    )
    async def test_operations_that_cannot_run(self, http: httpx.AsyncClient, accept: str, status: int, sent: Any) -> None:
        response = await http.post("", json=sent, headers={"accept": accept})
        assert response.status_code == status
        assert response.json().keys() == {"errors"}
        assert "Did you mean" not in response.text

    async def test_a_mutation_by_get(self, http: httpx.AsyncClient) -> None:
        response = await http.get("", params={"query": "mutation { __typename }"})
        assert problem(response, 405)
        assert response.headers["allow"] == "POST"
