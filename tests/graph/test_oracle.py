"""Plans answer made-up queries as graphql-core does: the same bytes, errors and paths.

FORGEFRONT_GENERATED=4000 has so many queries made up for each of five viewers on each database, from the seed FORGEFRONT_SEED on; the
suite makes up a few.
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
from graphql import DocumentNode, OperationDefinitionNode, parse
from starlette.applications import Starlette
from starlette.routing import Mount

import graph as package
import rest_v3
from graph.context import Services
from graph.execute import Graph
from graph.schema import graphql_schema
from rest_v3.routes import EXTRA, ROUTES
from tests.compared import Differs, Oracle, compare_pruned, prepared, valid
from tests.drawn import Drawn, Place, draw
from tests.forge import operations
from tests.generated import Generator
from tests.make import EXTERNAL_URL, Make, token_of
from tests.story import NOW
from tests.town import Town, settle

USUAL = 12
QUERIES = int(os.environ.get("FORGEFRONT_GENERATED", USUAL))
SEED = int(os.environ.get("FORGEFRONT_SEED", "0"))
MOST_DIFFERENCES = 5
VIEWERS = ("owner", "member", "guest", "stranger", "admin")


@pytest.fixture
async def town(make: Make, tmp_path: Path) -> Town:
    return await settle(make, tmp_path / "town.git")


@pytest.fixture
def oracle(services: Services) -> Oracle:
    return Oracle(replace(services, clock=lambda: NOW))


class TestSameAnswers:
    async def test_to_made_up_queries(self, town: Town, oracle: Oracle, dialect: str, capsys: pytest.CaptureFixture[str]) -> None:
        def tell(line: str) -> None:
            with capsys.disabled():
                print(f"{dialect}: {line}", file=sys.stderr, flush=True)

        generator = Generator(graphql_schema, await draw(town, oracle.plain))
        differences: list[str] = []
        told = monotonic()
        for seed in range(SEED, SEED + QUERIES * len(VIEWERS)):
            text, variables = generator.query(seed)
            document = parse(text)
            if seed % 10 == 0:
                valid(document)
            # Some plans are run for everybody.
            for place in range(seed, seed + (len(VIEWERS) if seed % 3 == 0 else 1)):
                try:
                    await compare_pruned(oracle, document, variables, town.viewers[VIEWERS[place % len(VIEWERS)]])
                except Differs as error:
                    differences.append(f"seed {seed}: {error}")
                    tell(differences[-1])
            if len(differences) >= MOST_DIFFERENCES:
                break
            if seed % 500 == 499:
                gc.collect()
            if monotonic() - told > 5:
                told = monotonic()
                tell(f"seed {seed}: {dict(oracle.compared)}")
        if QUERIES > USUAL:
            tell(f"seeds {SEED} to {seed}: {dict(oracle.compared)}")
        assert not differences, "\n\n".join(differences)
        assert oracle.compared["rows"] > oracle.compared["errors"]

    async def test_to_the_calls_of_v3(self, town: Town, oracle: Oracle) -> None:
        drawn = await draw(town, oracle.plain, cursors=False)
        calls = v3_calls(drawn)
        planned, plain = v3(oracle.planned), v3(oracle.plain)
        good: set[str] = set()
        async with planned, plain:
            for who in ("admin", "owner", "guest"):
                for call, path, given in calls:
                    if given and who != "admin":
                        continue
                    headers = {"PRIVATE-TOKEN": token_of(town.viewers[who])}
                    one, other = [await door.get(path, params=given, headers=headers) for door in (plain, planned)]
                    assert (one.status_code, one.content) == (other.status_code, other.content), (who, path, given)
                    assert told(one) == told(other), (who, path, given)
                    if one.status_code == 200:
                        good.add(call)
        assert {call for call, _, _ in calls} == good

    async def test_to_the_dashboard_questions(self, town: Town, oracle: Oracle) -> None:
        variables: dict[str, Any] = {
            "g": "acme", "p": "acme/web", "b": "stable", "since": "2016-03-19T00:00:00Z", "rev": town.story.oids["m3"], "m": "1.0",
            "r": {"since": "2016-03-21T00:00:00Z", "until": "2016-03-28T00:00:00Z"},
        }  # fmt: skip
        document = parse((Path(package.__file__).parent / "documents" / "dashboards.graphql").read_text())
        for node in document.definitions:
            assert isinstance(node, OperationDefinitionNode) and node.name
            if node.operation.value == "query":
                names = {each.variable.name.value for each in node.variable_definitions or ()}
                given = {key: value for key, value in variables.items() if key in names}
                for who in ("owner", "stranger", "admin"):
                    for ref in ({}, {"ref": None}, {"ref": "stable"}) if "ref" in names else ({},):
                        await oracle.compare(prepared(DocumentNode(definitions=(node,))), given | ref, town.viewers[who])
        assert oracle.compared["rows"] >= 20


NOT_TRIED = {"GET /hooks/:id"}
"""It calls the hook."""


def v3(graph: Graph) -> httpx.AsyncClient:
    door = rest_v3.application(graph, external_url=EXTERNAL_URL, operations=operations())
    app = Starlette(routes=[Mount("/api/v3", app=door)])
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=EXTERNAL_URL)


def told(response: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name != "x-request-id"}


def v3_calls(drawn: Drawn) -> list[tuple[str, str, dict[str, Any]]]:
    """Calls of every row that reads, with their parameters: plain, with each parameter that it takes, and of a later page."""
    calls: list[tuple[str, str, dict[str, Any]]] = []
    for route in (*ROUTES, *EXTRA):
        if route.method != "GET" or route.stream is not None or route.call in NOT_TRIED:
            continue
        for place, project in enumerate(drawn.places[:3]):
            keys = keys_of(route.path, project, place, drawn)
            if None in keys.values():
                continue
            path = "/api/v3" + re.sub(r":(\w+)", lambda match, keys=keys: str(keys[match[1]]), route.path)
            more: list[dict[str, Any]] = [{}, {"per_page": 2}, {"per_page": 2, "page": 2}] if place == 0 else [{}]
            for parameter in route.params if place == 0 else ():
                if parameter.name not in route.path_names:
                    more += [{parameter.name: value, "per_page": 3} for value in parameter.words or GIVEN.get(parameter.name, ("true",))]
            calls += [(route.call, path, given) for given in more if (route.call, path, given) not in calls]
    return calls


GIVEN: dict[str, Any] = {
    "labels": ("bug", "bug,Slow"), "iid": (1, 11), "milestone": ("1.0", "0.5"), "ref_name": ("master", "topic"), "stage": ("test",),
    "name": ("unit",), "search": ("e",), "username": ("bob",), "scope": ("failed", "running"),
}  # fmt: skip


def keys_of(path: str, project: Place, place: int, drawn: Drawn) -> dict[str, Any]:
    """Something for each name in the path; None where the project has no such thing."""
    kind = next((kind for kind in ("issue", "merge request", "snippet") if f":{kind.replace(' ', '_')}_id" in path), "issue")
    owner, note = next(iter(project.things[f"{kind} notes"]), (None, None))
    keys: dict[str, Any] = {
        "id": project.path.replace("/", "%2F"),
        "uid": drawn.everywhere["user ids"][1],
        "sha": project.things["shas"][0],
        f"{kind.replace(' ', '_')}_id": owner,
        "milestone_id": next(iter(project.things["milestone ids"]), None),
        "build_id": next(iter(project.things["build ids"]), None),
        "note_id": note,
    }
    if path.startswith("/groups"):
        keys["id"] = drawn.everywhere["groups"][0]
    elif path.startswith("/user"):
        owned = "key ids" if "/keys" in path else "email ids" if "/emails" in path else "user ids"
        keys["id"] = drawn.everywhere[owned][-1 - place]
    return keys
