"""Attacks of graphql-cop and similar tools: each is rejected over HTTP with a code and a remedy, before execution."""

import asyncio
import json
import logging
import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest

from graph.documents import document_validator, documents
from graph.errors import Code
from graph.http.content_negotiation import RESPONSE_JSON
from graph.http.endpoint import make_graphql_app
from graph.http.responses import serialize_error
from graph.live.subscriptions import subscribe
from graph.operations import limits
from graph.operations.execution import ErrorEntry, Graph
from graph.rules.runners import runner_tokens
from storage.database.clock import now
from tests.make import DataFactory, token_of

DOUBLING_DOCUMENT = "".join(
    f"fragment F{n} on Project {{ forkedFrom {{ ...F{n + 1} }} a: forkedFrom {{ ...F{n + 1} }} }} " for n in range(60)
)
INSIDE = 'query { project(path: "a/b") { %s } }'


def text(query: str) -> bytes:
    return json.dumps({"query": query}).encode()


ATTACKS: dict[str, tuple[bytes, int, str, str]] = {
    "depth": (
        text(INSIDE % ("forkedFrom { " * 11 + "name" + " }" * 11)),
        400,
        "LIMIT_EXCEEDED",
        "13 fields deep, which exceeds the limit of 12. Request the inner object by its own path or ID.",
    ),
    "aliases in a fragment": (
        text("{ viewer { ...A ...A } } fragment A on User { " + " ".join(f"a{n}: id" for n in range(16)) + " }"),
        400,
        "LIMIT_EXCEEDED",
        "32 aliases with expanded fragments, which exceeds the limit of 30. Use a list or `nodes(ids:)`",
    ),
    "tokens": (
        text("{" + "viewer " * 2_001 + "}"),
        400,
        "LIMIT_EXCEEDED",
        "limit of 2,000 tokens. Request fewer fields, or send two requests.",
    ),
    "directives": (
        text("{ viewer { " + "id @skip(if: false) " * 21 + "} }"),
        400,
        "LIMIT_EXCEEDED",
        "21 directives with expanded fragments, which exceeds the limit of 20. Put one @include or @skip on a fragment",
    ),
    "fields": (text("{" + "viewer { id } " * 11 + "}"), 400, "LIMIT_EXCEEDED", "11 root fields"),
    "rows": (
        text("{ projects(first: 100) { nodes { issues(first: 100) { nodes { id } } } } }"),
        400,
        "LIMIT_EXCEEDED",
        "10,100 rows exceeds the limit of 10,000. Most expensive: Query.projects (10,100 rows by 100), "
        "Project.issues (10,000 rows by 100). "
        "Use first: 99 for Query.projects to stay within the limit.",
    ),
    "page": (text("{ projects(first: 101) { totalCount } }"), 400, "LIMIT_EXCEEDED", "Request first: 100, and continue with after."),
    "circle of fragments": (
        text("{ viewer { ...A } } fragment A on User { ...B } fragment B on User { ...A }"),
        400,
        "LIMIT_EXCEEDED",
        "A → B → A. Remove one of these spreads.",
    ),
    "fragments that double": (
        text(INSIDE % "...F0" + DOUBLING_DOCUMENT + "fragment F60 on Project { name }"),
        400,
        "LIMIT_EXCEEDED",
        "more than 10^12 aliases",
    ),
    "circular introspection": (
        text("{ __schema { types { fields { type { fields { type { fields { name } } } } } } } }"),
        400,
        "LIMIT_EXCEEDED",
        "Look types up by name",
    ),
    "deep introspection": (
        text('{ __type(name: "User") {' + " ofType {" * 15 + " name" + " }" * 17),
        400,
        "LIMIT_EXCEEDED",
        "Nine levels of `ofType` are enough",
    ),
    "nesting": (text("{" + "a{" * 500 + "b" + "}" * 501), 400, "LIMIT_EXCEEDED", "Start at an inner object."),
    "changes": (
        text("mutation { deleteKey: __typename signIn(input: {}) { token } signUp(input: {}) { user { id } } }"),
        400,
        "LIMIT_EXCEEDED",
        "Send a request for each mutation.",
    ),
    "batch": (b"[" + text("{ viewer { id } }") + b"]", 400, "BAD_REQUEST", "send one operation per request"),
    "body": (b" " * (limits.MAX_BODY_BYTES + 1), 413, "LIMIT_EXCEEDED", "exceeds the limit of 1,048,576 bytes. Send less at once"),
    "deep JSON": (b'{"variables":' + b"[" * 100 + b"]" * 100 + b"}", 400, "LIMIT_EXCEEDED", "deeper than 64 levels. Reduce the nesting."),
    "guessing": (text("{ viewer { usernam } }"), 400, "BAD_REQUEST", "Cannot query field 'usernam' on type 'User'."),
}


