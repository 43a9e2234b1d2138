"""Hostile requests to every route: none fails with 5xx or changes data, and every body is JSON."""

import json
from collections.abc import AsyncIterator, Callable
from itertools import cycle
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from ci_v1.routes import ROUTES
from rest_v3.route import Route
from storage import tables
from tests.ci_v1.conftest import LegacyRunner
from tests.ci_v1.shapes import check_shape
from tests.make import DataFactory
from tests.rest_v3.endpoint.test_hostile import BODIES, LITERALS, PARTS_OF_PATHS, QUERIES, WORST_LITERALS
from tests.support.queries.fuzz_values import FUZZ_NUMBERS, FUZZ_STRINGS, FUZZ_TIMESTAMPS

PROXY = {"Gitlab-Workhorse": "1"}
CheckAnswer = Callable[[httpx.Response], None]


@pytest.fixture
async def check_answer(make: DataFactory, runner_with_build: LegacyRunner) -> AsyncIterator[CheckAnswer]:
    """Holds each answer to the rule; at the end the build goes on with what it had, and no runner came or went."""

    def check_answer(response: httpx.Response) -> None:
        assert response.status_code < 500, (response.request.url, response.request.content[:200], response.text)
        if response.status_code >= 400:
            check_shape("Error", response.json())

    yield check_answer
    row = await make.fetch(tables.Build, runner_with_build.build["id"])
    assert row is not None and row.status is tables.CheckStatus.RUNNING
    async with make.services.database.read_session() as session:
        assert await session.scalar(select(func.count()).select_from(tables.Runner)) == 1


def path_of(route: Route, running: LegacyRunner) -> str:
    return route.path[1:].replace(":id", str(running.build["id"]))


def token_for(route: Route, running: LegacyRunner) -> str:
    """One that is good for the row; of those that make or remove runners, none is."""
    if "runners/" in route.path:
        return "wrong"
    return running.build["token"] if "artifacts" in route.path else running.token


CALLS = [pytest.param(route, id=route.call) for route in ROUTES if route.call != "POST /builds/register"]


@pytest.mark.parametrize("route", CALLS)
async def test_values(ci: httpx.AsyncClient, runner_with_build: LegacyRunner, check_answer: CheckAnswer, route: Route) -> None:
    path, token = path_of(route, runner_with_build), token_for(route, runner_with_build)
    names = [key for parameter in route.params if f":{parameter.name}" not in route.path for key in parameter.accepted_names]
    keys = [*names, "token", "info", "info[name]", "trace", "metadata"]
    values = {} if "token" in names else {"token": token}
    words = [*FUZZ_STRINGS, *FUZZ_NUMBERS, *FUZZ_TIMESTAMPS]
    for key, literal in zip(cycle(keys), (*WORST_LITERALS, *LITERALS, *WORST_LITERALS), strict=False):
        value = f'"{key}": {literal}'
        body = "{" + ", ".join([*(f"{json.dumps(name)}: {json.dumps(text)}" for name, text in values.items()), value]) + "}"
        headers = {**PROXY, "Content-Type": "application/json"}
        check_answer(await ci.request(route.method, path, headers=headers, content=body.encode("utf-8", "surrogatepass")))
    for key, word in zip(cycle(keys), words, strict=False):
        form: Any = {**values, key: word.encode("utf-8", "surrogatepass")}
        check_answer(await ci.request(route.method, path, headers=PROXY, data=form))


@pytest.mark.parametrize("route", CALLS)
async def test_bodies_queries_and_tokens(
    ci: httpx.AsyncClient, runner_with_build: LegacyRunner, check_answer: CheckAnswer, route: Route
) -> None:
    path = path_of(route, runner_with_build)
    if route.method != "DELETE" or "runners" in path:
        for kind, body in BODIES:
            headers = {**PROXY, **runner_with_build.build_token_headers, "Content-Type": kind.encode("latin-1")}
            check_answer(await ci.request(route.method, path, headers=headers, content=body))  # type: ignore[arg-type]
    for query in QUERIES:
        if "private_token" not in query:
            check_answer(await ci.request(route.method, f"{path}?{query}", headers=PROXY))
    for token in (b"\xff", b"", b"fb-" + b"9" * 30, b"fb-0-" + b"x" * 20, b"fb-2147483648-" + b"x" * 20, b"x" * 5000):
        check_answer(await ci.request(route.method, path, headers={**PROXY, b"BUILD-TOKEN": token}))  # type: ignore[dict-item]


@pytest.mark.parametrize("route", [row for row in CALLS if ":id" in str(row.values)])
async def test_paths(ci: httpx.AsyncClient, runner_with_build: LegacyRunner, check_answer: CheckAnswer, route: Route) -> None:
    for part in PARTS_OF_PATHS:
        path = route.path[1:].replace(":id", part)
        check_answer(await ci.request(route.method, path, headers=PROXY, params={"token": token_for(route, runner_with_build)}))


@pytest.mark.parametrize(
    "path", ["", ".json", "nope", "builds", "builds/1/2.json", "runners/register.xml", "projects/1/refs/master/trigger"]
)
async def test_paths_of_nothing(ci: httpx.AsyncClient, path: str) -> None:
    response = await ci.post(path)

    assert (response.status_code, response.json()) == (404, {"message": "404 Not Found"})


async def test_methods_of_nothing(ci: httpx.AsyncClient) -> None:
    response = await ci.get("runners/register.json")

    assert (response.status_code, response.json()) == (405, {"message": "405 Method Not Allowed"})
    assert response.headers["allow"] == "OPTIONS, POST"
