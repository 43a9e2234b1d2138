"""Trusted documents: where they are read from, errors of broken ones, and how they are requested."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from graph.documents import trusted_documents
from graph.documents.trusted_documents import DASHBOARDS, TrustedDocuments, compute_document_id
from graph.http.endpoint import make_graphql_app
from graph.operations.execution import Graph
from tests.make import DataFactory, token_of

VIEWER_QUERY = "query Who { viewer { username } }\n"
DEEP_QUERY = (
    "query Deep($path: String!) { project(path: $path) { "
    + "".join(f"a{number}: name " for number in range(40))
    + "forkedFrom { " * 12
    + "name"
    + " }" * 12
    + " } }"
)
UNTRUSTED = "{ viewer { id } }"


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.graphql").write_text(text)
    return folder


class TestDocumentFolder:
    def test_a_file_with_one_operation_is_a_document_as_it_stands(self, tmp_path: Path) -> None:
        (document,) = trusted_documents.read_documents(write(tmp_path, who=VIEWER_QUERY)).documents
        assert (document.name, document.kind, document.text) == ("Who", "query", VIEWER_QUERY)
        assert document.id == compute_document_id(VIEWER_QUERY) == "sha256:c08c8f790bd9f0566b7a0b2626fe23983cc5bb45d620f5f01aadfc8013ddc090"

    def test_a_file_with_several_is_taken_apart(self, tmp_path: Path) -> None:
        text = (
            "query A { viewer { ...one } } # a comment\nquery B { viewer { id } }\n"
            "fragment two on User { id } fragment one on User { ...two name }"
        )
        found = trusted_documents.read_documents(write(tmp_path, both=text))
        assert [document.text for document in found.documents] == [
            "query A { viewer { ...one } }\n\nfragment two on User { id }\n\nfragment one on User { ...two name }",
            "query B { viewer { id } }",
        ]
        known = TrustedDocuments(found.documents)
        assert [known.text_of(document.id) for document in found.documents] == [document.text for document in found.documents]
        assert known.text_of(compute_document_id(text)) == text
        assert known.operations_by_text[text].keys() == {"A", "B"}

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("query A { nothing }", "Cannot query field 'nothing' on type 'Query'. (line 1)"),
            ("query A {", "Syntax Error: Expected Name, found <EOF>. (line 1)"),
            ("fragment f on User { id }", "the file has no operation"),
            ("query A { viewer { ...f } } query B { viewer { id } }", "there is no fragment f"),
            ("query A { viewer { id } } { viewer { id } }", "each must have a name"),
            ("query A { viewer { ...f } } fragment f on User { ...f }", "Fragments must not form a cycle: f → f."),
            ('query A { project(path: "\\u0000") { id } }', "A string contains characters that cannot be stored."),
            ("query A { projects(first: 101) { totalCount } }", "The page size 101 of Query.projects exceeds the limit of 100"),
            ("query A { projects(first: 100) { nodes { issues(first: 100) { nodes { id } } } } }", "cost of 10,100 rows"),
        ],
    )
    def test_errors_name_the_file_and_the_reason(self, tmp_path: Path, text: str, reason: str) -> None:
        found = trusted_documents.read_documents(write(tmp_path, broken=text, who=VIEWER_QUERY))
        (problem,) = found.problems
        assert problem.startswith(f"{tmp_path / 'broken.graphql'}: ")
        assert reason in problem
        assert [document.name for document in found.documents] == ["Who"]

    def test_a_name_is_that_of_one_operation(self, tmp_path: Path) -> None:
        found = trusted_documents.read_documents(write(tmp_path, a=VIEWER_QUERY, b=VIEWER_QUERY, c="query Who { viewer { id } }"))
        (problem,) = found.problems
        assert problem == f"{tmp_path / 'c.graphql'}: {tmp_path / 'a.graphql'} has another operation with the name Who"


class TestManifest:
    def test_matches_the_command(self, tmp_path: Path) -> None:
        path = tmp_path / "manifest.json"
        documents = trusted_documents.read_documents(write(tmp_path, who=VIEWER_QUERY)).documents
        path.write_text(json.dumps(trusted_documents.make_manifest(documents)))
        found = trusted_documents.read_documents(path)
        assert ([document.text for document in found.documents], found.problems) == ([VIEWER_QUERY], ())

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("{", "invalid JSON"),
            ("[]", "a manifest must be an object"),
            (json.dumps({compute_document_id("other"): VIEWER_QUERY}), f"whose id is {compute_document_id(VIEWER_QUERY)}"),
            (json.dumps({"md5:abc": VIEWER_QUERY}), f"whose id is {compute_document_id(VIEWER_QUERY)}"),
            (json.dumps({compute_document_id(VIEWER_QUERY): 1}), "the document is not a string"),
            (json.dumps({compute_document_id("{ x }"): "{ x }"}), "Cannot query field 'x' on type 'Query'."),
        ],
    )
    def test_rejects_invalid_manifests(self, tmp_path: Path, text: str, reason: str) -> None:
        path = tmp_path / "manifest.json"
        path.write_text(text)
        (problem,) = trusted_documents.read_documents(path).problems
        assert problem.startswith(f"{path}: ")
        assert reason in problem


class TestDashboards:
    def test_the_thirteen_dashboard_queries_are_built_in(self) -> None:
        found = trusted_documents.read_built_in(DASHBOARDS)
        assert found.problems == ()
        assert [str(document.name)[:3] for document in found.documents] == [f"D{number:02}" for number in range(1, 14)]
        assert all(document.points <= 25 for document in found.documents)


@pytest.fixture
async def client(graph: Graph) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=make_graphql_app(graph), raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://forge.example/graphql") as client:
        yield client


def graph_with_documents(graph: Graph, *texts: str, only: bool = False) -> None:
    graph.serve_trusted_documents(
        TrustedDocuments(trusted_documents.parse_document(text, Path("test")) for text in texts), trusted_only=only
    )


def error_message(response: httpx.Response) -> str:
    (error,) = response.json()["errors"]
    assert error["extensions"]["code"] == "BAD_REQUEST"
    return str(error["message"])


NOT_SUPPORTED = ("PersistedQueryNotSupported", "PERSISTED_QUERY_NOT_SUPPORTED")


def persisted_query(text: str) -> dict[str, Any]:
    """What Apollo's persisted-query link sends in place of a text."""
    return {
        "operationName": "Who",
        "variables": {},
        "extensions": {"persistedQuery": {"version": 1, "sha256Hash": compute_document_id(text)[7:]}},
    }


