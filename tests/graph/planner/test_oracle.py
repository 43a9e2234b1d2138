"""Plans answer generated queries as graphql-core does: the same bytes, errors and paths.

FORGEFRONT_GENERATED=4000 generates this number of queries for each of five viewers on each database, from the seed FORGEFRONT_SEED on; the
suite makes up a few, half of them for each database.
"""

import gc
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest
from graphql import DocumentNode, GraphQLError, OperationDefinitionNode, coerce_input_value, get_named_type, parse
from starlette.applications import Starlette
from starlette.routing import Mount

import graph as package
import rest_v3
from graph.context import Services
from graph.fields import entities
from graph.operations.execution import Graph
from graph.schema import graphql_schema
from rest_v3.routes import EXTRA_ROUTES, ROUTES
from storage.database.statements.compiled_statements import SqlDialect
from tests.make import EXTERNAL_URL, DataFactory, token_of
from tests.support.api_clients import route_operations
from tests.support.database.database_selection import half_for_dialect
from tests.support.queries.arguments import ArgumentPool, ProjectArguments, collect_arguments, list_queries
from tests.support.queries.edge_case_data import EdgeCaseData, create_edge_cases
from tests.support.queries.oracle import AnswersDiffer, PlanOracle, compare_pruned, prepare_document, require_valid
from tests.support.queries.query_generator import ARGUMENT_SOURCES, QueryGenerator, missing_values
from tests.support.week_fixture import NOW, WeekData, create_week

DEFAULT_QUERY_COUNT = 12
QUERIES = int(os.environ.get("FORGEFRONT_GENERATED", DEFAULT_QUERY_COUNT))
SEED = int(os.environ.get("FORGEFRONT_SEED", "0"))
MAX_DIFFERENCES = 5
VIEWERS = ("owner", "member", "guest", "stranger", "admin")


@pytest.fixture
async def edge_cases(make: DataFactory, tmp_path: Path) -> EdgeCaseData:
    return await create_edge_cases(make, tmp_path / "town.git")


@pytest.fixture
async def week(make: DataFactory, tmp_path: Path) -> WeekData:
    return await create_week(make, tmp_path / "story.git")


@pytest.fixture
def oracle(services: Services) -> PlanOracle:
    return PlanOracle(replace(services, clock=lambda: NOW))


