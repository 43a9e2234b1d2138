"""GET /q, /q/NAME.json and /q/NAME.csv"""

import base64
import csv
import io
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result
from graphql import GraphQLSchema, build_schema, parse_type, type_from_ast
from typer.testing import CliRunner

from forgefront.app import create_app
from forgefront.cli import main
from forgefront.config import Config, ConfigError
from forgefront.endpoints.csv_tables import CsvTable
from forgefront.endpoints.named_queries import NamedQueriesEndpoint
from forgefront.endpoints.query_variables import parse_variables
from forgefront.pages import OPERATIONS_FOLDER
from forgefront.served_documents import serve_documents
from graph.documents.trusted_documents import DASHBOARDS, TrustedDocuments, compute_document_id, parse_document, read_built_in
from graph.documents.trusted_documents import read_documents as read_documents
from graph.http.requests import GraphqlRequestError
from graph.operations.execution import Graph
from graph.operations.rate_limits import RateLimiter
from rest_v3.operations import RouteOperationVariable
from storage import tables
from storage.tables import IssueState, TokenScope
from tests.make import DataFactory, token_of
from tests.support.database.statements import StatementRecorder

ISSUES = """
query Issues($p: String!, $state: [IssueState!], $n: Int = 20) {
  project(path: $p) {
    path
    issues(filter: {state: $state}, first: $n) {
      totalCount
      nodes { iid title labels author { username } notes { totalCount nodes { id } } }
    }
    labels { nodes { name } }
  }
}
"""
SELF = "query Self { viewer { username canCreateGroup } }"
WITH_RATE = "query WithRate($p: String!) { project(path: $p) { issues { nodes { iid } } } left: rateLimit { remaining } }"
ONLY_RATE = "query OnlyRate { rateLimit { used } }"
MUTATION = 'mutation Change { createProject(input: {name: "x"}) { userErrors { code } } }'
SUBSCRIPTION = "subscription Follow { buildChanged { seq } }"


@cache
def documents() -> TrustedDocuments:
    return TrustedDocuments(parse_document(text, Path("test")) for text in (ISSUES, SELF, MUTATION, SUBSCRIPTION))


def build_app(graph: Graph) -> NamedQueriesEndpoint:
    graph.serve_trusted_documents(documents())
    return NamedQueriesEndpoint(graph)


Get = Callable[..., Awaitable[httpx.Response]]


@pytest.fixture
async def client(graph: Graph) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=build_app(graph))
    async with httpx.AsyncClient(transport=transport, base_url="http://forge/q") as client:
        yield client


@pytest.fixture
async def project(make: DataFactory) -> tables.Project:
    return await make.project(owner=await make.user("ada"))


@pytest.fixture
def get(client: httpx.AsyncClient, project: tables.Project) -> Get:
    """Asks as the owner of the project."""

    async def get(path: str, method: str = "GET", headers: dict[str, str] | None = None, **params: Any) -> httpx.Response:
        return await client.request(method, path, params=params, headers={"PRIVATE-TOKEN": "token-ada"} | (headers or {}))

    return get


def error_message(response: httpx.Response) -> str:
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"
    return str(response.json()["message"])


class TestJson:
    async def test_is_the_data(self, get: Get, project: tables.Project, make: DataFactory) -> None:
        await make.issue(project, title="One")
        response = await get("/Issues.json", p=project.id, n=5)
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/json"
        assert response.headers["vary"] == "PRIVATE-TOKEN, Authorization"
        assert response.json()["data"]["project"]["issues"]["nodes"][0]["title"] == "One"

    async def test_errors_have_the_statuses_of_the_graphql_endpoint(self, get: Get, client: httpx.AsyncClient) -> None:
        missing = await get("/Issues.json", p="no/such")
        assert (missing.status_code, missing.json()["errors"][0]["extensions"]["code"]) == (200, "NOT_FOUND")
        assert missing.headers["cache-control"] == "no-store"
        wrong = await client.get("/Self.json", headers={"PRIVATE-TOKEN": "wrong"})
        assert (wrong.status_code, wrong.headers["www-authenticate"]) == (401, "Bearer")
        limited = await get("/Issues.json", p="a/b", n=101)
        assert (limited.status_code, limited.json()["errors"][0]["extensions"]["code"]) == (400, "LIMIT_EXCEEDED")

    async def test_runs_the_same_statements_as_the_operation(
        self, get: Get, project: tables.Project, make: DataFactory, statements: StatementRecorder
    ) -> None:
        for _ in range(3):
            await make.issue(project)
        with statements.assert_at_most(9):
            await get("/Issues.json", p=project.id)


