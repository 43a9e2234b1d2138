"""A mutation runs once, whether a plan, graphql-core, or both in turn answer; the answers are equal."""

from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pytest

from graph.context import Services
from graph.errors import Unavailable
from graph.operations.execution import Graph, OperationResult
from storage import tables
from tests.make import DataFactory, token_of

ANSWER = """{
  again: __typename
  note { body system author { username } issue { title notes { totalCount nodes { body } } } viewerCan { update } ...more }
  userErrors { field message code }
}"""
NOTE = f"""mutation ($path: String!, $iid: Int!, $body: String!) {{
  created: createNote(input: {{projectPath: $path, issueIid: $iid, body: $body}}) {ANSWER}
}}
fragment more on Note {{ noteableType upvote }}"""


class TwinIssues:
    """Two equal issues; a plan answers for the one, graphql-core for the other. `left` counts what the plan left to graphql-core."""

    def __init__(self, services: Services, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        self.services, self.make, self.fallback_count = services, make, 0
        execute: Callable[..., Any] = Graph._execute

        async def counted(graph: Graph, *arguments: Any) -> Any:
            self.fallback_count += graph.planner
            return await execute(graph, *arguments)

        monkeypatch.setattr(Graph, "_execute", counted)
        # Each is run once, and planned for that.
        monkeypatch.setattr("graph.planner.cache.MIN_RUNS_TO_PLAN", 1)

    async def create_rows(self) -> None:
        self.owner = await self.make.user("owner")
        self.project = await self.make.project(owner=self.owner)
        for _ in range(2):
            await self.make.issue(self.project, title="One of two", author=self.owner)

    async def run_both(
        self, query: str, viewer: tables.User | None = None, *, ids: Sequence[int] = (0, 0), **variables: Any
    ) -> OperationResult:
        """The outcome of both, which is the same. `ids` are those of two other equal things."""
        found = []
        for iid, planner in ((1, True), (2, False)):
            all_variables = {"path": str(self.project.id), "iid": iid, "id": ids[iid - 1], **variables}
            graph = Graph(self.services, planner=planner)
            found.append(await graph.run_document(query, all_variables, None, token_of(viewer or self.owner), request_id="test"))
        planned, expected = found
        assert (orjson.dumps(planned.data), planned.errors) == (orjson.dumps(expected.data), expected.errors)
        return planned


@pytest.fixture
async def twins(services: Services, make: DataFactory, monkeypatch: pytest.MonkeyPatch) -> TwinIssues:
    twins = TwinIssues(services, make, monkeypatch)
    await twins.create_rows()
    return twins


class TestEqualAnswers:
    async def test_to_changes(self, twins: TwinIssues) -> None:
        outcome = await twins.run_both(NOTE, body="As #1 says")

        assert outcome.errors == []
        assert outcome.data is not None
        assert outcome.data["created"]["note"]["author"] == {"username": "owner"}
        assert twins.fallback_count == 0

    async def test_to_deletions(self, twins: TwinIssues) -> None:
        """The row is gone when its relations are read; they are those that it had."""
        snippets = [await twins.make.snippet(twins.project, author=twins.owner, title="One of two") for _ in range(2)]
        query = """mutation ($path: String!, $id: Int!) { deleteSnippet(input: {projectPath: $path, databaseId: $id}) {
          snippet { title author { username emails { nodes { id } } } project { name owner { id }} } userErrors { code } } }"""
        outcome = await twins.run_both(query, ids=[snippet.id for snippet in snippets])

        assert outcome.errors == []
        assert outcome.data is not None
        snippet = outcome.data["deleteSnippet"]["snippet"]
        assert (snippet["author"]["username"], snippet["project"]["name"]) == ("owner", twins.project.name)
        assert twins.fallback_count == 0

    async def test_to_user_errors(self, twins: TwinIssues) -> None:
        outcome = await twins.run_both(NOTE, body=" ")

        assert outcome.data == {
            "created": {
                "again": "CreateNotePayload",
                "note": None,
                "userErrors": [{"field": "body", "message": "can't be blank", "code": "REQUIRED"}],
            }
        }
        assert (twins.fallback_count, await twins.make.count(tables.Note)) == (0, 0)

    async def test_to_the_same_vote_twice(self, twins: TwinIssues) -> None:
        for codes in ([], ["TAKEN"]):
            outcome = await twins.run_both(NOTE, body=":+1:")
            assert outcome.data is not None
            assert [error["code"] for error in outcome.data["created"]["userErrors"]] == codes
        assert await twins.make.count(tables.Note) == 2

    async def test_to_operation_errors(self, twins: TwinIssues) -> None:
        outcome = await twins.run_both(NOTE, await twins.make.user("stranger"), body="x")

        assert (outcome.data, [(error.code, error.path) for error in outcome.errors]) == (None, [("NOT_FOUND", ["created"])])

    async def test_to_invalid_values(self, twins: TwinIssues) -> None:
        assert [error.code for error in (await twins.run_both(NOTE, body=1)).errors] == ["BAD_REQUEST"]
        assert await twins.make.count(tables.Note) == 0


class TestFallback:
    @pytest.mark.parametrize(("error", "code", "fallbacks"), [(Unavailable(), "UNAVAILABLE", 0), (KeyError("secret"), "INTERNAL", 1)])
    async def test_when_the_payload_fails(
        self, twins: TwinIssues, monkeypatch: pytest.MonkeyPatch, error: Exception, code: str, fallbacks: int
    ) -> None:
        async def fails(*_: Any) -> bool:
            raise error

        monkeypatch.setattr("graph.types.notes.can", fails)
        outcome = await twins.run_both(NOTE, body="x")

        # The note is null, since what it shows of itself may not be; it is there all the same, once.
        assert outcome.data == {"created": {"again": "CreateNotePayload", "note": None, "userErrors": []}}
        assert [(error.code, error.path) for error in outcome.errors] == [(code, ["created", "note", "viewerCan"])]
        assert (twins.fallback_count, await twins.make.count(tables.Note)) == (fallbacks, 2)

    async def test_when_the_mutation_fails(self, twins: TwinIssues, monkeypatch: pytest.MonkeyPatch) -> None:
        requested = []

        async def fails(*arguments: Any) -> None:
            requested.append(arguments)
            raise KeyError("what only we should see")

        monkeypatch.setattr("graph.rules.notes.notes.publish", fails)
        outcome = await twins.run_both(NOTE, body="x")

        assert (outcome.data, [(error.code, error.path) for error in outcome.errors]) == (None, [("INTERNAL", ["created"])])
        assert (len(requested), await twins.make.count(tables.Note)) == (2, 0)
