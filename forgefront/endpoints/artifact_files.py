"""The endpoint of files inside artifacts: `GET /NAMESPACE/PROJECT/builds/ID/artifacts/file/PATH`, for callers who can see the build.

A file of a build must not run as a page of this site: text and images are shown as such, HTML and SVG as text, everything else is
an attachment; all with `nosniff` and a content security policy that blocks everything.
"""

import re
from typing import Any

import structlog
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from graph.errors import BadRequest, Unavailable
from graph.operations.execution import Graph, prepare
from graph.served_files import ServedFile
from rest_v3.endpoints.file_downloads import FILE_CSP, FileResponse, content_disposition, send_file
from rest_v3.errors import STATUS_BY_CODE, standard_message
from rest_v3.requests.credentials import read_credential

PATH_PATTERN = re.compile(r"/([^/]+/[^/]+)/builds/(\d{1,10})/artifacts/file/(.+)", re.DOTALL)
MAX_BUILD_ID = 2**31 - 1
TEXT_TYPE = "text/plain; charset=utf-8"
IMAGE_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "bmp": "image/bmp",
    "ico": "image/x-icon",
}
TEXT_EXTENSIONS = re.compile(
    "txt|text|log|md|markdown|rst|csv|tsv|json|xml|html?|svg|css|m?js|ya?ml|toml|ini|cfg|conf|diff|patch"
    "|sh|py|rb|go|rs|c|h|cpp|java|kt|sql|graphql|properties|lcov|tap"
)

log = structlog.get_logger("artifacts")

FILE_OPERATION = prepare(
    """
    query ArtifactFile($path: String!, $build: Int!, $file: String!) {
      project(path: $path) { artifact(buildId: $build) { file(path: $file) { name size stream } } }
    }
    """,
    "ArtifactFile",
)


class ArtifactFileEndpoint:
    """Serves the paths of PATH_PATTERN."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match = PATH_PATTERN.fullmatch(scope["path"])
        assert match is not None, "the path was not checked with PATH_PATTERN"  # noqa: S101
        path, build, name = match.groups()
        if scope["method"] not in ("GET", "HEAD"):
            await JSONResponse({"message": standard_message(405)}, 405, {"Allow": "GET, HEAD"})(scope, receive, send)
            return
        if int(build) > MAX_BUILD_ID:
            await _error_response(404)(scope, receive, send)
            return
        credential = read_credential({key.lower(): value for key, value in scope["headers"]}, None)
        state = scope.setdefault("state", {})
        variables = {"path": path, "build": int(build), "file": name}
        result = await self._graph.run(FILE_OPERATION, variables, credential, request_id=state.get("request_id", ""))
        if result.viewer_id is not None:
            state["user_id"] = result.viewer_id
        if result.errors:
            error = result.errors[0]
            await _error_response(STATUS_BY_CODE[str(error.code)], error.message, error.retry_after)(scope, receive, send)
            return
        project: Any = result.data["project"] if result.data else None
        artifact = project["artifact"] if project else None
        if artifact is None:
            await _error_response(404)(scope, receive, send)
            return
        await _send(scope, receive, send, result.files[artifact["file"]["stream"]])


async def _send(scope: Scope, receive: Receive, send: Send, file: ServedFile) -> None:
    extension = file.name.rpartition(".")[2].lower()
    shown_type = TEXT_TYPE if TEXT_EXTENSIONS.fullmatch(extension) else IMAGE_TYPES.get(extension)
    headers = Headers(
        {
            "content-type": shown_type or "application/octet-stream",
            "content-disposition": content_disposition(file.name, "inline" if shown_type else "attachment").decode("ascii"),
            "content-security-policy": FILE_CSP.decode(),
            "x-content-type-options": "nosniff",
            "cache-control": "max-age=0, private, must-revalidate",
        }
    )
    response = FileResponse(200, b"", headers.raw, file.size, lambda: file.open(0, file.size or 0))
    try:
        if not await send_file(receive, send, response, is_head=scope["method"] == "HEAD"):
            await _error_response(404)(scope, receive, send)
    except BadRequest as error:
        await _error_response(400, error.message)(scope, receive, send)
    except Unavailable as error:
        await _error_response(503, retry_after=error.retry_after)(scope, receive, send)
    except ConnectionError as error:
        log.error("artifact cannot be read", error=str(error))
        await _error_response(503)(scope, receive, send)


def _error_response(status: int, message: str | None = None, retry_after: int | None = None) -> JSONResponse:
    headers = {"Retry-After": str(retry_after)} if retry_after else None
    shown = message if status in (400, 429) else None
    return JSONResponse({"message": shown or ("404 Not Found" if status == 404 else standard_message(status))}, status, headers)