class TestCsv:
    async def test_has_the_items_of_the_first_list(self, get: Get, project: tables.Project, make: DataFactory) -> None:
        labels = [await make.label(project, title) for title in ("bug", "ci, slow")]
        issue = await make.issue(project, title='Say "a", then\nb', labels=labels)
        await make.note(issue)
        await make.issue(project, title="Done", state=IssueState.CLOSED)

        response = await get("/Issues.csv", p=project.id, state="OPENED")

        assert response.headers["content-type"] == "text/csv; charset=utf-8; header=present"
        assert response.text == (
            "iid,title,labels,author.username,notes.totalCount\r\n" + '1,"Say ""a"", then\nb","bug ci, slow",ada,1\r\n'
        )

    async def test_has_its_header_also_without_rows(self, get: Get, project: tables.Project) -> None:
        assert (await get("/Issues.csv", p=project.id)).text == "iid,title,labels,author.username,notes.totalCount\r\n"

    async def test_another_list_and_none(self, get: Get, project: tables.Project, make: DataFactory) -> None:
        await make.label(project, "bug")
        for path in ("project.labels.nodes", "project.labels"):
            assert (await get("/Issues.csv", p=project.id, list=path)).text == "name\r\nbug\r\n"
        unknown = await get("/Issues.csv", p=project.id, list="project.path")
        assert unknown.status_code == 400
        assert error_message(unknown) == "list: must be one of project.issues.nodes, project.labels.nodes."
        assert (await get("/Self.csv")).text == "viewer.username,viewer.canCreateGroup\r\nada,true\r\n"

    async def test_no_cell_is_a_formula(self, get: Get, project: tables.Project, make: DataFactory) -> None:
        shown = {
            **{f"{sign}SUM(A1)": f"'{sign}SUM(A1)" for sign in "=+-@\uff1d\uff0b\uff0d\uff20"},
            "\t=1": "'\t'=1",
            "\r=1": "'\r'=1",
            "\n=1": "'\n'=1",
            "\ttab": "'\ttab",
            " =1": " '=1",
            '"=1': "\"'=1",
            "\ufeff=1": "\ufeff'=1",
            "x;=1;+2; @3": "x;'=1;'+2; '@3",
            "x\n-1": "x\n'-1",
            "x\t\ufe631": "x\t'\ufe631",
            "a = b - c; d@e, -1": "a = b - c; d@e, -1",
            "'=1": "'=1",
        }
        for title in shown:
            await make.issue(project, title=title)

        rows = list(csv.DictReader(io.StringIO((await get("/Issues.csv", p=project.id)).text, newline="")))

        assert sorted(row["title"] for row in rows) == sorted(shown.values())

    @pytest.mark.parametrize("blanks", ["\n" * 50_000, "\n " * 25_000])
    def test_many_blanks_in_a_cell_take_linear_time(self, blanks: str) -> None:
        started_at = time.thread_time()
        found = CsvTable((), (("text",),)).to_csv({"text": f"a{blanks}b{blanks}=1"})
        assert time.thread_time() - started_at < 1
        assert found == f'text\r\n"a{blanks}b{blanks}\'=1"\r\n'

    async def test_an_error_is_the_answer(self, get: Get) -> None:
        response = await get("/Issues.csv", p="no/such")
        assert (response.status_code, response.headers["content-type"]) == (404, "application/json")
        assert response.json()["errors"][0]["extensions"]["code"] == "NOT_FOUND"


