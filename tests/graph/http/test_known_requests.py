"""Requests that are sent again: what is known of them saves work, and changes no answer."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from graph.caches import current_usage
from graph.documents.documents import DocumentStore
from graph.http import endpoint
from graph.http.endpoint import make_graphql_app
from graph.http.known_requests import KNOWN_REQUESTS
from graph.operations.execution import Graph
from graph.operations.limits import MeasuredOperation
from storage import tables
from tests.make import DataFactory, token_of

ISSUES = "query Titles($path: String!, $first: Int) { project(path: $path) { issues(first: $first) { nodes { title } } } }"
CREATE = "mutation Create($input: CreateIssueInput!) { createIssue(input: $input) { issue { title } userErrors { code } } }"


@pytest.fixture
async def owner(make: DataFactory) -> tables.User:
    return await make.user()


@pytest.fixture
async def project(make: DataFactory, owner: tables.User) -> tables.Project:
    project = await make.project(owner=owner)
    await make.issue(project, title="first")
    return project


@pytest.fixture
def graph(make: DataFactory) -> Graph:
    return Graph(make.services)


@pytest.fixture
async def client(graph: Graph) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=make_graphql_app(graph))
    async with httpx.AsyncClient(transport=transport, base_url="http://forge.example/graphql") as client:
        yield client


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bodies that are parsed from now on."""
    bodies: list[bytes] = []
    parse = endpoint.parse_json

    def record(body: bytes, subject: str) -> object:
        bodies.append(body)
        return parse(body, subject)

    monkeypatch.setattr(endpoint, "parse_json", record)
    return bodies


async def send(client: httpx.AsyncClient, user: tables.User, query: str, **variables: Any) -> Any:
    response = await client.post("", json={"query": query, "variables": variables}, headers={"PRIVATE-TOKEN": token_of(user)})
    return response.json()


def answer_of(*titles: str) -> dict[str, Any]:
    return {"data": {"project": {"issues": {"nodes": [{"title": title} for title in titles]}}}}


class TestQueriesThatAreSentAgain:
    async def test_are_parsed_and_measured_until_they_have_a_plan(
        self,
        client: httpx.AsyncClient,
        parsed: list[bytes],
        owner: tables.User,
        project: tables.Project,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        measured: list[Any] = []
        evaluate = MeasuredOperation.evaluate
        monkeypatch.setattr(MeasuredOperation, "evaluate", lambda self, values: measured.append(values) or evaluate(self, values))
        for _ in range(5):
            assert await send(client, owner, ISSUES, path=str(project.id), first=2) == answer_of("first")
        assert (len(parsed), len(measured)) == (2, 2)

    async def test_have_the_current_rows(
        self, client: httpx.AsyncClient, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        for number in range(4):
            titles = [f"added {each}" for each in reversed(range(number))]
            assert await send(client, owner, ISSUES, path=str(project.id), first=9) == answer_of(*titles, "first")
            await make.issue(project, title=f"added {number}")

    async def test_have_the_rights_of_each_caller(
        self, client: httpx.AsyncClient, parsed: list[bytes], make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        stranger = await make.user()
        for _ in range(4):
            assert await send(client, owner, ISSUES, path=str(project.id)) == answer_of("first")
        assert len(parsed) == 2
        hidden = await send(client, stranger, ISSUES, path=str(project.id))
        assert (hidden["data"], hidden["errors"][0]["extensions"]["code"]) == ({"project": None}, "NOT_FOUND")
        anonymous = await client.post("", json={"query": ISSUES, "variables": {"path": str(project.id)}})
        assert anonymous.status_code == 401
        assert len(parsed) == 2

    async def test_with_other_variables_are_other_requests(
        self, client: httpx.AsyncClient, make: DataFactory, owner: tables.User, project: tables.Project
    ) -> None:
        await make.issue(project, title="second")
        for _ in range(3):
            assert await send(client, owner, ISSUES, path=str(project.id), first=2) == answer_of("second", "first")
            assert await send(client, owner, ISSUES, path=str(project.id), first=1) == answer_of("second")
            assert await send(client, owner, ISSUES, path=str(project.id)) == answer_of("second", "first")

    async def test_are_measured_again_when_their_document_was_dropped(
        self, client: httpx.AsyncClient, graph: Graph, owner: tables.User, project: tables.Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for _ in range(3):
            await send(client, owner, ISSUES, path=str(project.id))
        checked: list[Any] = []
        evaluate = MeasuredOperation.evaluate
        monkeypatch.setattr(MeasuredOperation, "evaluate", lambda self, values: checked.append(values) or evaluate(self, values))
        assert await send(client, owner, ISSUES, path=str(project.id)) == answer_of("first")
        assert checked == []
        graph._documents = DocumentStore()
        for _ in range(3):
            assert await send(client, owner, ISSUES, path=str(project.id)) == answer_of("first")
        # The document needs a plan again, which it has from its second run on.
        assert len(checked) == 2

    async def test_still_need_the_content_type(self, client: httpx.AsyncClient, owner: tables.User, project: tables.Project) -> None:
        body = json.dumps({"query": ISSUES, "variables": {"path": str(project.id)}}).encode()
        headers = {"PRIVATE-TOKEN": token_of(owner), "content-type": "application/json"}
        for _ in range(3):
            assert (await client.post("", content=body, headers=headers)).json() == answer_of("first")
        assert (await client.post("", content=body, headers={**headers, "content-type": "text/plain"})).status_code == 415


class TestRequestsThatAreNotKept:
    async def test_mutations(
        self, client: httpx.AsyncClient, parsed: list[bytes], owner: tables.User, project: tables.Project, make: DataFactory
    ) -> None:
        """Their variables may be passwords, and each is sent once."""
        before = current_usage()[KNOWN_REQUESTS.name]
        for _ in range(4):
            found = await send(client, owner, CREATE, input={"projectPath": str(project.id), "title": "again"})
            assert found == {"data": {"createIssue": {"issue": {"title": "again"}, "userErrors": []}}}
        assert len(parsed) == 4
        assert current_usage()[KNOWN_REQUESTS.name] == before
        assert await make.count(tables.Issue) == 5

    @pytest.mark.parametrize("variables", [{"first": 2}, {"path": "1", "first": "two"}, {"path": "1", "first": 10_000_000}])
    async def test_invalid_ones(
        self, client: httpx.AsyncClient, parsed: list[bytes], owner: tables.User, project: tables.Project, variables: dict[str, Any]
    ) -> None:
        answers = [await send(client, owner, ISSUES, **variables) for _ in range(4)]
        for answer in answers:
            for error in answer["errors"]:
                del error["extensions"]["requestId"]
        assert answers[0]["errors"]
        assert answers[1:] == answers[:1] * 3
        assert len(parsed) == 4

    async def test_large_ones(self, client: httpx.AsyncClient, parsed: list[bytes], owner: tables.User, project: tables.Project) -> None:
        for _ in range(4):
            assert await send(client, owner, ISSUES, path=str(project.id), unused="x" * 8_000) == answer_of("first")
        assert len(parsed) == 4
