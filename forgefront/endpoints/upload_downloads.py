"""The endpoint of attached files: `GET /NAMESPACE/PROJECT/uploads/SECRET/NAME`, for callers who can see the project.

Browsers must not render such a file as a page of this site: it is sent as an attachment, with a content type that runs no script, with
`nosniff`, and with a content security policy that blocks everything.
"""

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import structlog
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from graph.operations.execution import Graph, prepare
from rest_v3.errors import STATUS_BY_CODE, standard_message
from rest_v3.requests.credentials import read_credential
from storage.objects.uploads import UploadStore

PATH_PATTERN = re.compile(r"/([^/]+/[^/]+)/uploads/([0-9a-f]{32})/([A-Za-z0-9._+-]{1,255})")
RETRY_SECONDS = 5

log = structlog.get_logger("uploads")

UPLOAD_OPERATION = prepare(
    """
    query Upload($path: String!, $secret: String!, $name: String!) {
      project(path: $path) { databaseId upload(secret: $secret, name: $name) { contentType size } }
    }
    """,
    "Upload",
)


class UploadDownloadEndpoint:
    """Serves the paths of PATH_PATTERN."""

    def __init__(self, graph: Graph, uploads: UploadStore) -> None:
        self._graph = graph
        self._uploads = uploads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match = PATH_PATTERN.fullmatch(scope["path"])
        assert match is not None, "the path was not checked with PATH_PATTERN"  # noqa: S101
        path, secret, name = match.groups()
        if scope["method"] not in ("GET", "HEAD"):
            await JSONResponse({"message": standard_message(405)}, 405, {"Allow": "GET, HEAD"})(scope, receive, send)
            return
        credential = read_credential({key.lower(): value for key, value in scope["headers"]}, None)
        variables = {"path": path, "secret": secret, "name": name}
        state = scope.setdefault("state", {})
        result = await self._graph.run(UPLOAD_OPERATION, variables, credential, request_id=state.get("request_id", ""))
        if result.viewer_id is not None:
            state["user_id"] = result.viewer_id
        if result.errors:
            error = result.errors[0]
            await _error_response(STATUS_BY_CODE[str(error.code)], error.retry_after)(scope, receive, send)
            return
        project: Any = result.data["project"] if result.data else None
        async with AsyncExitStack() as stack:
            try:
                chunks = await stack.enter_async_context(self._uploads.read(project["databaseId"], secret))
            except FileNotFoundError:
                # Its project was deleted concurrently.
                await _error_response(404)(scope, receive, send)
                return
            except ConnectionError as error:
                log.error("upload cannot be read", secret=secret[:6], error=str(error))
                await _error_response(503, RETRY_SECONDS)(scope, receive, send)
                return
            await _send_file(scope, send, chunks, int(project["upload"]["size"]), project["upload"]["contentType"], name)


async def _send_file(scope: Scope, send: Send, chunks: AsyncIterator[bytes], size: int, content_type: str, name: str) -> None:
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
    remaining = 0 if scope["method"] == "HEAD" else size
    while remaining > 0:
        chunk = (await anext(chunks, b""))[:remaining]
        if not chunk:
            raise OSError(f"the upload is shorter than recorded: {remaining} of {size} bytes are missing")
        remaining -= len(chunk)
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _error_response(status: int, retry_after: int | None = None) -> JSONResponse:
    headers = {"Retry-After": str(retry_after)} if retry_after else None
    return JSONResponse({"message": "404 Not Found" if status == 404 else standard_message(status)}, status, headers)
