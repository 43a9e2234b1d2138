"""The endpoint of artifact uploads: `PUT /-/artifacts/TICKET` with the file as the body. The URL grants access.

`createArtifactUpload` returns the URL. The body is streamed to the object store; the build has the artifact when it is complete.
"""

import re
from collections.abc import AsyncIterator

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from graph.artifact_access import ArtifactAccess
from graph.errors import ForgeError, TooLarge
from rest_v3.errors import STATUS_BY_CODE, standard_message
from storage.disk_full import is_disk_full

PATH_PATTERN = re.compile(r"/-/artifacts/(.+)", re.DOTALL)
"""Also of paths that have more than a ticket, such as a slash at the end: they are not logged either."""
TICKET_PATTERN = re.compile(r"[A-Za-z0-9_=-]{1,8192}")


class _UploadDisconnected(Exception):
    """The client disconnected before the whole body was read."""


class ArtifactUploadEndpoint:
    """Serves the paths of PATH_PATTERN."""

    def __init__(self, access: ArtifactAccess) -> None:
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._receive(scope, receive)
        if response is not None:
            await response(scope, receive, send)

    async def _receive(self, scope: Scope, receive: Receive) -> JSONResponse | None:
        match = PATH_PATTERN.fullmatch(scope["path"])
        assert match is not None, "the path was not checked with PATH_PATTERN"  # noqa: S101
        if not TICKET_PATTERN.fullmatch(match[1]):
            return JSONResponse({"message": "404 Not Found"}, 404)
        if scope["method"] != "PUT":
            return JSONResponse({"message": standard_message(405)}, 405, {"Allow": "PUT"})
        state = scope.setdefault("state", {})
        request_id = state.get("request_id", "")
        try:
            grant = await self._access.authorize_upload(match[1], request_id)
            if grant.user_id:
                state["user_id"] = grant.user_id
            if _declared_length(scope) > self._access.max_artifact_bytes:
                raise TooLarge(None, "")
            stored = await self._access.store(grant, _read_body(receive), request_id)
        except _UploadDisconnected:
            return None
        except ForgeError as error:
            return _error_response(error)
        except OSError as error:
            if not is_disk_full(error):
                raise
            return JSONResponse({"message": standard_message(507)}, 507)
        return JSONResponse({"filename": stored.filename, "size": stored.size}, 201)


async def _read_body(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _UploadDisconnected
        if chunk := message.get("body", b""):
            yield chunk
        if not message.get("more_body", False):
            return


def _declared_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value[:18]) if value.isdigit() else 0
    return 0


def _error_response(error: ForgeError) -> JSONResponse:
    status = STATUS_BY_CODE[str(error.code)]
    message = {404: "404 Not Found", 413: standard_message(413), 503: standard_message(503), 401: standard_message(401)}.get(status)
    retry_after = getattr(error, "retry_after", None)
    return JSONResponse({"message": message or error.message}, status, {"Retry-After": str(retry_after)} if retry_after else None)
