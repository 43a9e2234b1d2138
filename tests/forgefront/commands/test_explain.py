"""`forgefront explain`: the tree of nodes, the SQL of each, the reasons for resolvers, and what a run adds."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from forgefront.cli import main
from tests.forgefront.support.cli_runner import CommandRunner

pytestmark = pytest.mark.usefixtures("isolated_environment")

ISSUES = """query ($path: String!) { project(path: $path) { issues(first: 20) { totalCount
    nodes { iid webUrl viewerCan { update } author { username } notes(first: 2) { nodes { body } } } } } }"""
VARIABLES = '{"path": "acme/web"}'


def run(*arguments: str, code: int = 0) -> str:
    """What the command prints, on either stream."""
    result = CliRunner().invoke(main, ["explain", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def nodes_by_key(nodes: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for node in nodes:
        found |= {node["key"]: node, **nodes_by_key(node["children"])}
    return found


class TestPlan:
    @pytest.mark.parametrize(("dialect", "parameter"), [("sqlite", "?"), ("postgresql", "$1")])
    def test_shows_nodes_and_the_sql_of_each(self, dialect: str, parameter: str) -> None:
        printed = run(ISSUES, "--variables", VARIABLES, "--dialect", dialect)
        assert "project: project root" in printed
        assert "issues: page" in printed
        assert "author: joined row" in printed
        assert f"= {parameter}" in printed
        assert "'acme', 'web'" in printed

    def test_says_why_a_resolver_computes_a_field(self) -> None:
        printed = run(ISSUES, "--variables", VARIABLES)
        assert "viewerCan (Issue.viewerCan): resolver" in printed
        assert "why: it is computed in Python; the field declares no columns (column, to_one, to_many, from_columns=)" in printed
        assert "webUrl (Issue.webUrl): batch resolver" in printed

    def test_joins_a_page_to_the_project_on_postgresql(self) -> None:
        assert "joined to the project's statement" in run(ISSUES, "--variables", VARIABLES, "--dialect", "postgresql")
        assert "joined to the project's statement" not in run(ISSUES, "--variables", VARIABLES, "--dialect", "sqlite")

    def test_pages_of_several_parents(self) -> None:
        printed = run('{ project(path: "acme/web") { milestones { nodes { issues(first: 2) { nodes { iid } } } } } }')
        assert "issues: pages of several parents" in printed
        assert "'<parents0>'" in printed

    def test_of_a_v3_call(self) -> None:
        printed = run("--v3", "GET /projects/3/issues?state=opened", "--dialect", "postgresql")
        assert "project root" in printed
        assert "FROM issues" in printed

    def test_of_a_mutation_has_relations(self) -> None:
        payload = "issue { iid author { name } milestone { title } }"
        printed = run(f'mutation {{ updateIssue(input: {{projectPath: "a/b", iid: 1, title: "x"}}) {{ {payload} }} }}')
        assert "author, milestone: relations of objects" in printed

    def test_of_v3_calls_of_several_sections(self) -> None:
        for call in ("GET /groups", "GET /groups/3", "GET /user", "GET /projects/3/merge_requests", "GET /projects/3/builds"):
            assert run("--v3", call)

    def test_json(self, cli: CommandRunner) -> None:
        explained = cli.json("explain", ISSUES, "--variables", VARIABLES)
        nodes = nodes_by_key(explained["nodes"])
        assert nodes["issues"]["statements"][0]["sql"].startswith("SELECT")
        assert nodes["viewerCan"]["reason"]
        assert "milliseconds" not in nodes["issues"]


class TestWrongUsage:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((), "give either a GraphQL document or --v3"),
            (("{ viewer { name } }", "--v3", "GET /user"), "give either"),
            (("{ viewer { name } }", "--dialect", "oracle"), "--dialect is sqlite or postgresql, not 'oracle'"),
            (("{ viewer { name } }", "--variables", "[]"), "--variables is not a JSON object"),
            (("--v3", "GET /user", "--variables", "{}"), "--variables and --operation belong to a GraphQL document"),
            (("--v3", "GET /user", "--operation", "User"), "--variables and --operation belong to a GraphQL document"),
            (("{ viewer { name } }", "--as", "ann"), "--as needs --analyze"),
            (("query A { viewer { name } } query B { viewer { name } }",), "--operation"),
        ],
    )
    def test_ends_with_code_2(self, arguments: tuple[str, ...], message: str) -> None:
        assert message in run(*arguments, code=2)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("{ absent }",), "Cannot query field 'absent'"),
            (("{",), "Syntax Error"),
            ((ISSUES,), "Variable '$path'"),
            ((ISSUES, "--variables", '{"path": 3}'), "Variable '$path' has invalid value: String cannot represent"),
            (("--v3", "GET /nothing"), "no route matches GET /nothing"),
            (('{ project(path: "a/b") { issue { iid } } }',), "Give either `iid` or `databaseId`."),
            (('{ project(path: "a/b") { issues(after: "x") { totalCount } } }',), "cursor"),
            (("@/nowhere.graphql",), "cannot be read"),
        ],
    )
    def test_a_wrong_operation_ends_with_code_1(self, arguments: tuple[str, ...], message: str) -> None:
        assert message in run(*arguments, code=1)


class TestAnalyze:
    def test_adds_rows_times_and_the_plan_of_the_database(self, cli: CommandRunner) -> None:
        cli("admin", "group", "create", "acme")
        cli("admin", "project", "create", "acme/web")
        explained = cli.json("explain", ISSUES, "--variables", VARIABLES, "--analyze")
        assert "stopped" not in explained
        nodes = nodes_by_key(explained["nodes"])
        (statement,) = nodes["project"]["statements"]
        assert statement["rows"] == 1
        assert any("projects" in line for line in statement["database_plan"])
        assert nodes["issues"]["values"] == 1
        assert nodes["issues"]["statements"][0]["rows"] == 0
        assert explained["milliseconds"] >= nodes["project"]["milliseconds"] >= nodes["issues"]["milliseconds"]
        printed = cli("explain", ISSUES, "--variables", VARIABLES, "--analyze").stdout
        assert "0 rows, " in printed
        assert "> SEARCH" in printed

    def test_a_project_that_does_not_exist_stops_the_run(self, cli: CommandRunner) -> None:
        result = cli("explain", ISSUES, "--variables", '{"path": "no/such"}', "--analyze", "--json", code=1)
        assert "Project not found" in json.loads(result.stdout)["stopped"]
        assert result.stderr == "forgefront: Project not found.\n"
        result = cli("explain", ISSUES, "--variables", '{"path": "no/such"}', "--analyze", code=1)
        assert "project: project root" in result.stdout and result.stderr == "forgefront: Project not found.\n"

    def test_a_mutation_is_not_run(self, cli: CommandRunner) -> None:
        text = 'mutation { createGroup(input: {name: "x", path: "x"}) { group { name } } }'
        assert "only a query can be analyzed" in cli("explain", text, "--analyze", code=1).stderr