class TestCaching:
    async def test_an_unchanged_answer_is_304(self, get: Get, project: tables.Project, make: DataFactory) -> None:
        for path in ("/Issues.csv", "/Issues.json"):
            first = await get(path, p=project.id)
            assert first.headers["cache-control"] == "private, no-cache"
            tag = first.headers["etag"]
            for values in (tag, f'"x", W/{tag}', "*"):
                again = await get(path, p=project.id, headers={"If-None-Match": values})
                assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
            await make.issue(project)
            changed = await get(path, p=project.id, headers={"If-None-Match": tag})
            assert (changed.status_code, changed.headers["etag"] != tag) == (200, True)

    async def test_the_rate_limit_that_a_request_changes_does_not_change_its_tag(
        self, graph: Graph, project: tables.Project, make: DataFactory
    ) -> None:
        limited = Graph(replace(graph.services, rate_limiter=RateLimiter(1000)))
        limited.serve_trusted_documents(TrustedDocuments(parse_document(text, Path("test")) for text in (WITH_RATE, ONLY_RATE)))
        transport, headers = httpx.ASGITransport(app=NamedQueriesEndpoint(limited)), {"PRIVATE-TOKEN": "token-ada"}
        async with httpx.AsyncClient(transport=transport, base_url="http://forge/q", headers=headers) as client:
            for path in ("/WithRate.json", "/WithRate.csv"):
                first = await client.get(path, params={"p": project.id})
                tag = first.headers["etag"]
                assert (first.status_code, tag[:3]) == (200, 'W/"')
                for values in (tag, tag.removeprefix("W/")):
                    again = await client.get(path, params={"p": project.id}, headers={"If-None-Match": values})
                    assert (again.status_code, again.headers["etag"]) == (304, tag)
                    assert int(again.headers["x-ratelimit-remaining"]) < int(first.headers["x-ratelimit-remaining"])
                await make.issue(project)
                assert (await client.get(path, params={"p": project.id}, headers={"If-None-Match": tag})).status_code == 200
            tag = (await client.get("/OnlyRate.json")).headers["etag"]
            assert (await client.get("/OnlyRate.json", headers={"If-None-Match": tag})).status_code == 200

    async def test_head_has_the_headers_alone(self, get: Get, project: tables.Project) -> None:
        whole, head = await get("/Issues.csv", p=project.id), await get("/Issues.csv", "HEAD", p=project.id)
        assert (head.content, head.headers) == (b"", whole.headers)


class TestRejections:
    async def test_rejects_unknown_queries(self, get: Get) -> None:
        for path, text in (
            ("/Nothing.json", "404 Not Found"),
            ("/Change.json", "404 Not Found - Change is a mutation: send it to /graphql"),
            ("/Follow.csv", "404 Not Found - Follow is a subscription: send it to /graphql"),
        ):
            response = await get(path)
            assert (response.status_code, error_message(response)) == (404, text)

    async def test_other_methods(self, get: Get) -> None:
        response = await get("/Self.json", "POST")
        assert (response.status_code, response.headers["allow"], error_message(response)) == (405, "GET, HEAD", "405 Method Not Allowed")

    async def test_a_credential_is_accepted_only_in_a_header(self, client: httpx.AsyncClient, get: Get) -> None:
        response = await client.get("/Self.json", params={"private_token": "token-ada"})
        assert (response.status_code, error_message(response)) == (401, "401 Unauthorized")
        assert error_message(await get("/Self.json", private_token="x")) == "private_token is unknown. The query takes no variables."
        bearer = await client.get("/Self.json", headers={"Authorization": "Bearer token-ada"})
        assert bearer.json() == {"data": {"viewer": {"username": "ada", "canCreateGroup": True}}}

    async def test_a_token_that_may_not_read_is_forbidden(self, client: httpx.AsyncClient, make: DataFactory) -> None:
        user = await make.user()
        for scope, index, missing, query in ((TokenScope.GIT, 403, 403, 403), (TokenScope.READ, 200, 404, 200)):
            headers = {"PRIVATE-TOKEN": await make.access_token(user, scope)}
            for path, status in (("", index), ("/Nothing.json", missing), ("/Self.json", query), ("/Self.csv", query)):
                assert (await client.get(path, headers=headers)).status_code == status, (scope, path)

    async def test_all_parameter_errors_are_reported(self, get: Get) -> None:
        response = await get("/Issues.json", n="many", state="OPEN", other="1")
        assert response.status_code == 400
        assert error_message(response) == (
            "other is unknown. n: must be an integer. state: must be one of OPENED, CLOSED. p is missing. "
            "It takes p (String!), state ([IssueState!]), n (Int)."
        )

    async def test_shares_the_rate_limit_of_the_graph(self, graph: Graph, project: tables.Project) -> None:
        limited = Graph(replace(graph.services, rate_limiter=RateLimiter(1)))
        transport = httpx.ASGITransport(app=build_app(limited))
        async with httpx.AsyncClient(transport=transport, base_url="http://forge/q") as client:
            client.headers["PRIVATE-TOKEN"] = "token-ada"
            first, second = await client.get("/Self.csv"), await client.get("/Self.csv")
        assert (first.status_code, first.headers["x-ratelimit-remaining"]) == (200, "0")
        assert (second.status_code, second.headers["retry-after"]) == (429, "3600")


