"""Clone, fetch and push over HTTP: git's smart protocol (gitprotocol-http) at /NAMESPACE/PROJECT.git.

The graph authorizes, the transport runs git, and this module does the HTTP. Errors are plain text, which git shows to its user.
"""

import asyncio
import re
import zlib
from collections.abc import AsyncIterator
from functools import partial
from urllib.parse import parse_qs

import structlog
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import Message, Receive, Scope, Send

from forgefront.server.basic_credentials import read_basic_password
from graph.errors import Code, Forbidden, OperationError
from graph.git_access import GitAccess, RepositoryGrant
from graph.operations.disconnects import wait_disconnected
from storage.disk_full import is_disk_full
from storage.git.protocol.packets import FLUSH_PACKET, encode_packet
from storage.git.protocol.process_slots import TransportBusy
from storage.git.protocol.process_supervision import BLOCK_BYTES
from storage.git.protocol.push import ClientStream, InvalidPush, PushDecision, RefCommand
from storage.git.protocol.transport import GitService, InvalidFetch, Transport, TransportTimeout
from storage.git.subprocesses.git_command import GitCommandError

MAX_FETCH_BYTES = 64 * 1024 * 1024
"""Maximum size of a fetch request, uncompressed, in bytes."""
RETRY_SECONDS = 5

PATH_PATTERN = re.compile(r"/([^/]+/[^/]+?)(\.git)?/(info/refs|git-upload-pack|git-receive-pack|HEAD|objects/.+)")
_NO_CACHE_HEADERS = {
    "Cache-Control": "no-cache, max-age=0, must-revalidate",
    "Pragma": "no-cache",
    "Expires": "Fri, 01 Jan 1980 00:00:00 GMT",
}
_STATUS_BY_CODE = {
    Code.UNAUTHENTICATED: 401,
    Code.FORBIDDEN: 403,
    Code.INSUFFICIENT_SCOPE: 403,
    Code.NOT_FOUND: 404,
    Code.LIMIT_EXCEEDED: 429,
    Code.UNAVAILABLE: 503,
}
_SIGN_IN_MESSAGE = "Use your private token as the password, with any user name."
_DUMB_PROTOCOL_MESSAGE = "This server supports only the smart protocol: use git 1.6.6 or newer."

log = structlog.get_logger("git")


