"""The floor: the questions answered by handwritten SQL, rows and orjson on Starlette, and nothing else.

No caller is looked up and no permission is checked, so its cost is a lower bound for any service. Run it with
`uvicorn --factory benchmarks.peers.floor_app:create_app`; PEER_DATABASE_URL names the database, without a driver in it.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Protocol

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.peers import DATABASE_URL_VARIABLE, floor_postgresql, floor_sqlite
from benchmarks.peers.floor_merge import Merge, create_merge_commit, move_branch


class FloorDatabase(Protocol):
    """The statements of a database; rows are tuples whose columns have the order that the handlers below expect."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def issues(self, project: int) -> tuple[list[Any], dict[int, list[str]]]:
        """The newest twenty, and the titles of the labels by issue."""

    async def issue(self, project: int, issue: int) -> tuple[Any | None, list[str]]: ...
    async def merge_requests(self, project: int) -> tuple[list[Any], dict[str, list[Any]]]:
        """The newest twenty with author and newest commit, and five builds by commit."""

    async def post(self, project: int, issue: int, author: int, body: str) -> tuple[int, datetime | str, tuple[Any, ...]] | None:
        """The new note's id and timestamp, and its author."""

    async def create(self, project: int, author: int, title: str, description: str | None) -> tuple[Any, tuple[Any, ...]]:
        """The new issue's id, iid and timestamp, and its author."""

    async def update(self, project: int, issue: int, description: str | None) -> tuple[Any, ...] | None:
        """The changed issue's id, iid, title, description, state and creation, and its author."""

    async def heads(self, project: int, merge_request: int) -> tuple[str, str, str, str] | None:
        """Source and target branch of an open merge request, and the heads of both."""

    async def accept(self, project: int, merge_request: int, user: int, merge: Merge) -> tuple[Any, ...] | None:
        """The merged request's id, iid, title and state, and its author; None if the target has moved."""

    async def own_issues(self, author: int) -> tuple[list[Any], dict[int, list[str]]]:
        """As `issues`, of all projects."""

    async def own_merge_requests(self, author: int) -> list[Any]:
        """The newest twenty of the user, with their author."""

    async def projects(self, member: int) -> list[Any]:
        """The newest twenty of which the user is a member, with the number of open issues and the owner."""

    async def group_projects(self, user: int, path: str) -> list[Any]:
        """The newest twenty of a group that the user may see, with the number of open issues."""


def _user(row: Any) -> dict[str, Any]:
    return {"databaseId": row[0], "username": row[1], "name": row[2], "state": row[3]}


def _issue(row: Any, labels: list[str]) -> dict[str, Any]:
    return {
        "databaseId": row[0],
        "iid": row[1],
        "title": row[2],
        "description": row[3],
        "state": row[4],
        "createdAt": row[5],
        "updatedAt": row[6],
        "labels": labels,
        "milestone": None
        if row[7] is None
        else {"databaseId": row[7], "iid": row[8], "title": row[9], "state": row[10], "dueDate": row[11]},
        "author": _user(row[12:16]),
        "assignee": None if row[16] is None else _user(row[16:20]),
    }


def _build(row: Any) -> dict[str, Any]:
    return {"databaseId": row[1], "name": row[2], "stage": row[3], "status": row[4], "startedAt": row[5], "finishedAt": row[6]}


def _merge_request(row: Any) -> dict[str, Any]:
    return {
        "databaseId": row[0],
        "iid": row[1],
        "title": row[2],
        "state": row[3],
        "sourceBranch": row[4],
        "targetBranch": row[5],
        "createdAt": row[6],
        "author": _user(row[7:11]),
    }


def _built_merge_request(row: Any, builds: dict[str, list[Any]]) -> dict[str, Any]:
    return {
        **_merge_request(row),
        "headCommit": None
        if row[11] is None
        else {
            "oid": row[11],
            "title": row[12],
            "authorName": row[13],
            "committedAt": row[14],
            "builds": [_build(build) for build in builds.get(row[11], ())],
        },
    }


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(value), status, headers, media_type="application/json")


async def _issues(request: Request) -> Response:
    rows, labels = await request.app.state.store.issues(int(request.path_params["project"]))
    return json_response([_issue(row, labels.get(row[0], [])) for row in rows])


async def _one_issue(request: Request) -> Response:
    row, labels = await request.app.state.store.issue(int(request.path_params["project"]), int(request.path_params["issue"]))
    return json_response({"message": "404 Not Found"}, 404) if row is None else json_response(_issue(row, labels))


async def _merge_requests(request: Request) -> Response:
    rows, builds = await request.app.state.store.merge_requests(int(request.path_params["project"]))
    return json_response([_built_merge_request(row, builds) for row in rows])