SCHEMA: GraphQLSchema = build_schema(
    """
    enum Color { RED GREEN }
    input Range { since: String until: String count: Int within: Range names: [String!] }
    type Query { a(b: ID, c: Float, d: Color, e: Range): Int }
    """
)


def parse_variable(name: str, text: str) -> RouteOperationVariable:
    kind: Any = type_from_ast(SCHEMA, parse_type(text))
    return RouteOperationVariable(name, kind, text.endswith("!"))


def parse_pairs(pairs: list[tuple[str, str]], **types: str) -> dict[str, Any]:
    return parse_variables({name: parse_variable(name, kind) for name, kind in types.items()}, pairs)


class TestVariables:
    @pytest.mark.parametrize(
        ("kind", "texts", "value"),
        [
            ("String!", [""], ""),
            ("ID", ["12"], "12"),
            ("Int", ["-12"], -12),
            ("Float!", ["1.5"], 1.5),
            ("Boolean", ["true"], True),
            ("Boolean", ["0"], False),
            ("Color", ["RED"], "RED"),
            ("[Color!]!", ["RED", "GREEN"], ["RED", "GREEN"]),
            ("[Int]", ["1"], [1]),
            ("Range", ['{"since": "x", "count": 1}'], {"since": "x", "count": 1}),
            ("[Range!]", ['{"count": 1}', "{}"], [{"count": 1}, {}]),
        ],
    )
    def test_are_parsed_by_their_types(self, kind: str, texts: list[str], value: object) -> None:
        assert parse_pairs([("v", text) for text in texts], v=kind) == {"v": value}

    def test_input_objects_field_by_field(self) -> None:
        pairs = [("r.since", "2026-01-01T00:00:00Z"), ("r.within.count", "3"), ("r.names", "a"), ("r.names", "b")]
        assert parse_pairs(pairs, r="Range!") == {"r": {"since": "2026-01-01T00:00:00Z", "within": {"count": 3}, "names": ["a", "b"]}}

    @pytest.mark.parametrize(
        ("kind", "pairs", "text"),
        [
            ("Int", [("v", "")], "v: must be an integer."),
            ("Int", [("v", "9" * 5000)], "v: must be an integer."),
            ("Int", [("v", "1"), ("v", "2")], "v: it is set twice."),
            ("Float", [("v", "nan")], "v: must be a number."),
            ("Float", [("v", "1e999")], "v: must be a number."),
            ("Boolean", [("v", "yes")], "v: must be true or false."),
            ("Color", [("v", "red")], "v: must be one of RED, GREEN."),
            ("Range", [("v", "[]")], "v: must be a JSON object, or be set field by field as name.field."),
            ("Range", [("v", "{")], "v: it is not JSON in UTF-8."),
            ("Range", [("v", "[" * 100 + "]" * 100)], "v: it is nested deeper than 64 levels. Reduce the nesting."),
            ("Range", [("v.nothing", "1")], "v.nothing: a Range has no field nothing; it has since, until, count, within, names."),
            ("Range", [("v.since.x", "1")], "v.since.x: a String has no fields."),
            ("Range", [("v", "{}"), ("v.since", "1"), ("v.since", "2")], "v.since: it is set twice."),
            ("Range", [("v.since", "1"), ("v", "{}")], "v: it is also set field by field."),
            ("Range!", [], "v is missing."),
            ("Int!", [("v", "1"), ("v", "2")], "v: it is set twice."),
            ("Color!", [("v", "red")], "v: must be one of RED, GREEN."),
            ("Range!", [("v.nothing", "1")], "v.nothing: a Range has no field nothing; it has since, until, count, within, names."),
            ("Range", [("w.since", "1")], "w.since is unknown."),
        ],
    )
    def test_unparsable_values_are_reported(self, kind: str, pairs: list[tuple[str, str]], text: str) -> None:
        with pytest.raises(GraphqlRequestError) as caught:
            parse_pairs(pairs, v=kind)
        assert (caught.value.status, caught.value.message) == (400, f"{text} It takes v ({kind}).")