class TestAttacks:
    @pytest.mark.parametrize("name", ATTACKS)
    async def test_are_rejected_with_advice(self, name: str, caplog: pytest.LogCaptureFixture) -> None:
        body, status, code, way_out = ATTACKS[name]
        # There is nothing behind it but somebody who is signed in, so whatever came through would fail.
        services: Any = SimpleNamespace(token_cache=AsyncMock(), database=None, clock=now)
        transport = httpx.ASGITransport(app=make_graphql_app(Graph(services)))
        async with httpx.AsyncClient(transport=transport, base_url="http://forge.example/graphql") as client:
            headers = {"Content-Type": "application/json", "Accept": RESPONSE_JSON, "PRIVATE-TOKEN": "x"}
            response = await client.post("", content=body, headers=headers)

        assert response.status_code == status, response.text
        assert response.json().keys() == {"errors"}
        found = [(error["extensions"]["code"], error["message"]) for error in response.json()["errors"]]
        assert any(code == reported and way_out in message for reported, message in found), found
        assert {given for given, _ in found} == {code}
        assert "Did you mean" not in response.text
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]

    def test_messages_that_repeat_a_long_literal_are_serialized_in_linear_time(self) -> None:
        message = f'Int cannot represent non-integer value: "{" " * limits.MAX_CHARACTERS}"'
        started_at = time.thread_time()
        serialized = [serialize_error(ErrorEntry(Code.BAD_REQUEST, text), "r") for text in (message, f"{message} Did you mean 1?")]
        assert time.thread_time() - started_at < 1
        assert [entry["message"] for entry in serialized] == [message, message]

    async def test_validation_stops_at_its_time_limit(self, graph: Graph, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()), history={"commits": 2})
        # What never waits is done before anything could end it.
        query = f'{{ project(path: "{project.id}") {{ commits {{ nodes {{ message }} }} }} }}'
        outcome = await graph.run_document(query, None, None, token_of(owner), request_id="r", seconds=0.0)
        assert [problem.code for problem in outcome.errors] == ["LIMIT_EXCEEDED"]
        assert outcome.errors[0].message.endswith("Request smaller pages, fewer nested lists, or a shorter time range.")


class TestAnonymousCallers:
    """Their texts are not even validated, except short ones that request only fields that need no viewer."""

    @pytest.fixture
    def validated(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        found: list[str] = []

        def validate_document(document: Any, **settings: Any) -> Any:
            found.append(document.definitions[0].selection_set.selections[0].name.value)
            return document_validator.validate_document(document, **settings)

        monkeypatch.setattr(documents, "validate_document", validate_document)
        return found

    @pytest.mark.parametrize("credential", [None, "", "wrong", "runner"])
    @pytest.mark.parametrize(
        "text",
        [
            "{ viewer { " + "projects { totalCount } " * 200 + "} }",
            "{ viewer { usernam } }",
            "{ viewer {",
            "{ frontPage { nothing } viewer { id } }",
            "query A { frontPage { nothing } } query B { viewer { id } }",
            "{ ...F } fragment F on Query { frontPage { nothing } }",
            "{ frontPage { nothing " + "a " * 200 + "} }",
            "{ frontPage { nothing } } #" + "a" * 4_000,
        ],
        ids=range(8),
    )
    async def test_see_no_validation_errors(self, graph: Graph, validated: list[str], text: str, credential: str | None) -> None:
        if credential == "runner":
            credential = f"{runner_tokens.PREFIXES[0]}{'x' * 20}"
        for run in (graph.run_document, subscribe_to(graph)):
            outcome = await run(text, {}, None, credential, request_id="r")
            assert [problem.code for problem in outcome.errors] == ["UNAUTHENTICATED"]
            assert await graph.kind_of(text, None, credential, request_id="r") is None
        assert validated == []

    async def test_see_no_validation_errors_of_cached_documents(self, graph: Graph, make: DataFactory) -> None:
        viewer = token_of(await make.user())
        refused = "query Several($n: Int) { projects(first: $n) { nodes { id } } }"
        for text, variables in (("{ viewer { usernam } }", {}), (refused, {"n": 1_000})):
            for credential, codes in (
                (viewer, {"BAD_REQUEST", "LIMIT_EXCEEDED"}),
                (None, {"UNAUTHENTICATED"}),
                ("wrong", {"UNAUTHENTICATED"}),
            ):
                outcome = await graph.run_document(text, variables, None, credential, request_id="r")
                assert {problem.code for problem in outcome.errors} <= codes
                assert outcome.errors

    async def test_see_errors_of_anonymous_operations(self, graph: Graph, validated: list[str]) -> None:
        outcome = await graph.run_document('mutation { signIn(input: {login: "a"}) { nothing } }', {}, None, None, request_id="r")

        assert {problem.code for problem in outcome.errors} == {"BAD_REQUEST"}
        assert validated == ["signIn"]

    async def test_long_documents_are_parsed_once(self, graph: Graph, make: DataFactory, validated: list[str]) -> None:
        viewer = token_of(await make.user())
        text = f"query Long{len(viewer)} {{ viewer {{ " + "username name " * 45 + " ".join(f"# {'-' * 40}\n" for _ in range(20)) + "} }"

        outcomes = await asyncio.gather(*(graph.run_document(text, {}, None, viewer, request_id="r") for _ in range(5)))

        assert [outcome.errors for outcome in outcomes] == [[]] * 5
        assert validated == ["viewer"]


def subscribe_to(graph: Graph) -> Any:
    async def run(*arguments: Any, **settings: Any) -> Any:
        return await subscribe(graph, *arguments, **settings)

    return run
