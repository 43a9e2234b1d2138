"""The door to attached files: `GET /NAMESPACE/PROJECT/uploads/SECRET/NAME`, for who sees the project.

A browser never shows such a file as a page of this site: it is sent as an attachment, of a kind that holds no script, to be sniffed by
nobody, and with a policy under which nothing in it could load or run.
"""

import asyncio
import re
from typing import Any, BinaryIO

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from graph.execute import Graph, prepare
from rest_v3.credentials import credential_of
from rest_v3.errors import STATUSES, standard_text
from storage.uploads import Uploads

PATH = re.compile(r"/([^/]+/[^/]+)/uploads/([0-9a-f]{32})/([A-Za-z0-9._+-]{1,255})")
ROUTE = "/:namespace/:project/uploads/:secret/:name"
SENT_AT_ONCE = 2**18
"""Bytes."""

UPLOAD = prepare(
    """
    query Upload($path: String!, $secret: String!, $name: String!) {
      project(path: $path) { databaseId upload(secret: $secret, name: $name) { contentType } }
    }
    """,
    "Upload",
)


class UploadDoor:
    """Answers the paths that `matches` knows."""

    def __init__(self, graph: Graph, uploads: Uploads) -> None:
        self._graph = graph
        self._uploads = uploads

    @staticmethod
    def matches(path: str) -> bool:
        return PATH.fullmatch(path) is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = PATH.fullmatch(scope["path"])
        assert found is not None, "who sends a path here asked `matches`"  # noqa: S101
        path, secret, name = found.groups()
        if scope["method"] not in ("GET", "HEAD"):
            await JSONResponse({"message": standard_text(405)}, 405, {"Allow": "GET, HEAD"})(scope, receive, send)
            return
        credential = credential_of({key.lower(): value for key, value in scope["headers"]}, None)
        variables = {"path": path, "secret": secret, "name": name}
        state = scope.setdefault("state", {})
        outcome = await self._graph.run(UPLOAD, variables, credential, request_id=state.get("request_id", ""))
        if outcome.viewer_id is not None:
            state["user_id"] = outcome.viewer_id
        if outcome.errors:
            problem = outcome.errors[0]
            await _refuse(STATUSES[str(problem.code)], problem.retry_after)(scope, receive, send)
            return
        project: Any = outcome.data["project"] if outcome.data else None
        try:
            file = await asyncio.to_thread(self._uploads.open, project["databaseId"], secret)
        except FileNotFoundError:
            # Its project was removed at this moment.
            await _refuse(404)(scope, receive, send)
            return
        try:
            await _send(scope, send, file, project["upload"]["contentType"], name)
        finally:
            await asyncio.to_thread(file.close)


async def _send(scope: Scope, send: Send, file: BinaryIO, content_type: str, name: str) -> None:
    size = await asyncio.to_thread(file.seek, 0, 2)
    await asyncio.to_thread(file.seek, 0)
    headers = Headers(
        {
            "content-type": content_type,
            "content-length": str(size),
            "content-disposition": f'attachment; filename="{name}"',
            "content-security-policy": "default-src 'none'; sandbox",
            "x-content-type-options": "nosniff",
            "cache-control": "max-age=0, private, must-revalidate",
        }
    )
    await send({"type": "http.response.start", "status": 200, "headers": headers.raw})
    left = 0 if scope["method"] == "HEAD" else size
    while left > 0:
        piece = await asyncio.to_thread(file.read, min(SENT_AT_ONCE, left))
        if not piece:
            raise OSError(f"an upload is shorter than it was: {left} of {size} bytes are missing")
        left -= len(piece)
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _refuse(status: int, retry_after: int | None = None) -> JSONResponse:
    headers = {"Retry-After": str(retry_after)} if retry_after else None
    return JSONResponse({"message": "404 Not Found" if status == 404 else standard_text(status)}, status, headers)