class TestConfiguredDocuments:
    """The documents of a configuration, in the whole service."""

    async def test_serves_configured_and_built_in_documents(self, tmp_path: Path) -> None:
        (tmp_path / "own").mkdir()
        (tmp_path / "own" / "self.graphql").write_text(SELF)
        app = create_app(Config.load(data=tmp_path / "data", documents=tmp_path / "own", documents_mode="only"))
        await app.start()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://forge") as client:
            own, wall = await client.get("/q/Self.json"), await client.get("/q/D01_Wall.csv")
            text = await client.post("/graphql", json={"query": "{ viewer { id } }"})
            known = await client.post("/graphql", json={"documentId": compute_document_id(SELF)})
            shell = (await client.get("/-/pages/operations/shell.graphql")).text
            page = await client.post("/graphql", json={"query": shell, "operationName": "FrontPage"})
            unnamed = await client.get("/q/FrontPage.json", headers={"PRIVATE-TOKEN": "x"})
            token = token_of(await DataFactory(app.graph.services, tmp_path).user())
            other = await client.get("/q/FrontPage.json", headers={"PRIVATE-TOKEN": token})
            metrics = (await client.get("/-/metrics")).text
        await app.stop()
        assert (own.status_code, wall.status_code, known.status_code) == (401, 401, 401)
        assert page.json()["data"]["frontPage"]["signinEnabled"]
        assert read_built_in(OPERATIONS_FOLDER).problems == ()
        assert (unnamed.status_code, other.status_code) == (401, 404)
        assert text.json()["errors"][0]["extensions"]["code"] == "BAD_REQUEST"
        assert 'route="/q/:name.json"' in metrics

    def test_does_not_start_with_a_broken_document(self, tmp_path: Path) -> None:
        (tmp_path / "broken.graphql").write_text("{ nothing }")
        nothing: Any = None
        graph = Graph(nothing)
        with pytest.raises(ConfigError) as caught:
            serve_documents(graph, Config.load(documents=tmp_path))
        reason = "Cannot query field 'nothing' on type 'Query'. (line 1)"
        assert caught.value.problems == [f"FORGEFRONT_DOCUMENTS: {tmp_path / 'broken.graphql'}: {reason}"]
        with pytest.raises(ConfigError, match=r"missing\.json cannot be read: No such file"):
            serve_documents(graph, Config.load(documents=tmp_path / "missing.json"))
        serve_documents(graph, Config.load(documents=tmp_path, documents_mode="off"))
        assert not graph.trusted_documents

    def test_the_command_checks_them_and_writes_the_manifest(self, tmp_path: Path) -> None:
        (tmp_path / "self.graphql").write_text(SELF)

        def run(*arguments: str) -> Result:
            return CliRunner().invoke(main, ["documents", str(tmp_path), *arguments])

        assert run().output == f"Self  query           1  {compute_document_id(SELF)}\n"
        assert json.loads(run("--json").output) == [
            {
                "name": "Self",
                "kind": "query",
                "points": 1,
                "rows": 1,
                "id": compute_document_id(SELF),
                "file": str(tmp_path / "self.graphql"),
            }
        ]
        assert json.loads(run("--manifest").output) == {compute_document_id(SELF): SELF}
        (tmp_path / "broken.graphql").write_text("{ nothing }")
        result = run()
        assert (result.exit_code, "broken.graphql: Cannot query field 'nothing'" in result.stderr) == (1, True)
        for file in tmp_path.iterdir():
            file.unlink()
        assert (run("--json").exit_code, run().stderr) == (1, f"forgefront: {tmp_path}: there are no documents\n")