async def _post(request: Request) -> Response:
    body = orjson.loads(await request.body())["body"]
    # Without callers, everybody is the first user.
    made = await request.app.state.store.post(int(request.path_params["project"]), int(request.path_params["issue"]), 1, body)
    if made is None:
        return json_response({"message": "404 Not Found"}, 404)
    return json_response({"databaseId": made[0], "body": body, "createdAt": made[1], "author": _user(made[2])}, 201)


async def _create(request: Request) -> Response:
    values = orjson.loads(await request.body())
    title, description = values["title"], values.get("description")
    made, author = await request.app.state.store.create(int(request.path_params["project"]), 1, title, description)
    answer = {"databaseId": made[0], "iid": made[1], "title": title, "description": description, "state": "opened", "createdAt": made[2]}
    return json_response({**answer, "author": _user(author)}, 201)


async def _update(request: Request) -> Response:
    description = orjson.loads(await request.body())["description"]
    project, issue = int(request.path_params["project"]), int(request.path_params["issue"])
    row = await request.app.state.store.update(project, issue, description)
    if row is None:
        return json_response({"message": "404 Not Found"}, 404)
    answer = dict(zip(("databaseId", "iid", "title", "description", "state", "createdAt"), row, strict=False))
    return json_response({**answer, "author": _user(row[6:])})


async def accept(request: Request) -> tuple[Any, ...] | Response:
    """Merges; returns the row of the merge request, or the response if it cannot be merged."""
    store, project, merge_request = request.app.state.store, int(request.path_params["project"]), int(request.path_params["merge_request"])
    found = await store.heads(project, merge_request)
    if found is None:
        return json_response({"message": "405 Method Not Allowed"}, 405)
    merge = await asyncio.to_thread(create_merge_commit, project, *found)
    row: tuple[Any, ...] | None = await store.accept(project, merge_request, 1, merge)
    if row is None:
        return json_response({"message": "409 Conflict"}, 409)
    await asyncio.to_thread(move_branch, project, merge)
    return row


async def _accept(request: Request) -> Response:
    row = await accept(request)
    if isinstance(row, Response):
        return row
    return json_response({**dict(zip(("databaseId", "iid", "title", "state"), row, strict=False)), "author": _user(row[4:])})


async def _own_issues(request: Request) -> Response:
    rows, labels = await request.app.state.store.own_issues(1)
    return json_response([_issue(row, labels.get(row[0], [])) for row in rows])


async def _own_merge_requests(request: Request) -> Response:
    return json_response([_merge_request(row) for row in await request.app.state.store.own_merge_requests(1)])


_PROJECT = ("databaseId", "name", "path", "fullPath", "description", "visibilityLevel", "createdAt", "openIssuesCount")


async def _projects(request: Request) -> Response:
    rows = await request.app.state.store.projects(1)
    return json_response([{**dict(zip(_PROJECT, row, strict=False)), "owner": _user(row[8:])} for row in rows])


async def _group_projects(request: Request) -> Response:
    rows = await request.app.state.store.group_projects(1, request.path_params["group"])
    return json_response([dict(zip(_PROJECT, row, strict=True)) for row in rows])


def serve_store(store: FloorDatabase, routes: Sequence[Route]) -> Starlette:
    """The application of these routes, whose handlers find the open database at `app.state.store`."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await store.open()
        yield
        await store.close()

    app = Starlette(routes=list(routes), lifespan=lifespan)
    app.state.store = store
    return app


def create_app(database_url: str | None = None) -> Starlette:
    """The application; without a URL it takes the one of PEER_DATABASE_URL."""
    url = database_url or os.environ[DATABASE_URL_VARIABLE]
    store: FloorDatabase = floor_sqlite.Sqlite(url) if url.startswith("sqlite") else floor_postgresql.Postgresql(url)
    routes = [
        Route("/issues", _own_issues),
        Route("/merge_requests", _own_merge_requests),
        Route("/projects", _projects),
        Route("/groups/{group}/projects", _group_projects),
        Route("/projects/{project}/issues", _issues, methods=["GET"]),
        Route("/projects/{project}/issues", _create, methods=["POST"]),
        Route("/projects/{project}/issues/{issue}", _update, methods=["PUT"]),
        Route("/projects/{project}/issues/{issue}", _one_issue),
        Route("/projects/{project}/issues/{issue}/notes", _post, methods=["POST"]),
        Route("/projects/{project}/merge_requests", _merge_requests),
        Route("/projects/{project}/merge_requests/{merge_request}/merge", _accept, methods=["PUT"]),
    ]
    return serve_store(store, routes)