class TestAutomaticPersistedQueries:
    """Hashes of trusted documents are served; every other hash gets the error after which Apollo's clients send the text."""

    @pytest.mark.parametrize("accept", ["*/*", "application/graphql-response+json,application/json;q=0.9", "text/event-stream"])
    @pytest.mark.parametrize("method", ["POST", "GET"])
    async def test_an_unknown_hash_makes_the_client_send_the_text(self, client: httpx.AsyncClient, accept: str, method: str) -> None:
        response = await send_request(client, method, persisted_query(VIEWER_QUERY), accept)

        assert response.status_code == 200
        text = response.text.partition("data: ")[2].partition("\n")[0] if accept == "text/event-stream" else response.text
        body = json.loads(text)
        assert body.keys() == {"errors"}
        (error,) = body["errors"]
        assert error["extensions"].keys() == {"code", "requestId"}
        assert (error["message"], error["extensions"]["code"]) == NOT_SUPPORTED

    async def test_a_text_beside_its_hash_is_answered_and_not_remembered(self, client: httpx.AsyncClient, make: DataFactory) -> None:
        client.headers["PRIVATE-TOKEN"] = token_of(await make.user("ada"))

        both = await client.post("", json={"query": VIEWER_QUERY, **persisted_query(VIEWER_QUERY)})
        assert both.json() == {"data": {"viewer": {"username": "ada"}}}

        assert (await client.post("", json=persisted_query(VIEWER_QUERY))).json()["errors"][0]["message"] == NOT_SUPPORTED[0]

    @pytest.mark.parametrize("only", [False, True])
    @pytest.mark.parametrize("method", ["POST", "GET"])
    async def test_the_hash_of_a_trusted_document_is_its_id(
        self, graph: Graph, client: httpx.AsyncClient, make: DataFactory, method: str, only: bool
    ) -> None:
        graph_with_documents(graph, VIEWER_QUERY, only=only)
        headers = {"PRIVATE-TOKEN": token_of(await make.user("ada"))}

        assert (await send_request(client, method, persisted_query(VIEWER_QUERY), "*/*", **headers)).json() == {
            "data": {"viewer": {"username": "ada"}}
        }
        assert (await send_request(client, method, persisted_query(VIEWER_QUERY), "*/*")).status_code == 401

    async def test_where_only_trusted_documents_are_served_a_hash_admits_no_other(
        self, graph: Graph, client: httpx.AsyncClient, make: DataFactory
    ) -> None:
        graph_with_documents(graph, VIEWER_QUERY, only=True)
        client.headers["PRIVATE-TOKEN"] = token_of(await make.user("ada"))
        other = "query Who { viewer { id } }"

        assert (await client.post("", json=persisted_query(other))).json()["errors"][0]["message"] == NOT_SUPPORTED[0]
        assert error_message(await client.post("", json={"query": other, **persisted_query(other)})).startswith("Only trusted documents")

    @pytest.mark.parametrize(
        "extension", [{}, {"version": 2, "sha256Hash": "x"}, {"version": 1, "sha256Hash": None}, {"sha256Hash": ["x"]}]
    )
    async def test_a_hash_of_another_kind_is_not_supported_either(self, client: httpx.AsyncClient, extension: dict[str, Any]) -> None:
        response = await client.post("", json={"extensions": {"persistedQuery": extension}})

        assert (response.status_code, response.json()["errors"][0]["message"]) == (200, NOT_SUPPORTED[0])

    async def test_an_extension_that_is_not_an_object_is_rejected(self, client: httpx.AsyncClient) -> None:
        response = await client.post("", json={"extensions": {"persistedQuery": "x"}})

        assert (response.status_code, error_message(response)) == (400, "`extensions.persistedQuery` must be an object.")

    async def test_no_text_and_no_hash_is_a_missing_query(self, client: httpx.AsyncClient) -> None:
        assert error_message(await client.post("", json={"extensions": {"persistedQuery": None}})).startswith("`query` is missing")