def basic_credentials(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


class TestBasicCredentials:
    """Spreadsheets send a user name and a password, and nothing else."""

    async def test_the_token_is_the_password(self, client: httpx.AsyncClient, project: tables.Project) -> None:
        for user in ("ada", "", "anybody"):
            answer = await client.get("/Self.csv", headers=basic_credentials(user, "token-ada"))
            assert answer.text == "viewer.username,viewer.canCreateGroup\r\nada,true\r\n"
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"

    @pytest.mark.parametrize(
        "sent",
        [
            {},
            basic_credentials("ada", "wrong"),
            basic_credentials("token-ada", ""),
            {"Authorization": "Basic %"},
            {"Authorization": "Basic"},
        ],
    )
    async def test_a_browser_gets_a_basic_challenge(self, sent: dict[str, str], client: httpx.AsyncClient, project: tables.Project) -> None:
        for path in ("/Self.json", "/Nothing.csv", "/Self.csv?unknown=1", ""):
            answer = await client.get(path, headers=sent)
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"] == 'Basic realm="Forgefront queries", charset="UTF-8"'

    async def test_a_token_prevents_the_basic_challenge(self, client: httpx.AsyncClient, project: tables.Project) -> None:
        for sent in ({"PRIVATE-TOKEN": "wrong"}, {"Authorization": "Bearer wrong"}):
            for path in ("/Self.json", "/Nothing.csv", "/Self.csv?unknown=1", ""):
                answer = await client.get(path, headers=sent)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), path

    @pytest.mark.usefixtures("project")
    @pytest.mark.parametrize(
        "sent",
        [{"Origin": "https://app.example.com"}, {"Sec-Fetch-Mode": "cors"}, {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Site": "cross-site"}],
    )
    async def test_requests_by_scripts_get_no_basic_challenge(self, sent: dict[str, str], client: httpx.AsyncClient) -> None:
        for credential in ({}, basic_credentials("ada", "wrong")):
            answer = await client.get("/Self.json", headers={**sent, **credential})
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        visited = await client.get("", headers={"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "cross-site"})
        assert visited.headers["www-authenticate"].startswith("Basic ")

    async def test_only_query_urls_accept_basic_credentials(self, tmp_path: Path) -> None:
        app = create_app(Config.load(data=tmp_path))
        await app.start()
        headers = basic_credentials("x", token_of(await DataFactory(app.graph.services, tmp_path).user()))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://forge") as client:
            assert (await client.get("/q", headers=headers)).status_code == 200
            others = [
                await client.get("/api/v3/user", headers=headers),
                await client.post("/graphql", json={"query": "{ viewer { id } }"}, headers=headers),
                await client.get(f"/a/b/uploads/{'0' * 32}/x", headers=headers),
            ]
        await app.stop()
        for answer in others:
            assert answer.status_code == 401
            assert "Basic" not in answer.headers.get("www-authenticate", "")


class TestQueryList:
    async def test_lists_parameters_and_fields_of_each_query(self, get: Get) -> None:
        response = await get("")
        assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
        assert response.headers["vary"] == "PRIVATE-TOKEN, Authorization, Accept"
        issues, self_ = response.json()["queries"]
        assert issues == {
            "name": "Issues",
            "description": "",
            "documentId": compute_document_id(ISSUES),
            "parameters": [
                {"name": "p", "type": "String!", "required": True},
                {
                    "name": "state",
                    "type": "[IssueState!]",
                    "required": False,
                    "repeatable": True,
                    "values": [state.name for state in IssueState],
                },
                {"name": "n", "type": "Int", "required": False, "default": 20},
            ],
            "lists": ["project.issues.nodes", "project.labels.nodes"],
            "formats": ["json", "csv"],
            "example": "http://forge.example/q/Issues.csv?p=P",
        }
        assert (self_["name"], self_["parameters"], self_["example"]) == ("Self", [], "http://forge.example/q/Self.csv")

    async def test_built_in_example_urls_are_valid(self, graph: Graph, make: DataFactory) -> None:
        found = read_built_in(DASHBOARDS).documents
        graph.serve_trusted_documents(TrustedDocuments(found))
        app = NamedQueriesEndpoint(graph)
        headers = {"PRIVATE-TOKEN": token_of(await make.user())}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://forge") as client:
            listed = (await client.get("/q", headers=headers)).json()["queries"]
            assert [each["name"] for each in listed] == sorted(str(each.name) for each in found if each.kind == "query")
            for each in listed:
                path = each["example"].removeprefix(graph.services.external_url)
                answer = await client.get(path.replace(".csv", ".json"), headers=headers)
                # There is no such project; what the example says could be read.
                assert answer.status_code == 200, (each["example"], answer.text)

    async def test_the_comment_before_an_operation_describes_it(self, graph: Graph, make: DataFactory, tmp_path: Path) -> None:
        text = "# Not this.\n\n# Who calls,\n# and <what> they may.\nquery Self { viewer { username } }\n"
        (tmp_path / "own.graphql").write_text(text)
        graph.serve_trusted_documents(TrustedDocuments(read_documents(tmp_path).documents))
        headers = {"PRIVATE-TOKEN": token_of(await make.user())}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=NamedQueriesEndpoint(graph)), base_url="http://forge") as client:
            (entry,) = (await client.get("/q", headers=headers)).json()["queries"]
            page = await client.get("/q/", headers={**headers, "Accept": "text/html,*/*;q=0.8"})
        assert entry["description"] == "Who calls, and <what> they may."
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "<h2>Self</h2><p>Who calls, and &lt;what&gt; they may.</p>" in page.text

    async def test_other_methods(self, get: Get) -> None:
        assert (await get("", "POST")).status_code == 405
        assert (await get("", "HEAD")).content == b""
