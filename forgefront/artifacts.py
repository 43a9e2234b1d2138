"""The door for artifacts: `PUT /-/artifacts/TICKET` with the bytes of the file as the body, for whoever has the address.

`createArtifactUpload` gives the address. What is sent is streamed to the object store; the build has it once all of it is there.
"""

import errno
import re
from collections.abc import AsyncIterator

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from graph.artifact_access import ArtifactAccess
from graph.errors import ForgeError, TooLarge
from rest_v3.errors import STATUSES, standard_text

PATH = re.compile(r"/-/artifacts/([A-Za-z0-9_=-]{1,8192})")
ROUTE = "/-/artifacts/:ticket"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _Gone(Exception):
    """The caller went away before all was read."""


class ArtifactDoor:
    """Answers the paths that `matches` knows."""

    def __init__(self, access: ArtifactAccess) -> None:
        self._access = access

    @staticmethod
    def matches(path: str) -> bool:
        return PATH.fullmatch(path) is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._answer(scope, receive)
        if answer is not None:
            await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> JSONResponse | None:
        if scope["method"] != "PUT":
            return JSONResponse({"message": standard_text(405)}, 405, {"Allow": "PUT"})
        found = PATH.fullmatch(scope["path"])
        assert found is not None, "who sends a path here asked `matches`"  # noqa: S101
        state = scope.setdefault("state", {})
        request_id = state.get("request_id", "")
        try:
            permit = await self._access.admit(found[1], request_id)
            if permit.user_id:
                state["user_id"] = permit.user_id
            if _declared(scope) > self._access.limit:
                raise TooLarge(None, "")
            kept = await self._access.keep(permit, _body(receive), request_id)
        except _Gone:
            return None
        except ForgeError as error:
            return _refusal(error)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            return JSONResponse({"message": standard_text(507)}, 507)
        return JSONResponse({"filename": kept.filename, "size": kept.size}, 201)


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        if chunk := message.get("body", b""):
            yield chunk
        if not message.get("more_body", False):
            return


def _declared(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value[:18]) if value.isdigit() else 0
    return 0


def _refusal(error: ForgeError) -> JSONResponse:
    status = STATUSES[str(error.code)]
    text = {404: "404 Not Found", 413: standard_text(413), 503: standard_text(503), 401: standard_text(401)}.get(status)
    retry_after = getattr(error, "retry_after", None)
    return JSONResponse({"message": text or error.message}, status, {"Retry-After": str(retry_after)} if retry_after else None)
