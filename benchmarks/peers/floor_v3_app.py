"""The floor of REST v3: whole answers of the interface document by handwritten SQL, and nothing else.

`floor_app` answers only the fields of the questions to the graph. v3 has more fields of each row, the number of all rows in the header of a
page, and all relations of an issue that was written. Here too no caller is looked up and no permission is checked.
"""

import os
from datetime import datetime
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.harness.servers import EXTERNAL_URL
from benchmarks.peers import DATABASE_URL_VARIABLE
from benchmarks.peers.floor_app import accept, json_response, serve_store
from benchmarks.peers.floor_v3_queries import PostgresqlV3, SqliteV3
from benchmarks.suites.questions import V3

PER_PAGE = 20


def _timestamp(value: datetime | str) -> str:
    """The timestamp of a row: a datetime on PostgreSQL, a string on SQLite."""
    if isinstance(value, str):
        return f"{value[:10]}T{value[11:23]}Z"
    return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _user(row: Any) -> dict[str, Any]:
    web_url = f"{EXTERNAL_URL}/u/{row[1]}"
    return {"id": row[0], "username": row[1], "name": row[2], "state": row[3], "avatar_url": None, "web_url": web_url}


def _author(row: Any) -> dict[str, Any]:
    """The author of notes and merge requests."""
    return {"id": row[0], "username": row[1], "name": row[2], "state": row[3], "email": row[4], "created_at": _timestamp(row[5])}


def _milestone(row: Any) -> dict[str, Any] | None:
    if row[0] is None:
        return None
    return {
        "id": row[0],
        "iid": row[1],
        "project_id": row[2],
        "title": row[3],
        "description": row[4],
        "state": row[5],
        "created_at": _timestamp(row[6]),
        "updated_at": _timestamp(row[7]),
        "due_date": row[8],
    }


def _issue(row: Any, labels: list[str]) -> dict[str, Any]:
    return {
        "id": row[0],
        "iid": row[1],
        "project_id": row[2],
        "title": row[3],
        "description": row[4],
        "state": row[5],
        "created_at": _timestamp(row[6]),
        "updated_at": _timestamp(row[7]),
        "labels": labels,
        "milestone": _milestone(row[8:17]),
        "assignee": None if row[17] is None else _user(row[17:21]),
        "author": _user(row[21:25]),
    }


def _merge_request(row: Any, labels: list[str]) -> dict[str, Any]:
    return {
        "id": row[0],
        "iid": row[1],
        "project_id": row[2],
        "title": row[3],
        "description": row[4],
        "state": row[5],
        "target_branch": row[6],
        "source_branch": row[7],
        "upvotes": row[8],
        "downvotes": row[9],
        "source_project_id": row[10],
        "target_project_id": row[2],
        "labels": labels,
        "work_in_progress": row[3].lower().startswith(("wip:", "[wip]")),
        "milestone": _milestone(row[13:22]),
        "merge_when_build_succeeds": bool(row[11]),
        "merge_status": row[12],
        "author": _author(row[22:28]),
        "assignee": None if row[28] is None else _author(row[28:34]),
    }


def _not_found() -> Response:
    return json_response({"message": "404 Not Found"}, 404)


def _page_headers(request: Request, page: int, total: int) -> dict[str, str]:
    last = max(1, -(-total // PER_PAGE))
    numbers = {"prev": page - 1 or None, "next": page + 1 if page < last else None, "first": 1, "last": last}
    address = f"{EXTERNAL_URL}{request.url.path}"
    links = [f'<{address}?page={number}&per_page={PER_PAGE}>; rel="{name}"' for name, number in numbers.items() if number is not None]
    return {
        "x-page": str(page),
        "x-per-page": str(PER_PAGE),
        "x-next-page": str(numbers["next"] or ""),
        "x-prev-page": str(numbers["prev"] or ""),
        "x-total": str(total),
        "x-total-pages": str(last),
        "link": ", ".join(links),
    }


async def _issues(request: Request) -> Response:
    page = int(request.query_params.get("page", 1))
    rows, labels = await request.app.state.store.v3_issues(int(request.path_params["project"]), PER_PAGE, (page - 1) * PER_PAGE)
    headers = _page_headers(request, page, rows[0][25] if rows else 0)
    return json_response([_issue(row, labels.get(row[0], [])) for row in rows], headers=headers)


async def _one_issue(request: Request) -> Response:
    row, labels = await request.app.state.store.v3_issue(int(request.path_params["project"]), int(request.path_params["issue"]))
    return _not_found() if row is None else json_response(_issue(row, labels))


async def _post(request: Request) -> Response:
    body = orjson.loads(await request.body())["body"]
    issue = int(request.path_params["issue"])
    made = await request.app.state.store.v3_post(int(request.path_params["project"]), issue, 1, body)
    if made is None:
        return _not_found()
    answer = {"id": made[0], "body": body, "attachment": None, "author": _author(made[2]), "created_at": _timestamp(made[1])}
    kind = {"system": False, "noteable_id": issue, "noteable_type": "Issue", "upvote": False, "downvote": False}
    return json_response({**answer, **kind}, 201)


async def _create(request: Request) -> Response:
    values = orjson.loads(await request.body())
    title, description, project = values["title"], values.get("description"), int(request.path_params["project"])
    made, author = await request.app.state.store.create(project, 1, title, description)
    # A new issue without labels, milestone and assignee, of which nothing has to be read.
    own = (made[0], made[1], project, title, description, "opened", made[2], made[2])
    return json_response(_issue((*own, *[None] * 13, *author), []))


async def _update(request: Request) -> Response:
    description = orjson.loads(await request.body())["description"]
    project, issue = int(request.path_params["project"]), int(request.path_params["issue"])
    row, labels = await request.app.state.store.v3_update(project, issue, description)
    return _not_found() if row is None else json_response(_issue(row, labels))


async def _accept(request: Request) -> Response:
    row = await accept(request)
    if isinstance(row, Response):
        return row
    return json_response(_merge_request(*await request.app.state.store.v3_merge_request(row[0])))


def create_app(database_url: str | None = None) -> Starlette:
    """The application; without a URL it takes the one of PEER_DATABASE_URL."""
    url = database_url or os.environ[DATABASE_URL_VARIABLE]
    store = SqliteV3(url) if url.startswith("sqlite") else PostgresqlV3(url)
    routes = [
        Route(f"{V3}/projects/{{project}}/issues", _issues, methods=["GET"]),
        Route(f"{V3}/projects/{{project}}/issues", _create, methods=["POST"]),
        Route(f"{V3}/projects/{{project}}/issues/{{issue}}", _update, methods=["PUT"]),
        Route(f"{V3}/projects/{{project}}/issues/{{issue}}", _one_issue),
        Route(f"{V3}/projects/{{project}}/issues/{{issue}}/notes", _post, methods=["POST"]),
        Route(f"{V3}/projects/{{project}}/merge_requests/{{merge_request}}/merge", _accept, methods=["PUT"]),
    ]
    return serve_store(store, routes)
