"""A v3 call as an operation of the graph: it is the one that the endpoint runs, for every row."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from forgefront.cli import main
from forgefront.commands.translate import create_translator
from graph.operations.execution import Graph
from rest_v3.requests.params import RouteParameter
from rest_v3.route import Route
from rest_v3.routes import EXTRA_ROUTES, ROUTES
from rest_v3.translation import RejectedCallError, Translator, UnknownCallError
from storage.tables import CheckStatus, IssueState
from tests.make import DataFactory, token_of
from tests.support.api_clients import Api


@pytest.fixture(scope="module")
def translator() -> Translator:
    return create_translator("document")


def value_of(parameter: RouteParameter) -> str:
    """One that can be read."""
    if parameter.allowed_words:
        return parameter.allowed_words[0]
    if parameter.name == "access_level":
        return "30"
    return {"integer": "1", "integers": "1", "boolean": "true", "date": "2016-01-19"}.get(parameter.kind, "text")


def readable(route: Route) -> tuple[str, str, str]:
    """A valid call of a row with all its parameters: method, path, body."""
    values = {parameter.name: value_of(parameter) for parameter in route.params if parameter.kind != "file"}
    kinds = {parameter.name: parameter.kind for parameter in route.params}
    if route.call == "PUT /application/settings":
        values = {"home_page_url": "http://forge.example"}
    values = {f"{name}[K]" if kinds[name] == "pairs" else name: value for name, value in values.items()}
    path = "/".join(values.pop(part[1:]) if part.startswith(":") else part for part in route.path.split("/"))
    sent = "&".join(f"{name}={value}" for name, value in values.items())
    return (route.method, f"{path}?{sent}", "") if route.method == "GET" else (route.method, path, sent)


class TestEveryRow:
    async def test_runs_its_own_operation(self, translator: Translator) -> None:
        for route in (*ROUTES, *EXTRA_ROUTES):
            found = await translator.translate(*readable(route))
            assert (found.call, found.operation) == (route.call, route.operation)
            assert found.query.count("fragment ") <= found.query.count("...")
            assert all(f"${name}" in found.query for name in found.variables)
            assert found.notes
            assert found.can_run_as_graphql is (route.call != "POST /projects/:id/uploads")


class TestTranslation:
    async def test_a_list(self, translator: Translator, api: Api, graph: Graph, make: DataFactory) -> None:
        owner = await make.user()
        project = await make.project(owner=owner, builds_enabled=True)
        for status in (CheckStatus.FAILED, CheckStatus.SUCCESS, CheckStatus.FAILED):
            await make.build(project, "f" * 40, status=status)
        call = f"/projects/{project.id}/builds?scope=failed&per_page=1&page=2"
        found = await translator.translate("get", f"http://forge.example/api/v3{call}")
        assert (found.variables["first"], found.variables["offset"], found.variables["scope"]) == (1, 1, ["FAILED"])
        outcome = await graph.run_document(found.query, dict(found.variables), None, token_of(owner), request_id="test")
        answered = (await api.request("GET", call, owner)).json()
        assert outcome.data is not None
        assert [each["id"] for each in outcome.data["project"]["builds"]["nodes"]] == [each["id"] for each in answered] == [1]

    @pytest.mark.parametrize("body", ["state_event=close&labels=a%2Cb", '{"state_event": "close", "labels": ["a", "b"]}'])
    async def test_a_change(self, translator: Translator, graph: Graph, make: DataFactory, body: str) -> None:
        project = await make.project(owner=(owner := await make.user()))
        issue = await make.issue(project)
        found = await translator.translate("PUT", f"/projects/{project.id}/issues/{issue.id}", body)
        assert found.variables == {"id": str(project.id), "issue_id": issue.id, "labels": ["a", "b"], "state_event": "CLOSE"}
        outcome = await graph.run_document(found.query, dict(found.variables), None, token_of(owner), request_id="test")
        assert outcome.errors == []
        changed: Any = await make.fetch(type(issue), issue.id)
        assert changed.state is IssueState.CLOSED


class TestUntranslatableCalls:
    @pytest.mark.parametrize(
        ("call", "status", "body"),
        [
            (("POST", "/projects/1/issues"), 400, {"message": '400 (Bad request) "title" not given'}),
            (("PUT", "/projects/1/issues/1", "state_event=no"), 400, {"message": {"state_event": ["is not included in the list"]}}),
            (("GET", "/projects/1/builds?scope=no"), 400, {"message": "Scope contains invalid value(s)"}),
            (("POST", "/projects/1/issues", "{"), 400, {"message": "400 Bad Request: the body is not JSON"}),
            (("POST", "/projects/1/issues", "title=\udcff"), 400, {"message": "400 Bad Request: a parameter is not UTF-8"}),
        ],
    )
    async def test_a_parameter_that_v3_rejects(self, translator: Translator, call: tuple[str, ...], status: int, body: Any) -> None:
        with pytest.raises(RejectedCallError) as refused:
            await translator.translate(*call)
        assert (refused.value.status, refused.value.body) == (status, body)

    async def test_a_call_that_no_row_answers(self, translator: Translator) -> None:
        with pytest.raises(UnknownCallError) as unknown:
            await translator.translate("GET", "/project/3/build")
        assert unknown.value.suggestions[0] == "GET /projects/:id/builds"
        with pytest.raises(UnknownCallError, match="no route matches"):
            await translator.translate("GET", "http://[forge/api/v3/projects")
        with pytest.raises(UnknownCallError, match="this path allows GET"):
            await translator.translate("POST", "/projects/3/builds")


class TestCommand:
    def test_prints_it(self) -> None:
        def run_command(*arguments: str, code: int = 0) -> str:
            result = CliRunner().invoke(main, ["translate", *arguments])
            assert result.exit_code == code, result.output
            return result.stdout if code == 0 else result.stderr

        text = run_command("GET /projects/3/builds?scope=failed")
        assert text.startswith("# GET /projects/:id/builds\nquery ProjectBuilds(")
        assert '# Variables\n{\n  "id": "3",\n  "scope": [\n    "FAILED"\n  ],\n  "first": 20,\n  "offset": 0\n}\n# Before' in text
        output = json.loads(run_command("PUT /projects/3/issues/41", "-d", "state_event=close", "-d", "title=A b", "--json"))
        assert output["variables"] == {"id": "3", "issue_id": 41, "title": "A b", "state_event": "CLOSE"}
        assert run_command("GET /user", "--curl", "--url", "http://x/").startswith('curl -H "PRIVATE-TOKEN: $TOKEN" -H ')
        assert "takes a file" in run_command("POST /projects/1/uploads", "--curl", code=1)
        assert "400: " in run_command("POST /projects/1/issues", code=1)
        assert "GET /projects/:id/builds" in run_command("GET /projects/1/bilds", code=1)
        assert "write the method and the path" in run_command("/projects/1", code=2)
        assert "sends no body" in run_command("GET /projects/1", "-d", "a=b", code=2)
        assert "unknown profile" in run_command("GET /user", "--profile", "x", code=2)