async def send_request(client: httpx.AsyncClient, method: str, sent: dict[str, Any], accept: str, **headers: str) -> httpx.Response:
    """The same request in a body or in an address."""
    headers = {"accept": accept, **headers}
    if method == "POST":
        return await client.post("", json=sent, headers=headers)
    params = {name: value if isinstance(value, str) else json.dumps(value) for name, value in sent.items()}
    return await client.get("", params=params, headers=headers)


class TestDocumentIds:
    async def test_by_body_and_by_url(self, graph: Graph, client: httpx.AsyncClient, make: DataFactory) -> None:
        viewer = await make.user("ada")
        graph_with_documents(graph, VIEWER_QUERY)
        client.headers["PRIVATE-TOKEN"] = token_of(viewer)
        sent = {"documentId": compute_document_id(VIEWER_QUERY), "operationName": "Who"}
        for response in (await client.post("", json=sent), await client.get("", params=sent)):
            assert response.json() == {"data": {"viewer": {"username": "ada"}}}

    async def test_as_a_stream(self, graph: Graph, make: DataFactory) -> None:
        await make.user("ada")
        (wall,) = (document for document in trusted_documents.read_built_in(DASHBOARDS).documents if document.name == "D13_LiveWall")
        graph.serve_trusted_documents(TrustedDocuments([wall]))
        begun = asyncio.Event()
        came: list[Any] = [{"type": "http.request", "body": json.dumps({"documentId": wall.id}).encode()}]
        sent: list[Any] = []

        async def receive() -> Any:
            if came:
                return came.pop()
            await begun.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            begun.set()

        requested = {"content-type": "application/json", "accept": "text/event-stream", "private-token": "token-ada"}
        headers = [(name.encode(), value.encode()) for name, value in requested.items()]
        await make_graphql_app(graph)({"type": "http", "method": "POST", "headers": headers}, receive, send)
        assert dict(sent[0]["headers"])[b"content-type"] == b"text/event-stream; charset=utf-8"

    async def test_limits_of_its_shape_are_its_authors_affair_and_rights_are_not(
        self, graph: Graph, client: httpx.AsyncClient, make: DataFactory
    ) -> None:
        project = await make.project(owner=(owner := await make.user()))
        sent: dict[str, Any] = {"documentId": compute_document_id(DEEP_QUERY), "variables": {"path": str(project.id)}}
        graph_with_documents(graph, DEEP_QUERY)
        assert "errors" not in (await client.post("", json=sent, headers={"PRIVATE-TOKEN": token_of(owner)})).json()
        outsider = {"PRIVATE-TOKEN": token_of(await make.user())}
        assert (await client.post("", json=sent, headers=outsider)).json()["errors"][0]["extensions"]["code"] == "NOT_FOUND"
        assert (await client.post("", json=sent)).status_code == 401
        graph_with_documents(graph, VIEWER_QUERY)
        refused = await client.post("", json={"query": DEEP_QUERY, "variables": {"path": "x"}}, headers=outsider)
        assert {error["extensions"]["code"] for error in refused.json()["errors"]} == {"LIMIT_EXCEEDED"}

    async def test_pages_of_variables_are_limited(self, graph: Graph, client: httpx.AsyncClient) -> None:
        text = "query P($n: Int!) { projects(first: $n) { nodes { id } } }"
        graph_with_documents(graph, text)
        response = await client.post("", json={"documentId": compute_document_id(text), "variables": {"n": 101}})
        assert response.json()["errors"][0]["extensions"]["code"] == "LIMIT_EXCEEDED"

    @pytest.mark.parametrize(
        ("sent", "text"),
        [
            ({"documentId": compute_document_id("x")}, "Unknown document sha256:"),
            ({"documentId": "sha256:ABC"}, "64 lower-case hex digits"),
            ({"documentId": 1}, "`documentId` must be a string."),
            ({"documentId": compute_document_id(VIEWER_QUERY), "query": VIEWER_QUERY}, "Send `query` or `documentId`, not both."),
            ({"documentId": compute_document_id(VIEWER_QUERY), "operationName": "Other"}, "The document has no operation with this name."),
        ],
    )
    async def test_rejects_unknown_ids(self, graph: Graph, client: httpx.AsyncClient, sent: dict[str, Any], text: str) -> None:
        graph_with_documents(graph, VIEWER_QUERY)
        assert text in error_message(await client.post("", json=sent))

    async def test_without_documents_there_are_no_ids(self, client: httpx.AsyncClient) -> None:
        assert error_message(await client.post("", json={"documentId": compute_document_id(VIEWER_QUERY)})).endswith("send `query`.")


class TestTrustedDocumentsOnly:
    async def test_no_other_text_is_served(self, graph: Graph, client: httpx.AsyncClient, make: DataFactory) -> None:
        client.headers["PRIVATE-TOKEN"] = token_of(await make.user())
        graph_with_documents(graph, VIEWER_QUERY, only=True)
        for text in (UNTRUSTED, "{ __schema { types { name } } }", "{"):
            assert "Only trusted documents are accepted" in error_message(await client.post("", json={"query": text}))
        for sent in ({"documentId": compute_document_id(VIEWER_QUERY)}, {"query": VIEWER_QUERY}):
            assert "errors" not in (await client.post("", json=sent)).json()
        graph_with_documents(graph, VIEWER_QUERY)
        assert "errors" not in (await client.post("", json={"query": UNTRUSTED})).json()