class TestEqualAnswers:
    async def test_to_random_queries(
        self, edge_cases: EdgeCaseData, oracle: PlanOracle, dialect: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def report(line: str) -> None:
            with capsys.disabled():
                print(f"{dialect}: {line}", file=sys.stderr, flush=True)

        generator = QueryGenerator(graphql_schema, await collect_arguments(edge_cases, oracle.reference_graph))
        differences: list[str] = []
        reported = monotonic()
        seeds = range(SEED, SEED + QUERIES * len(VIEWERS))
        # In the suite each database answers other queries, in blocks, since every fourth query names missing objects.
        for seed in seeds if QUERIES > DEFAULT_QUERY_COUNT else [each for each in seeds if each // 4 % 2 == (dialect == "sqlite")]:
            text, variables = generator.query(seed)
            document = parse(text)
            # Not a multiple of 4: every fourth query names missing objects.
            if seed % 9 == 0:
                require_valid(document)
            # Some plans are run for everybody.
            for viewer_index in range(seed, seed + (len(VIEWERS) if seed % 3 == 0 else 1)):
                try:
                    await compare_pruned(oracle, document, variables, edge_cases.viewers[VIEWERS[viewer_index % len(VIEWERS)]])
                except AnswersDiffer as error:
                    differences.append(f"seed {seed}: {error}")
                    report(differences[-1])
            if len(differences) >= MAX_DIFFERENCES:
                break
            if seed % 500 == 499:
                gc.collect()
            if monotonic() - reported > 5:
                reported = monotonic()
                report(f"seed {seed}: {dict(oracle.comparison_counts)}")
        if QUERIES > DEFAULT_QUERY_COUNT:
            report(f"seeds {SEED} to {seed}: {dict(oracle.comparison_counts)}")
        assert not differences, "\n\n".join(differences)
        counts = oracle.comparison_counts
        is_large = QUERIES > DEFAULT_QUERY_COUNT
        # Half a small number of queries may have more errors than the whole.
        assert counts["rows"] * (1 if is_large else 2) > counts["errors"] + counts["refusals"]
        assert counts["refusals"] >= (QUERIES if is_large else 1)

    async def test_to_the_calls_of_v3(self, edge_cases: EdgeCaseData, oracle: PlanOracle, dialect: str) -> None:
        drawn = await collect_arguments(edge_cases, oracle.reference_graph, cursors=False)
        calls = v3_calls(drawn, dialect)
        planned, plain = v3(oracle.planned_graph), v3(oracle.reference_graph)
        good: set[str] = set()
        async with planned, plain:
            for who in ("admin", "guest", *half_for_dialect(("owner",), dialect, 1)):
                for call, path, parameters in calls:
                    if parameters and who != "admin":
                        continue
                    headers = {"PRIVATE-TOKEN": token_of(edge_cases.viewers[who])}
                    one, other = [await app.get(path, params=parameters, headers=headers) for app in (plain, planned)]
                    assert (one.status_code, one.content) == (other.status_code, other.content), (who, path, parameters)
                    assert comparable_headers(one) == comparable_headers(other), (who, path, parameters)
                    if one.status_code == 200:
                        good.add(call)
        assert {call for call, _, _ in calls} == good

    async def test_to_the_dashboard_queries(self, edge_cases: EdgeCaseData, oracle: PlanOracle, dialect: str) -> None:
        variables: dict[str, Any] = {
            "g": "acme", "p": "acme/web", "b": "stable", "since": "2016-03-19T00:00:00Z", "rev": edge_cases.week.oids["m3"], "m": "1.0",
            "r": {"since": "2016-03-21T00:00:00Z", "until": "2016-03-28T00:00:00Z"},
        }  # fmt: skip
        document = parse((Path(package.__file__).parent / "documents" / "dashboards" / "dashboards.graphql").read_text())
        for index, node in enumerate(document.definitions):
            assert isinstance(node, OperationDefinitionNode) and node.name
            if node.operation.value == "query":
                names = {each.variable.name.value for each in node.variable_definitions or ()}
                declared = {key: value for key, value in variables.items() if key in names}
                refs: list[dict[str, Any]] = [{}, {"ref": None}, {"ref": "stable"}] if "ref" in names else [{}]
                for turn, who in enumerate(("owner", "stranger", "admin")):
                    # A query that takes no ref is run by all on one database.
                    for ref in half_for_dialect(refs, dialect, index + turn * (len(refs) > 1)):
                        await oracle.compare(prepare_document(DocumentNode(definitions=(node,))), declared | ref, edge_cases.viewers[who])
        assert oracle.comparison_counts["rows"] >= 10


class TestGeneratedArguments:
    @pytest.mark.parametrize("path", ARGUMENT_SOURCES)
    def test_of_missing_objects_have_the_type_of_the_argument(self, path: str) -> None:
        type_name, *field_path = path.split(".")
        kind: Any = graphql_schema.type_map[type_name].fields[field_path[0]]  # type: ignore[union-attr]
        kind = get_named_type(kind.args[field_path[1]].type if field_path[1:] else kind.type)
        for value in missing_values(ARGUMENT_SOURCES[path], kind):
            assert coerce_input_value(value, kind) == value

    async def test_of_a_wrong_type_are_not_reported_as_a_difference(self, oracle: PlanOracle, week: WeekData) -> None:
        """graphql-core does not reach the argument, and a plan is not compiled."""
        document = parse('{ project(path: "0") { upload(secret: "x", name: 1) { name } } }')
        with pytest.raises(GraphQLError, match="String cannot represent a non string value"):
            await compare_pruned(oracle, document, {}, week.ann)


class TestCursors:
    """Plans and graphql-core share the code of cursors, so an error of it is no difference: lists are compared with their pages."""

    async def test_pages_continue_where_the_cursor_is(self, edge_cases: EdgeCaseData, oracle: PlanOracle, dialect: str) -> None:
        pool = await collect_arguments(edge_cases, oracle.reference_graph, cursors=False)
        credential, continued = token_of(edge_cases.viewers["admin"]), set()
        queries = list(list_queries(pool.ids, "cursor node { __typename }"))
        # Lists of two objects of each type are queried, which differ in nothing but their rows.
        shared = half_for_dialect([query for query in queries if not query.field_path.startswith("Query.")], dialect, 0)
        for query in (*shared, *(query for query in queries if query.field_path.startswith("Query."))):
            whole = await query.edges(oracle.planned_graph, credential, "first: 100")
            cursors = [edge["cursor"] for edge in whole]
            assert len(set(cursors)) == len(cursors), query
            if len(cursors) < 2:
                continue
            index = len(cursors) // 2
            after = await query.edges(oracle.planned_graph, credential, f'first: 100, after: "{cursors[index]}"')
            assert after == whole[index + 1 :], query
            if query.goes_backward:
                before = await query.edges(oracle.planned_graph, credential, f'last: 100, before: "{cursors[index]}"')
                assert before == whole[:index], query
            continued.add(query.field_path)
        assert len(continued) > 15


class TestSharedCode:
    """Plans and graphql-core share no serializers: one that is broken on either side is a difference."""

    ROWS = 'project(path: "acme/web") { issues { nodes { id iid title state createdAt } } builds { nodes { allowFailure } } }'
    OBJECT = "viewer { id databaseId name state createdAt isAdmin }"
    LABELS = 'project(path: "acme/web") { issues { nodes { labels } } }'

    @pytest.mark.parametrize("text", [ROWS, OBJECT])
    async def test_broken_serializers_of_the_schema(self, oracle: PlanOracle, week: WeekData, text: str) -> None:
        operation = prepare_document(parse(f"{{ {text} }}"))
        for names in ("ID", "Int", "String", "IssueState UserState", "DateTime", "Boolean"):
            await oracle.compare(operation, {}, week.ann)
            with pytest.MonkeyPatch.context() as patch:
                for each in names.split():
                    patch.setattr(graphql_schema.type_map[each], "coerce_output_value", lambda value: "broken")
                with pytest.raises(AnswersDiffer):
                    await oracle.compare(operation, {}, week.ann)

    async def test_a_broken_global_id(self, oracle: PlanOracle, week: WeekData, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(entities, "global_id", lambda name, key: f"{name}:{key}")
        with pytest.raises(AnswersDiffer):
            await oracle.compare(prepare_document(parse(f"{{ {self.ROWS} }}")), {}, week.ann)

    async def test_a_broken_list_of_a_plan(
        self, oracle: PlanOracle, week: WeekData, make: DataFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await make.issue(week.web, labels=[await make.label(week.web, "bug")])
        monkeypatch.setattr(SqlDialect, "list_decoder", lambda self, statement: lambda values: [[] for _ in values])
        with pytest.raises(AnswersDiffer):
            await oracle.compare(prepare_document(parse(f"{{ {self.LABELS} }}")), {}, week.ann)


EXCLUDED_CALLS = {"GET /hooks/:id"}
"""It calls the hook."""


def v3(graph: Graph) -> httpx.AsyncClient:
    app_ = rest_v3.create_app(graph, external_url=EXTERNAL_URL, operations=route_operations())
    app = Starlette(routes=[Mount("/api/v3", app=app_)])
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=EXTERNAL_URL)


def comparable_headers(response: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name != "x-request-id"}


def v3_calls(drawn: ArgumentPool, dialect: str | None = None) -> list[tuple[str, str, dict[str, Any]]]:
    """Calls of every row that reads, with their parameters: plain, with each parameter that it takes, and of a later page.

    In the suite each database gets half of those with parameters that may be omitted. Without a dialect there are none of these.
    """
    calls: list[tuple[str, str, dict[str, Any]]] = []
    for route in (*ROUTES, *EXTRA_ROUTES):
        if route.method != "GET" or route.file_key is not None or route.call in EXCLUDED_CALLS:
            continue
        for index, project in enumerate(drawn.projects[:3]):
            keys = path_values(route.path, project, index, drawn)
            if None in keys.values():
                continue
            path = "/api/v3" + re.sub(r":(\w+)", lambda match, keys=keys: str(keys[match[1]]), route.path)
            others = [parameter for parameter in route.params if parameter.name not in route.path_names]
            needed = {
                each.name: REQUIRED_VALUES.get(each.name, project.values.get("files", [""])[0]) for each in others if each.is_required
            }
            more: list[dict[str, Any]] = [{"per_page": 2}, {"per_page": 2, "page": 2}] if index == 0 else []
            for parameter in others if index == 0 else ():
                more += [
                    {parameter.name: value, "per_page": 3}
                    for value in parameter.allowed_words or PARAMETER_VALUES.get(parameter.name, ("true",))
                ]
            more = [{}, *(half_for_dialect(more, dialect, len(route.call)) if dialect is not None else ())]
            calls += [each for values in more if (each := (route.call, path, needed | values)) not in calls]
    return calls


REQUIRED_VALUES = {"ref": "master", "from": "master", "to": "master"}
"""Of parameters without which a call is refused; others are paths of files."""

PARAMETER_VALUES: dict[str, Any] = {
    "labels": ("bug", "bug,Slow"), "iid": (1, 11), "milestone": ("1.0", "0.5"), "ref_name": ("master", "topic"), "stage": ("test",),
    "name": ("unit",), "search": ("e",), "username": ("bob",), "scope": ("failed", "running"), "path": ("docs",),
}  # fmt: skip


def path_values(path: str, project: ProjectArguments, project_arguments: int, drawn: ArgumentPool) -> dict[str, Any]:
    """Something for each name in the path; None where the project has no such thing."""
    kind = next((kind for kind in ("issue", "merge request", "snippet") if f":{kind.replace(' ', '_')}_id" in path), "issue")
    owner, note = next(iter(project.values[f"{kind} notes"]), (None, None))
    keys: dict[str, Any] = {
        "id": project.path.replace("/", "%2F"),
        "uid": drawn.shared_values["user ids"][1],
        "sha": project.values["shas"][0],
        f"{kind.replace(' ', '_')}_id": owner,
        "milestone_id": next(iter(project.values["milestone ids"]), None),
        "build_id": next(iter(project.values["build ids"]), None),
        "note_id": note,
        "key": next(iter(project.values["variable keys"]), None),
        "token": next((token.replace(" ", "%20") for token in project.values["trigger tokens"]), None),
        "branch": "master",
        "query": "e",
    }
    for name, values in (
        ("user_id", project.values["member ids"]),
        ("hook_id", project.values["project hook ids"]),
        ("key_id", project.values["deploy key ids"]),
    ):
        if f":{name}" in path:
            keys[name] = next(iter(values), None)
    if path.startswith("/groups"):
        keys["id"] = drawn.shared_values["groups"][0]
    elif path.startswith("/runners"):
        keys["id"] = drawn.shared_values["runner ids"][project_arguments]
    elif path.startswith(("/user", "/keys")):
        owned = "key ids" if "/keys" in path else "email ids" if "/emails" in path else "user ids"
        keys["id"] = drawn.shared_values[owned][-1 - project_arguments]
    return keys
