"""The peer of reads of a repository: pygit2 and orjson on Starlette, without a caller, permissions, a database or limits.

Run it with `uvicorn --factory benchmarks.peers.pygit2_app:create_app`; PEER_REPOSITORY names the bare repository.
"""

import base64
import os
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from typing import Any

import orjson
import pygit2
from pygit2.enums import SortMode
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

REPOSITORY_VARIABLE = "PEER_REPOSITORY"


def create_app() -> Starlette:
    """Constructs the application; the repository stays open."""
    repository = pygit2.Repository(os.environ[REPOSITORY_VARIABLE])

    def commit_of(name: str) -> pygit2.Commit:
        return repository.revparse_single(name).peel(pygit2.Commit)

    async def commits(request: Request) -> Response:
        skip, count = int(request.query_params["skip"]), int(request.query_params["count"])
        walker = repository.walk(commit_of("master").id, SortMode.TIME)
        return _json([_commit(each) for each in islice(walker, skip, skip + count)])

    async def tree(request: Request) -> Response:
        found = commit_of("master").tree[request.query_params["path"]]
        assert isinstance(found, pygit2.Tree)
        return _json(
            [{"id": str(each.id), "name": each.name, "type": each.type_str, "mode": f"{each.filemode:06o}"} for each in found],
        )

    async def file(request: Request) -> Response:
        path = request.query_params["path"]
        commit = commit_of("master")
        blob = commit.tree[path]
        assert isinstance(blob, pygit2.Blob)
        content = base64.b64encode(blob.data).decode()
        return _json({"file_path": path, "size": blob.size, "content": content, "blob_id": str(blob.id), "commit_id": str(commit.id)})

    async def diff(request: Request) -> Response:
        commit = commit_of(request.query_params["sha"])
        return _json(_diffs(repository, commit.parents[0], commit))

    async def compare(request: Request) -> Response:
        base, head = commit_of(request.query_params["from"]), commit_of(request.query_params["to"])
        walker = repository.walk(head.id, SortMode.TIME)
        walker.hide(base.id)
        ancestor = repository.merge_base(base.id, head.id)
        assert ancestor is not None
        return _json({"commits": [_commit(each) for each in walker], "diffs": _diffs(repository, commit_of(str(ancestor)), head)})

    handlers = {"/commits": commits, "/tree": tree, "/file": file, "/diff": diff, "/compare": compare}
    return Starlette(routes=[Route(path, handler) for path, handler in handlers.items()])


def _commit(commit: pygit2.Commit) -> dict[str, Any]:
    author, oid = commit.author, str(commit.id)
    created_at = datetime.fromtimestamp(commit.commit_time, UTC).astimezone(timezone(timedelta(minutes=commit.commit_time_offset)))
    return {
        "id": oid,
        "short_id": oid[:11],
        "title": commit.message.partition("\n")[0],
        "author_name": author.name,
        "author_email": author.email,
        "created_at": created_at.isoformat(timespec="milliseconds"),
        "message": commit.message,
    }


def _diffs(repository: pygit2.Repository, old: pygit2.Commit, new: pygit2.Commit) -> list[dict[str, Any]]:
    found = repository.diff(old, new)
    found.find_similar()
    rows = []
    for patch in found:
        delta = patch.delta
        rows.append(
            {
                "diff": (patch.text or "").partition("\n--- ")[2],
                "new_path": delta.new_file.path,
                "old_path": delta.old_file.path,
                "a_mode": f"{delta.old_file.mode:o}",
                "b_mode": f"{delta.new_file.mode:o}",
                "new_file": delta.status_char() == "A",
                "renamed_file": delta.status_char() == "R",
                "deleted_file": delta.status_char() == "D",
            }
        )
    return rows


def _json(content: Any) -> Response:
    return Response(orjson.dumps(content), media_type="application/json")