class GitHttpRefusal(Exception):
    """An error response instead of git's. The message is shown to the user."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers or {}


class GitHttpEndpoint:
    """The endpoint of git over HTTP. It serves the paths of PATH_PATTERN."""

    def __init__(self, access: GitAccess, transport: Transport) -> None:
        self._access = access
        self._transport = transport
        self._pushes: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Waits until completely received pushes are processed and recorded."""
        if self._pushes:
            await asyncio.wait(self._pushes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match = PATH_PATTERN.fullmatch(scope["path"])
        assert match is not None, "the path was not checked with PATH_PATTERN"  # noqa: S101
        project, has_suffix, git_path = match.groups()
        scope["state"]["route"] = "/:namespace/:project.git/" + ("objects" if git_path.startswith("objects/") else git_path)
        streamed = _StreamedResponse(send)
        try:
            if git_path == "HEAD" or git_path.startswith("objects/"):
                raise GitHttpRefusal(403, _DUMB_PROTOCOL_MESSAGE)
            if git_path == "info/refs":
                await self._advertise_refs(scope, project, bool(has_suffix), streamed)
            else:
                await self._serve_pack(scope, project, GitService(git_path), receive, streamed)
        except Exception as error:
            if streamed.is_started:
                # The server closes the connection after an incomplete response, which is the only signal left.
                raise
            if isinstance(error, _GitRedirect):
                response: Response = RedirectResponse(str(error), 301)
            elif (rejection := refusal_of(error)) is not None:
                response = _refusal_response(rejection)
            else:
                raise
            await response(scope, receive, send)

    async def _advertise_refs(self, scope: Scope, project: str, has_suffix: bool, response: "_StreamedResponse") -> None:
        _require_method(scope, "GET")
        service_name = parse_qs(scope["query_string"].decode("latin-1")).get("service", [""])[0]
        if service_name not in set(GitService):
            raise GitHttpRefusal(403, _DUMB_PROTOCOL_MESSAGE)
        service = GitService(service_name)
        if not has_suffix:
            # The challenge is the same for every path, so that it does not reveal which projects exist.
            raise _GitRedirect(f"{scope.get('root_path', '')}{scope['path'].removesuffix('/info/refs')}.git/info/refs?service={service}")
        grant = await self._authorize(scope, project, service)
        protocol = _git_protocol_header(scope) if service is GitService.UPLOAD else ""
        response.headers = {"Content-Type": f"application/x-{service}-advertisement", **_NO_CACHE_HEADERS}
        if "version=2" not in protocol.split(":"):
            response.prefix = encode_packet(f"# service={service}\n".encode()) + FLUSH_PACKET
        async with self._access.open(grant) as path:
            await self._transport.advertise(service, path, response.write, protocol=protocol, requester=grant.requester)
        await response.end()

    async def _serve_pack(self, scope: Scope, project: str, service: GitService, receive: Receive, response: "_StreamedResponse") -> None:
        _require_method(scope, "POST")
        headers = Headers(scope=scope)
        if headers.get("content-type", "").partition(";")[0].strip() != f"application/x-{service}-request":
            raise GitHttpRefusal(415, f"The body must be application/x-{service}-request.")
        grant = await self._authorize(scope, project, service)
        body = _BodyReader(receive)
        incoming = _decompress(body, headers.get("content-encoding", "identity"))
        response.headers = {"Content-Type": f"application/x-{service}-result", **_NO_CACHE_HEADERS}
        if service is GitService.UPLOAD:
            async with self._access.open(grant) as path:
                protocol = _git_protocol_header(scope)
                fetch = self._transport.upload_pack(
                    path, limit_fetch_body(incoming), response.write, protocol=protocol, requester=grant.requester
                )
                await _cancel_on_disconnect(asyncio.create_task(fetch), body)
            await response.end()
            return
        # The task outlives the request: a completely received push is processed and recorded even if the client disconnects.
        push = asyncio.create_task(self._receive_push(grant, incoming, response, scope["state"]["request_id"]))
        self._pushes.add(push)
        push.add_done_callback(self._pushes.discard)
        await asyncio.shield(push)

    async def _receive_push(self, grant: RepositoryGrant, incoming: ClientStream, response: "_StreamedResponse", request_id: str) -> None:
        async def authorize(updates: list[RefCommand]) -> list[PushDecision]:
            return await self._access.authorize_updates(grant, updates, request_id)

        async def move(updates: list[RefCommand], atomic: bool) -> list[str | None]:
            return await self._access.move_refs(grant, updates, request_id, atomic=atomic)

        async with self._access.open(grant) as path:
            try:
                reserve = partial(self._access.reserve, grant)
                await self._transport.receive_pack(
                    path, incoming, response.write, authorize, move, reserve=reserve, requester=grant.requester
                )
                await response.end()
            finally:
                await self._access.finish_push(grant)

    async def _authorize(self, scope: Scope, project: str, service: GitService) -> RepositoryGrant:
        authorize = self._access.authorize_fetch if service is GitService.UPLOAD else self._access.authorize_push
        grant = await authorize(project, _read_credential(Headers(scope=scope)), scope["state"]["request_id"])
        if grant.viewer_id is not None:
            scope["state"]["user_id"] = grant.viewer_id
        return grant


class _GitRedirect(Exception):
    """The repository is at the address in `args[0]`, with `.git` behind its path."""


class _StreamedResponse:
    """A streamed response of 200, started with its first block, so that an error can be returned before."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.headers: dict[str, str] = {}
        self.prefix = b""
        self.is_started = False

    async def write(self, block: bytes) -> None:
        if not self.is_started:
            self.is_started = True
            headers = [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            block = self.prefix + block
        await self._send({"type": "http.response.body", "body": block, "more_body": True})

    async def end(self) -> None:
        if not self.is_started:
            await self.write(b"")
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


class _BodyReader:
    """The blocks of a request's body. Raises ClientDisconnect if it ends early."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._ended = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            message: Message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            if block := message.get("body", b""):
                yield block
            if not message.get("more_body", False):
                self._ended.set()
                return

    async def wait_disconnected(self) -> None:
        """Returns when the client disconnects after its body."""
        await self._ended.wait()
        await wait_disconnected(self._receive)


async def _cancel_on_disconnect(work: "asyncio.Task[None]", body: _BodyReader) -> None:
    """Waits for the task, and cancels it when the client disconnects or the server stops waiting."""
    disconnect = asyncio.create_task(body.wait_disconnected())
    try:
        await asyncio.wait({work, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        work.result()
    finally:
        for task in (work, disconnect):
            task.cancel()
        await asyncio.gather(work, disconnect, return_exceptions=True)


async def _decompress(body: _BodyReader, encoding: str) -> ClientStream:
    """The uncompressed body, in blocks of bounded size at any compression ratio."""
    if encoding not in ("identity", "gzip", "x-gzip"):
        raise GitHttpRefusal(415, "The body may be compressed only with gzip.")
    if encoding == "identity":
        async for block in body:
            yield block
        return
    decompressor = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        async for block in body:
            while not decompressor.eof:
                decompressed = decompressor.decompress(block, BLOCK_BYTES)
                block = decompressor.unconsumed_tail
                if decompressed:
                    yield decompressed
                elif not block:
                    break
    except zlib.error as error:
        raise GitHttpRefusal(400, "The body is not valid gzip data.") from error
    if not decompressor.eof:
        raise GitHttpRefusal(400, "The compressed body is incomplete.")


async def limit_fetch_body(incoming: ClientStream) -> ClientStream:
    """The body of a fetch, up to MAX_FETCH_BYTES. Raises GitHttpRefusal."""
    size = 0
    async for block in incoming:
        size += len(block)
        if size > MAX_FETCH_BYTES:
            raise GitHttpRefusal(413, "The fetch request is too large.")
        yield block


def _read_credential(headers: Headers) -> str | None:
    """The private token of a request, if any (docs/decisions.md 3); the user name beside it is ignored."""
    if token := headers.get("private-token"):
        return token
    return read_basic_password(headers.get("authorization", ""))


def _git_protocol_header(scope: Scope) -> str:
    return Headers(scope=scope).get("git-protocol", "")


def _require_method(scope: Scope, method: str) -> None:
    if scope["method"] != method:
        raise GitHttpRefusal(405, "405 Method Not Allowed", {"Allow": method})


def refusal_of(error: Exception) -> GitHttpRefusal | None:
    """The response for an error, with the messages that HTTP and SSH share; None for an unexpected error."""
    match error:
        case GitHttpRefusal():
            return error
        case OperationError() if error.code in _STATUS_BY_CODE:
            return _refusal_of_graph_error(error)
        case InvalidFetch():
            return GitHttpRefusal(400, "This fetch cannot be read: the request is incomplete, or is not in git's protocol.")
        case InvalidPush():
            return GitHttpRefusal(400, f"This push cannot be read: {error}.")
        case TransportBusy():
            return GitHttpRefusal(
                503, "Too many fetches or pushes are running; try again in a moment.", {"Retry-After": str(RETRY_SECONDS)}
            )
        case TransportTimeout():
            return GitHttpRefusal(503, "This took too long.")
        case GitCommandError():
            log.error("git failed", error=str(error))
            return GitHttpRefusal(500, "The repository cannot be read; the server log contains the details.")
        case OSError() if is_disk_full(error):
            return GitHttpRefusal(507, "The disk of the service is full; nothing was changed.")
    return None


def _refusal_of_graph_error(error: OperationError) -> GitHttpRefusal:
    status = _STATUS_BY_CODE[error.code]
    headers: dict[str, str] = {}
    message = error.message
    if status == 401:
        message, headers = _SIGN_IN_MESSAGE, {"WWW-Authenticate": 'Basic realm="Forgefront", charset="UTF-8"'}
    elif isinstance(error, Forbidden):
        message = error.reason or "You do not have permission to do this in the project."
    elif (seconds := getattr(error, "retry_after", None)) is not None:
        headers = {"Retry-After": str(seconds)}
    return GitHttpRefusal(status, message, headers)


def _refusal_response(rejection: GitHttpRefusal) -> Response:
    return PlainTextResponse(rejection.message + "\n", rejection.status, {**_NO_CACHE_HEADERS, **rejection.headers})
