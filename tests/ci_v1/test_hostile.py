"""No row breaks, or changes anything, whatever is sent to it; every body is JSON."""

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
from tests.ci_v1.conftest import OldRunner
from tests.ci_v1.shapes import check
from tests.hostile import MOMENTS, NUMBERS, TEXTS
from tests.make import Make
from tests.rest_v3.test_hostile import BODIES, LITERALS, PARTS_OF_PATHS, QUERIES, WORST_LITERALS

PROXY = {"Gitlab-Workhorse": "1"}
Answered = Callable[[httpx.Response], None]


@pytest.fixture
async def answered(make: Make, running: OldRunner) -> AsyncIterator[Answered]:
    """Holds each answer to the rule; at the end the build goes on with what it had, and no runner came or went."""

    def hold(response: httpx.Response) -> None:
        assert response.status_code < 500, (response.request.url, response.request.content[:200], response.text)
        if response.status_code >= 400:
            check("Error", response.json())

    yield hold
    row = await make.fetch(tables.Build, running.build["id"])
    assert row is not None and row.status is tables.CheckStatus.RUNNING
    async with make.services.database.reading() as session:
        assert await session.scalar(select(func.count()).select_from(tables.Runner)) == 1


def path_of(route: Route, running: OldRunner) -> str:
    return route.path[1:].replace(":id", str(running.build["id"]))


def token_for(route: Route, running: OldRunner) -> str:
    """One that is good for the row; of those that make or remove runners, none is."""
    if "runners/" in route.path:
        return "wrong"
    return running.build["token"] if "artifacts" in route.path else running.token


CALLS = [pytest.param(route, id=route.call) for route in ROUTES if route.call != "POST /builds/register"]


@pytest.mark.parametrize("route", CALLS)
async def test_values(ci: httpx.AsyncClient, running: OldRunner, answered: Answered, route: Route) -> None:
    path, token = path_of(route, running), token_for(route, running)
    names = [key for parameter in route.params if f":{parameter.name}" not in route.path for key in parameter.keys]
    keys = [*names, "token", "info", "info[name]", "trace", "metadata"]
    given = {} if "token" in names else {"token": token}
    words = [*TEXTS, *NUMBERS, *MOMENTS]
    for key, literal in zip(cycle(keys), (*WORST_LITERALS, *LITERALS, *WORST_LITERALS), strict=False):
        value = f'"{key}": {literal}'
        body = "{" + ", ".join([*(f"{json.dumps(name)}: {json.dumps(text)}" for name, text in given.items()), value]) + "}"
        headers = {**PROXY, "Content-Type": "application/json"}
        answered(await ci.request(route.method, path, headers=headers, content=body.encode("utf-8", "surrogatepass")))
    for key, word in zip(cycle(keys), words, strict=False):
        form: Any = {**given, key: word.encode("utf-8", "surrogatepass")}
        answered(await ci.request(route.method, path, headers=PROXY, data=form))


@pytest.mark.parametrize("route", CALLS)
async def test_bodies_queries_and_tokens(ci: httpx.AsyncClient, running: OldRunner, answered: Answered, route: Route) -> None:
    path = path_of(route, running)
    if route.method != "DELETE" or "runners" in path:
        for kind, body in BODIES:
            headers = {**PROXY, **running.with_token, "Content-Type": kind.encode("latin-1")}
            answered(await ci.request(route.method, path, headers=headers, content=body))  # type: ignore[arg-type]
    for query in QUERIES:
        if "private_token" not in query:
            answered(await ci.request(route.method, f"{path}?{query}", headers=PROXY))
    for token in (b"\xff", b"", b"fb-" + b"9" * 30, b"fb-0-" + b"x" * 20, b"fb-2147483648-" + b"x" * 20, b"x" * 5000):
        answered(await ci.request(route.method, path, headers={**PROXY, b"BUILD-TOKEN": token}))  # type: ignore[dict-item]


@pytest.mark.parametrize("route", [row for row in CALLS if ":id" in str(row.values)])
async def test_paths(ci: httpx.AsyncClient, running: OldRunner, answered: Answered, route: Route) -> None:
    for part in PARTS_OF_PATHS:
        path = route.path[1:].replace(":id", part)
        answered(await ci.request(route.method, path, headers=PROXY, params={"token": token_for(route, running)}))


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
